package headers

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// What has one reading passes, as it came.
func TestTargetsOfOneReadingPassUnchanged(t *testing.T) {
	targets := []string{
		"/caf\u00e9", "/\u4e2d\u6587/\U0001f600?q=\u00fc", `/s?filter={"a":["b",1]}`, "/<a>|b^c", `/"`, "/`?`", "http://a/caf\u00e9",
	}
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, peers.SpeakHTTP2)
	c := p.Dial()
	for i, target := range targets {
		c.Send(peers.RequestText("GET "+target+" HTTP/1.1", "Host: a")).Want(200, "ok")
		if want := "GET " + strings.TrimPrefix(target, "http://a") + " HTTP/1.1\r\n"; !strings.HasPrefix(u.Head(i), want) {
			t.Errorf("the upstream got %.80q, want %q", u.Head(i), want)
		}
	}
	const target = "/caf\u00e9?\"<{|}>\""
	raw := &url.URL{Scheme: "http", Host: p.Addr, Opaque: "//" + p.Addr + target}
	res, err := peers.HTTP2Client(t, nil).Do(&http.Request{Method: "GET", URL: raw})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got := u.Head(len(targets)); res.StatusCode != 200 || !strings.HasPrefix(got, "GET "+target+" HTTP/1.1\r\n") {
		t.Errorf("over HTTP/2: %s, the upstream got %.80q", res.Status, got)
	}
}

func TestResponsesOfOneReadingPass(t *testing.T) {
	for name, tc := range map[string]struct{ response, want string }{
		"status 999":         {"HTTP/1.1 999 Request denied\r\nContent-Length: 2\r\n\r\nno", "HTTP/1.1 999 Request denied\r\nContent-Length: 2\r\n\r\nno"},
		"status 600":         {"HTTP/1.1 600\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 600 \r\nContent-Length: 0\r\n\r\n"},
		"head by LF":         {"HTTP/1.1 200 OK\nX:  a\nContent-Length: 2\n\nok", "HTTP/1.1 200 OK\r\nX: a\r\nContent-Length: 2\r\n\r\nok"},
		"interim head by LF": {"HTTP/1.1 103 Early Hints\nLink: </a>\n\nHTTP/1.1 200 OK\nContent-Length: 2\n\nok", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"},
	} {
		t.Run(name, func(t *testing.T) {
			u := peers.StartUpstream(t, peers.Script(tc.response))
			p := proxytest.Start(t, u, peers.AddNothingToResponses)
			c := p.Dial()
			for i := range 2 { // twice, so that a byte too many or too few shows
				c.Send(peers.Get("/")).WantRaw(tc.want)
				p.WantOutcome(i, policy.OutcomeSuccess)
			}
			if u.Connections() != 1 {
				t.Errorf("%d upstream connections, want 1 kept alive", u.Connections())
			}
		})
	}
}

func TestAMixtureOfLineEndsInAResponseIsRefused(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script("HTTP/1.1 200 OK\r\nX: a\nSet-Cookie: b\r\nContent-Length: 2\r\n\r\nok"))
	p := proxytest.Start(t, u, func(c *proxy.Config) { peers.AddNothingToResponses(c); c.Default.Policy.MaxRetries = 0 })
	p.Dial().Send(peers.Get("/")).Want(502, "*")
}

// Of equal lengths one goes on.
func TestEqualContentLengthsGoOnAsOne(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	p.Dial().Send(peers.RequestText("POST / HTTP/1.1", "Host: a", "Content-Length: 5", "X: y", "content-length: 5")+"hello").Want(200, "ok")
	if n := strings.Count(strings.ToLower(u.Head(0)), "content-length: 5\r\n"); n != 1 {
		t.Errorf("the upstream got %d lengths: %q", n, u.Head(0))
	}
}
