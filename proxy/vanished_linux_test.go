package proxy

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/exchange"
)

// An upstream's machine vanishes between two requests and acknowledges nothing. The request on the
// pooled connection counts as lost long before its timeout, and is retried if it may be.
func TestAVanishedUpstreamIsNoticedBeforeTheTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		request string
		status  int
		outcome policy.Outcome
	}{
		"retried where it may run twice": {get("/second"), 200, policy.OutcomeRecovered},
		"else it ends":                   {"POST /second HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", 502, policy.OutcomeGaveUpNotIdempotent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := startUpstream(t, func(c *upConn) {
				for headers := c.head(); headers != ""; headers = c.head() {
					if strings.HasPrefix(headers, "GET /first") {
						if err := deafen(c.Conn); err != nil {
							t.Error(err)
						}
					}
					c.say(ok200)
				}
			})
			p := startProxy(t, u, func(c *Config) { c.Default.RequestTimeout = time.Minute })
			p.dial().send(get("/first")).want(200, "ok")
			soon(t, "the connection to be idle", func() bool { return p.Stats().Upstreams[0].Pool.Idle == 1 })
			began := time.Now()
			res, _, err := p.dial().send(tc.request).response("GET")
			if err != nil || res.StatusCode != tc.status {
				t.Errorf("%v, %v, want status %d", res, err, tc.status)
			}
			if took := time.Since(began); took < exchange.AckWithin || took > 6*exchange.AckWithin {
				t.Errorf("it took %v", took)
			}
			p.wantOutcome(1, tc.outcome)
		})
	}
}

// An upstream that acknowledges the request may take any time to respond.
func TestASlowUpstreamHasNotVanished(t *testing.T) {
	t.Parallel()
	p := startProxy(t, startUpstream(t, func(c *upConn) {
		c.head()
		time.Sleep(exchange.AckWithin + time.Second)
		c.say(ok200)
	}), func(c *Config) { c.Default.RequestTimeout = time.Minute })
	p.dial().send(get("/")).want(200, "ok")
	if n := p.Stats().Upstreams[0].Pool.Dials; n != 1 {
		t.Errorf("%d connections", n)
	}
}

// deafen has the kernel drop whatever comes for c, as if its machine were gone.
func deafen(c net.Conn) error {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	drop := [1]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
	})
	return errors.Join(err, set)
}
