package serve

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/retryproxy/retryproxy/internal/config"
)

// startLines returns what is logged at start about the upstreams of an environment.
func startLines(t *testing.T, environ ...string) string {
	t.Helper()
	s, problems := config.Load(environ)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	c, err := config.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	a := &app{log: newLogger(&b, false, zapcore.InfoLevel), checkFor: time.Minute} // a busy machine takes seconds
	a.checkUpstreams(t.Context(), s, c)
	return b.String()
}

// wantLine checks that the log is one line with all parts, or empty.
func wantLine(t *testing.T, log string, parts ...string) {
	t.Helper()
	if n := strings.Count(log, "\n"); n != min(len(parts), 1) {
		t.Errorf("%d lines: %s", n, log)
	}
	for _, part := range parts {
		if !strings.Contains(log, part) {
			t.Errorf("no %s in %s", part, log)
		}
	}
}

// At start, each upstream whose certificate cannot be verified gets one line, with what to do. An
// upstream that is trusted gets none.
func TestCertificatesAreCheckedAtStart(t *testing.T) {
	untrusted, trusted := secureServer(t), secureServer(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: trusted.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	log := startLines(t, "RETRYPROXY_UPSTREAM="+untrusted.URL, "RETRYPROXY_ROUTES=a,b", "RETRYPROXY_ROUTE_A_PATH=/a", "RETRYPROXY_ROUTE_B_PATH=/b",
		"RETRYPROXY_ROUTE_A_UPSTREAM="+trusted.URL, "RETRYPROXY_ROUTE_A_UPSTREAM_CA="+ca)
	wantLine(t, log, `"level":"warn"`, "the certificate of the upstream cannot be verified; requests to it will fail", `"upstream":"`+untrusted.URL+`"`,
		`"address":"`+untrusted.Listener.Addr().String()+`"`, "x509: certificate signed by unknown authority", "set RETRYPROXY_UPSTREAM_CA")
}

// TLS on one side only is what a wrong scheme looks like.
func TestAWrongSchemeIsNoticedAtStart(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	wantLine(t, startLines(t, "RETRYPROXY_UPSTREAM=https://"+plain.Listener.Addr().String()),
		"the upstream does not speak TLS, but its URL begins with https", `"hint":"did you mean `+plain.URL+`?"`)
	wantLine(t, startLines(t, "RETRYPROXY_UPSTREAM="+plain.URL))
	secure := secureServer(t)
	if !speaksTLS(t.Context(), secure.Listener.Addr().String(), time.Minute) || speaksTLS(t.Context(), plain.Listener.Addr().String(), time.Minute) {
		t.Error("TLS is not told from plain text")
	}
	if !looksSecure("app:8443") || !looksSecure("app:443") || looksSecure("app:3000") {
		t.Error("443 is the port of TLS")
	}
}

// A name that does not exist gets a line as a refused connection does. No resolver is asked for a name
// that ends in a hyphen.
func TestAnUnreachableUpstreamIsNoticedAtStart(t *testing.T) {
	wantLine(t, startLines(t, "RETRYPROXY_UPSTREAM=http://no-such-name-:3000"),
		`"level":"warn"`, "the name of the upstream cannot be resolved", `"upstream":"http://no-such-name-:3000"`, "check the spelling of RETRYPROXY_UPSTREAM")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	refused := "RETRYPROXY_UPSTREAM=http://" + l.Addr().String()
	wantLine(t, startLines(t, refused), `"level":"info"`, "does not accept connections yet; requests are queued until it does", `"queue_timeout_seconds":20`)
	wantLine(t, startLines(t, refused, "RETRYPROXY_BREAKER=off"), `"level":"warn"`, "the upstream does not accept connections", "check RETRYPROXY_UPSTREAM")
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
