package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// Connections to an address that the upstream has left carry no new requests; those in flight on
// them finish.
func TestNoStreamGoesWhereTheUpstreamHasLeft(t *testing.T) {
	const oldHome, newHome = "192.0.2.1", "192.0.2.2"
	asked, release, over := make(chan struct{}), make(chan struct{}), make(chan struct{}, 2)
	homes := map[string]string{
		oldHome + ":80": peers.HTTP2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/long" {
				asked <- struct{}{}
				<-release
			}
			_, _ = io.WriteString(w, "old")
		}),
		newHome + ":80": peers.HTTP2Server(t, nil, false, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "new") }),
	}
	var at atomic.Value
	at.Store(oldHome)
	p := startProxyTo(t, "h2c://app.test:80", func(c *Config) {
		c.Default.Upstream.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr(at.Load().(string))}, nil
		}
		c.Default.Upstream.Dial = func(_ context.Context, network, addr string) (net.Conn, error) {
			c, err := net.Dial(network, homes[addr])
			if addr == newHome+":80" {
				return c, err
			}
			return ended{c, over}, err
		}
	})
	long := p.Dial().Send(peers.Get("/long"))
	<-asked
	pool := p.settings.Load().Upstreams()[0].Pool
	at.Store(newHome)
	if !pool.AddressRemoved(t.Context(), oldHome+":80") {
		t.Fatal("the name leads elsewhere, and nothing was noticed")
	}
	p.Dial().Send(peers.Get("/")).Want(200, "new")
	close(release)
	long.Want(200, "old")
	select {
	case <-over:
	case <-time.After(30 * time.Second): // an idle one is closed after 55 s anyway
		t.Error("the old connection was not closed after its last stream")
	}
}

// ended is a connection that tells when it is closed.
type ended struct {
	net.Conn
	told chan<- struct{}
}

func (e ended) Close() error {
	select {
	case e.told <- struct{}{}:
	default:
	}
	return e.Conn.Close()
}
