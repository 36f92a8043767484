package upstream

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// If the environment turns net/http's HTTP/2 client off, an upstream that would choose HTTP/2 gets
// HTTP/1.1.
func TestHTTP2IsNotAskedForWhereGODEBUGTurnsItOff(t *testing.T) {
	t.Setenv("GODEBUG", "http2client=0")
	port, trust := peers.SecureHTTP2Server(t, true, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
	log, lines := peers.LogLines()
	p := proxytest.StartTo(t, "https://secure.test:"+port, func(c *proxy.Config) { trust(c); c.Log = log })
	p.Dial().Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").Want(200, "HTTP/1.1")
	if n := strings.Count(lines.String(), "GODEBUG=http2client=0"); n != 1 {
		t.Errorf("warned %d times", n)
	}
	for _, url := range []string{"h2://a", "h2c://a"} {
		if _, err := upstream.ParseTarget(url); err == nil || !strings.Contains(err.Error(), "GODEBUG=http2client=0") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
