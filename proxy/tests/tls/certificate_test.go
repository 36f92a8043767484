package tls

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/retryproxy/retryproxy/internal/logtest"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// secureServer is a real TLS server. trust makes a configuration trust its certificate, which is
// for 127.0.0.1.
func secureServer(t *testing.T, http2 bool) (s *httptest.Server, trust func(c *tls.Config)) {
	t.Helper()
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "ok") }))
	s.Config.ErrorLog = stdlog.New(io.Discard, "", 0) // it complains of the handshakes
	s.EnableHTTP2 = http2
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s, func(c *tls.Config) { c.RootCAs = roots }
}

// An upstream whose certificate cannot be verified is a mistake in the settings, no outage: each
// request fails at once, and the breaker stays closed.
func TestAnUntrustedUpstreamFailsAtOnce(t *testing.T) {
	for protocol, http2 := range map[string]bool{"https": false, "h2": true} {
		for name, tc := range map[string]struct {
			change func(c *tls.Config, trust func(*tls.Config))
			hint   string
			text   string
		}{
			"unknown authority": {func(*tls.Config, func(*tls.Config)) {}, "RETRYPROXY_UPSTREAM_CA", "x509: certificate signed by unknown authority"},
			"other name":        {func(c *tls.Config, trust func(*tls.Config)) { trust(c); c.ServerName = "other.test" }, "RETRYPROXY_UPSTREAM_HOST", "not other.test"},
			"expired": {func(c *tls.Config, trust func(*tls.Config)) {
				trust(c)
				c.Time = func() time.Time { return time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC) }
			}, "renew the certificate", "certificate has expired"},
		} {
			t.Run(protocol+" "+name, func(t *testing.T) {
				s, trust := secureServer(t, http2)
				log, lines := peers.LogLines()
				url := protocol + "://" + s.Listener.Addr().String()
				p := proxytest.StartTo(t, url, func(c *proxy.Config) {
					peers.WithBreaker(c)
					c.Log = log
					c.Default.DialTimeout, c.Default.AttemptTimeout, c.Default.RequestTimeout = time.Hour, 0, time.Hour
					c.Default.Upstream.TLS = c.Default.Upstream.TLS.Clone()
					tc.change(c.Default.Upstream.TLS, trust)
				})
				const requests = 20
				for range requests {
					res := p.Dial().Send(peers.Post("hello")).Want(502, "*")
					if got := res.Header.Get("X-Retryproxy-Reason"); got != "untrusted_certificate" || res.Header.Get("X-Retryproxy-Attempts") != "1" {
						t.Fatalf("reason %q, %s attempts", got, res.Header.Get("X-Retryproxy-Attempts"))
					}
				}
				if g := p.Guard(); g.Breaker != breaker.Closed || g.Opened != [breaker.NumOpenedBy]uint64{} || g.InFlight != 0 {
					t.Errorf("%+v", g)
				}
				if n := p.Stats().Upstreams[0].Pool.DialErrors[upstream.KindTLS]; n != requests {
					t.Errorf("%d failed handshakes are counted, want %d", n, requests)
				}
				if o := p.Seen.Outcome(t, requests-1); o != policy.GaveUp(policy.ReasonUntrustedCertificate) {
					t.Errorf("outcome %v", o)
				}
				p.Stop()
				line := `"level":"warn","msg":"the certificate of the upstream cannot be verified; requests fail at once","upstream":"` + url + `"`
				if n := strings.Count(lines.String(), line); n < 1 || n > 2 { // a second one if a minute has passed
					t.Errorf("%d lines in %s", n, lines.String())
				}
				for _, want := range []string{tc.hint, tc.text} {
					if !strings.Contains(lines.String(), want) {
						t.Errorf("no %q in %s", want, lines.String())
					}
				}
			})
		}
	}
}

// An upstream that refused connections and comes back with a wrong certificate closes the breaker:
// what was queued fails at once, however the upstream is probed.
func TestAnUpstreamThatComesBackUntrustedEndsTheQueue(t *testing.T) {
	for name, path := range map[string]string{"probed by connecting": "", "probed by GET": peers.ReadyPath} {
		t.Run(name, func(t *testing.T) {
			permit := peers.ReservePort(t)
			p := proxytest.StartTo(t, "https://"+permit.Addr, func(c *proxy.Config) {
				peers.WithBreaker(c)
				c.Default.Probe.Path = path
				c.Default.DialTimeout, c.Default.QueueTimeout, c.Default.RequestTimeout = time.Hour, time.Hour, time.Hour
			})
			c := p.Dial().Send(peers.Get("/"))
			peers.Soon(t, "the queue", func() bool { return p.Guard().Queued == 1 })
			s := httptest.NewUnstartedServer(http.NotFoundHandler())
			s.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
			_ = s.Listener.Close()
			s.Listener = permit.Open()
			s.StartTLS()
			defer s.Close()
			res := c.Want(502, "*")
			if got := res.Header.Get("X-Retryproxy-Reason"); got != "untrusted_certificate" {
				t.Errorf("reason %q", got)
			}
			if n := p.Stats().Upstreams[0].Pool.DialErrors[upstream.KindTLS]; n > 10 {
				t.Errorf("%d handshakes", n)
			}
		})
	}
}

// A certificate that can no longer be verified ends the queue of a breaker that failures opened, since
// requests fail at once.
func TestAFailingUpstreamThatBecomesUntrustedEndsTheQueue(t *testing.T) {
	s, trust := secureServer(t, false)
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	s.Config.SetKeepAlivesEnabled(false) // each request has its own handshake
	var expired atomic.Bool
	p := proxytest.StartTo(t, "https://"+s.Listener.Addr().String(), func(c *proxy.Config) {
		peers.WithBreaker(c)
		c.Default.Probe.Path = peers.ReadyPath
		c.Default.DialTimeout, c.Default.QueueTimeout, c.Default.RequestTimeout = time.Hour, time.Hour, time.Hour
		c.Default.Policy.MaxRetries = 0
		c.Default.Upstream.TLS = c.Default.Upstream.TLS.Clone()
		trust(c.Default.Upstream.TLS)
		c.Default.Upstream.TLS.Time = func() time.Time {
			if expired.Load() {
				return time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
			}
			return time.Now()
		}
	})
	for p.Guard().Breaker == breaker.Closed {
		p.Dial().Send(peers.Get("/")).Want(503, "*")
	}
	c := p.Dial().Send(peers.Get("/"))
	peers.Soon(t, "the queue", func() bool { return p.Guard().Queued == 1 })
	expired.Store(true)
	for range 20 {
		if got := c.Want(502, "*").Header.Get("X-Retryproxy-Reason"); got != "untrusted_certificate" {
			t.Fatalf("reason %q", got)
		}
		c = p.Dial().Send(peers.Get("/"))
	}
	if g := p.Guard(); g.OpenedBy != breaker.OpenedByFailing || g.SlowStarts != 1 {
		t.Errorf("%+v", g)
	}
}

// Names in a certificate are the upstream's text. They forge no line of the log and no header, and
// steer no terminal.
func TestNamesInACertificateForgeNothing(t *testing.T) {
	a := peers.NewAuthority(t)
	pair, err := tls.LoadX509KeyPair(a.Issue(t, "a.test\n{\"level\":\"error\",\"msg\":\"forged\"}\r\nX-Forged: 1\r\n\x1b[2J\x7f"))
	if err != nil {
		t.Fatal(err)
	}
	var urls []string
	for range 2 { // a single endpoint's health is not checked
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, "https://"+l.Addr().String())
		peers.ServeListener(t, tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}}), peers.Script(peers.OK200))
	}
	log, lines := peers.LogLines()
	columns := &logtest.Buffer{}
	p := proxytest.StartTo(t, strings.Join(urls, ","), func(c *proxy.Config) {
		c.Log = zap.New(zapcore.NewTee(log.Core(), zapcore.NewCore(zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "msg"}), columns, zap.InfoLevel)))
		c.AccessLog = true
		c.Default.HealthCheck = upstream.HealthCheck{Path: "/healthz", Interval: 10 * time.Millisecond}
		if err := c.Default.Upstream.UseTLS(upstream.TLSFiles{CA: a.Dir + "/ca.pem", ServerName: "wanted.test"}); err != nil {
			t.Fatal(err)
		}
	})
	res, body, err := p.Dial().Send(peers.Get("/")).Response("GET")
	if err != nil || res.StatusCode != 502 || !json.Valid([]byte(body)) || res.Header.Get("X-Forged") != "" || strings.Contains(body, "forged") {
		t.Errorf("%v %q, %v", res, body, err)
	}
	peers.Soon(t, "failed health checks", func() bool { return p.Addresses().Unhealthy == 2 })
	p.Stop()
	if text := columns.String(); strings.Contains(text, "\n{") || strings.ContainsFunc(strings.ReplaceAll(strings.ReplaceAll(text, "\n", ""), "\t", ""), unicode.IsControl) {
		t.Errorf("columns: %q", text)
	}
	for line := range strings.Lines(lines.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["msg"] == "forged" {
			t.Errorf("line %q: %v", line, err)
		}
		if text := fmt.Sprint(fields); strings.ContainsFunc(text, unicode.IsControl) {
			t.Errorf("%q", text)
		}
	}
}
