package observed

import (
	"context"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

func TestTheCauseOfAFailedConnectionIsInTheLog(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = stdlog.New(io.Discard, "", 0) // it complains of the handshake
	secure.StartTLS()
	defer secure.Close()
	secureAddr := secure.Listener.Addr().String()
	permit := peers.ReservePort(t)
	nowhere := func(context.Context, string) ([]netip.Addr, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "nowhere", IsNotFound: true}
	}
	for name, tc := range map[string]struct {
		url   string
		msg   string
		wants []string
	}{
		"refused": {"http://" + permit.Addr, "a connection to the upstream failed", []string{`"address":"` + permit.Addr + `"`, `"kind":"refused"`, `"error":"connect: connection refused"`}},
		"x509":    {"https://" + secureAddr, "the certificate of the upstream cannot be verified; requests fail at once", []string{`"address":"` + secureAddr + `"`, `"kind":"tls"`, `x509: certificate signed by unknown authority`}},
		"DNS":     {"http://nowhere:80", "a connection to the upstream failed", []string{`"address":"nowhere:80"`, `"kind":"dns"`, `"error":"lookup nowhere: no such host"`}},
	} {
		t.Run(name, func(t *testing.T) {
			log, lines := peers.LogLines()
			p := proxytest.StartTo(t, tc.url, func(c *proxy.Config) {
				c.Log, c.GaveUpLogPerMinute = log, 10
				c.Default.Policy.MaxRetries = 0
				c.Default.Upstream.Resolve = nowhere
			})
			if res, _, err := p.Dial().Send(peers.Get("/")).Response("GET"); err != nil || res.StatusCode < 500 {
				t.Fatalf("%v %v", res, err)
			}
			p.Stop()
			all := strings.Split(strings.TrimSpace(lines.String()), "\n")
			for i, msg := range []string{`"level":"warn","msg":"` + tc.msg + `","upstream":"` + tc.url, `"msg":"request given up"`} {
				if i >= len(all) || !strings.Contains(all[i], msg) {
					t.Fatalf("line %d has no %s: %s", i, msg, lines.String())
				}
				for _, want := range tc.wants {
					if !strings.Contains(all[i], want) {
						t.Errorf("no %s in %s", want, all[i])
					}
				}
			}
			if f := p.Stats().Upstreams[0].LastFailure; f == nil || f.At.IsZero() || !strings.Contains(lines.String(), f.Err.Text()) {
				t.Errorf("remembered %+v", f)
			}
		})
	}
}

func TestTheSameFailedConnectionIsLoggedOnceAMinute(t *testing.T) {
	log, lines := peers.LogLines()
	permit := peers.ReservePort(t)
	p := proxytest.StartTo(t, "http://"+permit.Addr, func(c *proxy.Config) {
		c.Log = log
		c.Default.Policy.MaxRetries = 0
	})
	c := p.Dial()
	for range admission.DialLinesPerMinute + 5 {
		if res, _, err := c.Send(peers.Get("/")).Response("GET"); err != nil || res.StatusCode < 500 {
			t.Fatalf("%v %v", res, err)
		}
	}
	p.Stop()
	const failed = admission.DialLinesPerMinute + 5
	if n := strings.Count(lines.String(), `"msg":"a connection to the upstream failed"`); n > 2 || n < 1 { // a second one if a minute has passed
		t.Errorf("%d lines", n)
	} else if n == 1 && !strings.Contains(lines.String(), fmt.Sprintf(`lines suppressed","upstream":"http://%s","count":%d}`, permit.Addr, failed-1)) {
		t.Errorf("no count of the others in %s", lines.String())
	}
}

func TestAnOutageIsLoggedWithItsCauseAndThatRequestsAreQueued(t *testing.T) {
	log, lines := peers.LogLines()
	permit := peers.ReservePort(t)
	p := proxytest.StartTo(t, "http://"+permit.Addr, func(c *proxy.Config) { peers.WithBreaker(c); c.Log = log })
	c := p.Dial().Send(peers.Get("/"))
	peers.Soon(t, "line of the outage", func() bool {
		return strings.Contains(lines.String(), `"msg":"circuit breaker opened","upstream":"http://`+permit.Addr+`","by":"refused","address":"`+permit.Addr+`","kind":"refused","error":"connect: connection refused"`)
	})
	queued := `"level":"warn","msg":"the upstream refuses connections; requests are queued","upstream":"http://` + permit.Addr + `","queue_timeout_seconds":20}`
	peers.Soon(t, "line of the first queued request", func() bool { return strings.Contains(lines.String(), queued) })
	second := p.Dial().Send(peers.Get("/"))
	peers.ServeListener(t, permit.Open(), peers.Script(peers.OK200))
	c.Want(200, "ok")
	second.Want(200, "ok")
	if n := strings.Count(lines.String(), "requests are queued"); n != 1 {
		t.Errorf("told %d times in one outage", n)
	}
}
