package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// At start, each upstream whose certificate cannot be verified gets one line, with what to do. An
// upstream that is down, has no TLS or is trusted gets none.
func TestCertificatesAreCheckedAtStart(t *testing.T) {
	untrusted := secureServer(t)
	trusted := secureServer(t)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	target := func(url string) upstream.Target {
		t.Helper()
		target, err := upstream.ParseTarget(url)
		if err != nil {
			t.Fatal(err)
		}
		return target
	}
	known := target(trusted.URL)
	known.TLS = known.TLS.Clone()
	known.TLS.RootCAs = x509.NewCertPool()
	known.TLS.RootCAs.AddCert(trusted.Certificate())
	down := target("https://127.0.0.1:1")
	down.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }

	var c proxy.Config
	c.Default.Upstream = target(untrusted.URL)
	for _, each := range []upstream.Target{target(untrusted.URL), known, target(plain.URL), down} {
		c.Routes = append(c.Routes, proxy.Route{Name: "r", Upstream: each})
	}
	var b strings.Builder
	a := &app{log: newLogger(&b, false)}
	a.logUntrusted(t.Context(), &c)
	if n := strings.Count(b.String(), "\n"); n != 1 {
		t.Errorf("%d lines: %s", n, b.String())
	}
	for _, want := range []string{
		`"level":"warn"`, "the certificate of the upstream cannot be verified; requests to it will fail", `"upstream":"` + untrusted.URL + `"`,
		`"address":"` + untrusted.Listener.Addr().String() + `"`, "x509: certificate signed by unknown authority", "set RETRYPROXY_UPSTREAM_CA",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in %s", want, b.String())
		}
	}
}

// secureServer is a TLS server with a certificate of its own.
func secureServer(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = stdlog.New(io.Discard, "", 0) // it complains of the handshakes
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}
