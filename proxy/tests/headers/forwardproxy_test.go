package headers

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/route"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// forwarding makes a forward proxy for api.example, for files.example at port
// 8080 and for all below svc.example, all of which are the test's upstream.
func forwarding(c *proxy.Config) {
	c.ForwardProxy = true
	for name, host := range map[string]string{"files": "files.example:8080", "svc": "*.svc.example"} {
		r := c.Default
		r.Name, r.Match = name, route.Match{Host: host}
		c.Routes = append(c.Routes, r)
	}
	c.Default.Upstream.Host = "api.example"
	c.Default.Forward.UpstreamHost = "api.example"
}

func TestForwardProxyServesConfiguredHosts(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, forwarding)
	for n, target := range []string{
		"http://api.example/", "http://api.example", "HTTP://API.Example/", "http://api.example./", "http://api.example:80/", "http://api.example:/", "http://api.example?q",
		"http://files.example:8080/", "http://Files.Example.:8080/", "http://a.svc.example/", "http://b.a.svc.example:80/",
	} {
		p.Dial().Send("GET "+target+" HTTP/1.1\r\nHost: other.example\r\n\r\n").Want(200, "ok")
		_, rest, _ := strings.Cut(target, "//")
		host, _, _ := strings.Cut(strings.TrimSuffix(rest, "?q"), "/")
		if got := peers.FieldOf(u.Head(n), "Host"); got != host {
			t.Errorf("%s: the upstream was asked for %q", target, got)
		}
	}
	p.Dial().Send(peers.Get("/")).Want(200, "ok") // whoever calls it by its own name
}

func TestForwardProxyRefusesAllOthers(t *testing.T) {
	var told atomic.Int32
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		forwarding(c)
		c.Refused = func(why http1.Refusal) {
			if why == http1.RefusalOtherHost {
				told.Add(1)
			}
		}
	})
	targets := []string{
		"http://other.example/", "http://other.example:80/", "http://api.example.other.example/", "http://xapi.example/", "http://example/", "http://api.example../",
		"http://api.example:81/", "http://api.example:443/", "http://api.example:080/", "http://files.example/", "http://files.example:80/", "http://files.example:8081/",
		"http://svc.example/", "http://a.svc.example:9/", "http://a.svc.example:443/", "http://xsvc.example/",
		"https://api.example/", "https://api.example:80/", "https://a.svc.example/",
		"http://localhost/", "http://" + u.Addr().String() + "/", "http://" + p.Addr + "/",
		"http://127.0.0.1/", "http://127.1/", "http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/",
		"http://169.254.169.254/latest/meta-data/", "http://0.0.0.0/",
	}
	for n, target := range targets {
		c := p.Dial().Send("GET " + target + " HTTP/1.1\r\nHost: api.example\r\n\r\n")
		res, body, err := c.Response("GET")
		if err != nil || res.StatusCode != 403 {
			t.Errorf("%s: %v %v", target, res, err)
			continue
		}
		var told struct {
			Status int    `json:"status"`
			Reason string `json:"reason"`
		}
		if err := json.Unmarshal([]byte(body), &told); err != nil || told.Status != 403 || told.Reason != "other_host" {
			t.Errorf("%s: %q %v", target, body, err)
		}
		p.WantOutcome(n, policy.OutcomeRefused)
	}
	if u.Connections() != 0 || int(told.Load()) != len(targets) {
		t.Errorf("%d connections to the upstream, %d of %d refusals counted", u.Connections(), told.Load(), len(targets))
	}
	for _, target := range []string{"http://api.example@other.example/", "http://u:p@api.example/", "http://api.example%2f@other.example/", "http:///", "http://api.example#@b/", "ftp://api.example/", "api.example/"} {
		p.Dial().Send("GET "+target+" HTTP/1.1\r\nHost: api.example\r\n\r\n").Want(400, "*")
	}
	if u.Connections() != 0 {
		t.Errorf("%d connections to the upstream", u.Connections())
	}
}

// Without the switch an absolute form is a longer way to write the same request.
func TestAbsoluteFormIsForAnyHostWithoutForwardProxy(t *testing.T) {
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *proxy.Config) { forwarding(c); c.ForwardProxy = false })
	p.Dial().Send("GET http://other.example/ HTTP/1.1\r\nHost: a\r\n\r\n").Want(200, "ok")
}

// What one upstream may be called.
func TestForwardProxyKnowsItsUpstream(t *testing.T) {
	for _, c := range []struct {
		upstream, target string
		meant            bool
	}{
		{"https://api.example", "http://api.example/", true}, // and gets TLS
		{"https://api.example", "https://api.example/", true},
		{"https://api.example", "https://api.example:443/", true},
		{"https://api.example", "http://api.example:443/", false},
		{"https://api.example:8443", "https://api.example:8443/", true},
		{"https://api.example:8443", "https://api.example/", false},
		{"http://api.example", "https://api.example/", false},
		{"http://a:80,http://b:81", "http://a/", true},
		{"http://a:80,http://b:81", "http://b:81/", true},
		{"http://a:80,http://b:81", "http://a:81/", false},
		{"http+srv://_http._tcp.api.example", "http://api.example/", true},
		{"http://10.0.0.1:8080", "http://10.0.0.1:8080/", true},
		{"http://10.0.0.1:8080", "http://[::ffff:10.0.0.1]:8080/", false},
		{"http://10.0.0.1:8080", "http://10.0.0.01:8080/", false},
		{"http://[2001:db8::1]:81", "http://[2001:DB8::1]:81/", true},
		{"http://[2001:db8::1]", "http://[2001:db8::1]/", true},
		{"http://[2001:db8::1]", "http://[2001:db8:0::1]/", false},
	} {
		to, err := upstream.ParseTarget(c.upstream)
		if err != nil {
			t.Fatal(err)
		}
		var q http1.Request
		if _, err := q.Parse([]byte("GET "+c.target+" HTTP/1.1\r\nHost: a\r\n\r\n"), http1.Limits{}); err != nil {
			t.Fatalf("%s: %v", c.target, err)
		}
		if got := (&proxy.Route{Upstream: to}).Accepts(&q); got != c.meant {
			t.Errorf("%s for %s: %v", c.target, c.upstream, got)
		}
	}
}

// The way an application uses it: by setting http_proxy.
func TestGoClientThroughForwardProxyIsRetried(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.Bad503, "", peers.OK200))
	p := proxytest.Start(t, u, forwarding)
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: p.Addr, User: url.UserPassword("u", "secret")})}
	t.Cleanup(tr.CloseIdleConnections)
	client := &http.Client{Transport: tr}
	res, err := client.Get("http://api.example/a?b=c")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != 200 || string(body) != "ok" || u.Sends() != 3 {
		t.Errorf("%d %q after %d sends", res.StatusCode, body, u.Sends())
	}
	if headers := u.Head(2); !strings.HasPrefix(headers, "GET /a?b=c HTTP/1.1\r\n") || peers.FieldOf(headers, "Host") != "api.example" || strings.Contains(headers, "Proxy-") {
		t.Errorf("the upstream got %q", headers)
	}
	res, err = client.Get("http://other.example/")
	if err != nil || res.StatusCode != 403 {
		t.Fatal(res, err)
	}
	res.Body.Close()
}

func TestConnectIsRefusedWithAReason(t *testing.T) {
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), forwarding)
	c := p.Dial().Send("CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n\r\n")
	res, body, err := c.Response("GET")
	if err != nil || res.StatusCode != 501 || !strings.Contains(body, `"reason":"connect"`) || !strings.Contains(body, "tunnel") {
		t.Errorf("%v %q %v", res, body, err)
	}
}

// Of several hosts that a route matches, each without a port stands for the scheme's own port alone.
func TestAForwardProxyWithSeveralHosts(t *testing.T) {
	for host, want := range map[string]map[string]bool{
		"a.test,b.test":           {"http://b.test/": true, "http://b.test:8080/": false},
		"a.test:8443,b.test":      {"http://b.test/": true, "http://a.test:8443/": false, "http://b.test:8443/": false},
		"a.test:8443,b.test:8443": {"http://a.test:8443/": true, "http://b.test:8443/": true},
	} {
		r := proxy.Route{Match: route.Match{Host: host}}
		for target, want := range want {
			var q http1.Request
			if _, err := q.Parse([]byte("GET "+target+" HTTP/1.1\r\nHost: a.test\r\n\r\n"), http1.Limits{HeaderBytes: 1 << 10, Headers: 9}); err != nil {
				t.Fatal(err)
			}
			if got := r.Accepts(&q); got != want {
				t.Errorf("%s for a route of %s: %v, want %v", target, host, got, want)
			}
		}
	}
}
