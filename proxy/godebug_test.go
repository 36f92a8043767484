package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// If the environment turns net/http's HTTP/2 server off, clients are not offered HTTP/2.
func TestHTTP2IsNotOfferedWhereGODEBUGTurnsItOff(t *testing.T) {
	t.Setenv("GODEBUG", "http2server=0")
	a := newAuthority(t)
	log, lines := logLines()
	p := startProxy(t, startUpstream(t, script(ok200, ok200)), func(c *Config) { speakHTTP2(c); c.Log = log; a.clientsOverTLS(t, c, false) })
	conf := a.client()
	conf.NextProtos = []string{"h2", "http/1.1"}
	p.dialTLS(conf).send("GET / HTTP/1.1\r\nHost: proxy.test\r\n\r\n").want(200, "ok")
	if n := strings.Count(lines.String(), "GODEBUG=http2server=0"); n != 1 {
		t.Errorf("warned %d times", n)
	}
}

func TestTheHTTP2PrefaceIsRefusedWhereGODEBUGTurnsItOff(t *testing.T) {
	t.Setenv("GODEBUG", "http2server=0")
	p := startProxy(t, startUpstream(t, script(ok200)), speakHTTP2)
	p.dial().send(floodguard.Preface).want(http.StatusHTTPVersionNotSupported, "*")
}

// If the environment turns net/http's HTTP/2 client off, an upstream that would choose HTTP/2 gets
// HTTP/1.1.
func TestHTTP2IsNotAskedForWhereGODEBUGTurnsItOff(t *testing.T) {
	t.Setenv("GODEBUG", "http2client=0")
	port, trust := secureHTTP2Server(t, true, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
	log, lines := logLines()
	p := startProxyTo(t, "https://secure.test:"+port, func(c *Config) { trust(c); c.Log = log })
	p.dial().send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").want(200, "HTTP/1.1")
	if n := strings.Count(lines.String(), "GODEBUG=http2client=0"); n != 1 {
		t.Errorf("warned %d times", n)
	}
	for _, url := range []string{"h2://a", "h2c://a"} {
		if _, err := upstream.ParseTarget(url); err == nil || !strings.Contains(err.Error(), "GODEBUG=http2client=0") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
