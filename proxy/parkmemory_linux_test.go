//go:build !race && !poison

package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/tcptest"
)

// mostParked is what a parked connection may hold, in bytes; over TLS, in addition to what crypto/tls
// holds.
const mostParked = 5 << 9

// growth returns by how many bytes the process grows for each of n connections that open opens.
func growth(n int, open func()) int64 {
	stacks, objects := memoryInUse()
	for range n {
		open()
	}
	stacksAfter, objectsAfter := memoryInUse()
	return (stacksAfter - stacks + objectsAfter - objects) / int64(n)
}

// served sends a request and reads the response, with no buffer that stays.
func served(t *testing.T, c io.ReadWriter) {
	t.Helper()
	var b [4 << 10]byte
	if _, err := io.WriteString(c, peers.Get("/")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(b[:]); err != nil {
		t.Fatal(err)
	}
}

// bareGrowth returns what both ends of a connection over TLS without a proxy make the process grow by.
func bareGrowth(t *testing.T, n int, client, server *tls.Config) int64 {
	t.Helper()
	return growth(n, func() {
		near, far := tcptest.Pair(t)
		ended := make(chan error, 1)
		s := tls.Server(near, server)
		go func() {
			var b [4 << 10]byte
			_, err := s.Read(b[:])
			if err == nil {
				_, err = io.WriteString(s, peers.OK200)
			}
			ended <- err
		}()
		c := tls.Client(far, client)
		served(t, c)
		if err := peers.Within(t, "the server's end", ended); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.NetConn(); _ = s.NetConn() }) // both stay
	})
}

// An idle connection keeps little, the test's end included, and over TLS little beside what crypto/tls
// keeps.
func TestAParkedClientKeepsLittleMemory(t *testing.T) {
	const n = 200
	a := peers.NewAuthority(t)
	for _, secure := range []bool{false, true} {
		p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *Config) {
			parksAtOnce(c)
			if secure {
				a.ClientsOverTLS(t, c, false)
			}
		})
		var client, server *tls.Config
		if secure {
			client, server = a.Client(), p.settings.Load().ClientTLS
		}
		parked := 0
		open := func() {
			nc, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.Addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { nc.Close() })
			var c io.ReadWriter = nc
			if secure {
				s := tls.Client(nc, client)
				t.Cleanup(func() { _ = s.NetConn() })
				c = s
			}
			served(t, c)
			parked++
			p.wantParked(parked)
		}
		for range 20 { // what the first connections need, such as the upstream's
			open()
		}
		own := int64(0)
		if secure {
			own = bareGrowth(t, n, client, server)
		}
		if got := growth(n, open); got > own+mostParked {
			t.Errorf("TLS %v: %d bytes, crypto/tls alone %d", secure, got, own)
		}
	}
}

// A client is parked within a second of its last byte.
func TestAClientIsParkedWithinASecond(t *testing.T) {
	if most := parkAfter + parkAfter/2; most > time.Second {
		t.Errorf("after %v", most)
	}
}
