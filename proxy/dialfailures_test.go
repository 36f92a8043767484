package proxy

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

	"github.com/retryproxy/retryproxy/proxy/admission"
)

func TestTheCauseOfAFailedConnectionIsInTheLog(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = stdlog.New(io.Discard, "", 0) // it complains of the handshake
	secure.StartTLS()
	defer secure.Close()
	secureAddr := secure.Listener.Addr().String()
	permit := reservePort(t)
	nowhere := func(context.Context, string) ([]netip.Addr, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "nowhere", IsNotFound: true}
	}
	for name, tc := range map[string]struct {
		url   string
		msg   string
		wants []string
	}{
		"refused": {"http://" + permit.addr, "a connection to the upstream failed", []string{`"address":"` + permit.addr + `"`, `"kind":"refused"`, `"error":"connect: connection refused"`}},
		"x509":    {"https://" + secureAddr, "the certificate of the upstream cannot be verified; requests fail at once", []string{`"address":"` + secureAddr + `"`, `"kind":"tls"`, `x509: certificate signed by unknown authority`}},
		"DNS":     {"http://nowhere:80", "a connection to the upstream failed", []string{`"address":"nowhere:80"`, `"kind":"dns"`, `"error":"lookup nowhere: no such host"`}},
	} {
		t.Run(name, func(t *testing.T) {
			log, lines := logLines()
			p := startProxyTo(t, tc.url, func(c *Config) {
				c.Log, c.GaveUpLogPerMinute = log, 10
				c.Default.Policy.MaxRetries = 0
				c.Default.Upstream.Resolve = nowhere
			})
			if res, _, err := p.dial().send(get("/")).response("GET"); err != nil || res.StatusCode < 500 {
				t.Fatalf("%v %v", res, err)
			}
			p.stop()
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
	log, lines := logLines()
	permit := reservePort(t)
	p := startProxyTo(t, "http://"+permit.addr, func(c *Config) {
		c.Log = log
		c.Default.Policy.MaxRetries = 0
	})
	c := p.dial()
	for range admission.DialLinesPerMinute + 5 {
		if res, _, err := c.send(get("/")).response("GET"); err != nil || res.StatusCode < 500 {
			t.Fatalf("%v %v", res, err)
		}
	}
	p.stop()
	const failed = admission.DialLinesPerMinute + 5
	if n := strings.Count(lines.String(), `"msg":"a connection to the upstream failed"`); n > 2 || n < 1 { // a second one if a minute has passed
		t.Errorf("%d lines", n)
	} else if n == 1 && !strings.Contains(lines.String(), fmt.Sprintf(`lines suppressed","upstream":"http://%s","count":%d}`, permit.addr, failed-1)) {
		t.Errorf("no count of the others in %s", lines.String())
	}
}

func TestAnOutageIsLoggedWithItsCauseAndThatRequestsAreQueued(t *testing.T) {
	log, lines := logLines()
	permit := reservePort(t)
	p := startProxyTo(t, "http://"+permit.addr, func(c *Config) { withBreaker(c); c.Log = log })
	c := p.dial().send(get("/"))
	soon(t, "line of the outage", func() bool {
		return strings.Contains(lines.String(), `"msg":"circuit breaker opened","upstream":"http://`+permit.addr+`","by":"refused","address":"`+permit.addr+`","kind":"refused","error":"connect: connection refused"`)
	})
	queued := `"level":"warn","msg":"the upstream refuses connections; requests are queued","upstream":"http://` + permit.addr + `","queue_timeout_seconds":20}`
	soon(t, "line of the first queued request", func() bool { return strings.Contains(lines.String(), queued) })
	second := p.dial().send(get("/"))
	serveListener(t, permit.open(), script(ok200))
	c.want(200, "ok")
	second.want(200, "ok")
	if n := strings.Count(lines.String(), "requests are queued"); n != 1 {
		t.Errorf("told %d times in one outage", n)
	}
}
