package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/proxyproto"
)

// announce makes every peer of this machine begin with a header.
func announce(c *Config) { c.ProxyProtocolFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }

const (
	from1     = "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n"
	signature = "\r\n\r\n\x00\r\nQUIT\n"
	from2     = signature + "\x21\x21\x00\x27" + "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\xdc\x04\x01\xbb" + "\x04\x00\x00" // and a NOOP
	local2 = signature + "\x20\x00\x00\x00"
)

// wantFrom checks whom the nth request was forwarded for.
func (u *fakeUpstream) wantFrom(t *testing.T, n int, addr string) {
	t.Helper()
	if !strings.Contains(u.head(n), "X-Forwarded-For: "+addr+"\r\n") {
		t.Errorf("request %d is not from %s:\n%s", n, addr, u.head(n))
	}
}

func TestTheClientsAddressComesFromTheProxyHeader(t *testing.T) {
	for name, c := range map[string]struct{ header, addr string }{
		"v1":           {from1, "192.0.2.1"},
		"v1, unknown":  {"PROXY UNKNOWN\r\n", "127.0.0.1"},
		"v2":           {from2, "2001:db8::1"},
		"v2, LOCAL":    {local2, "127.0.0.1"},
		"v2, no names": {signature + "\x21\x00\x00\x00", "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			u := startUpstream(t, script(ok200))
			p := startProxy(t, u, announce)
			p.dial().send(c.header+get("/")).want(200, "ok")
			u.wantFrom(t, 0, c.addr)
			slow := p.dial()
			for i := range c.header {
				slow.send(c.header[i : i+1])
			}
			slow.send(get("/")).want(200, "ok")
			slow.send(get("/again")).want(200, "ok")
			u.wantFrom(t, 1, c.addr)
			u.wantFrom(t, 2, c.addr)
		})
	}
}

// A body that comes with the header, and goes on after what was read with it.
func TestBodyBehindTheHeaderIsWhole(t *testing.T) {
	const size = 1 << 20
	u := startUpstream(t, func(c *upConn) {
		if c.head() != "" && len(c.body(size)) == size {
			c.say(ok200)
		}
	})
	p := startProxy(t, u, announce)
	p.dial().send(from1+"POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 1048576\r\n\r\n"+strings.Repeat("x", size)).want(200, "ok")
	u.wantFrom(t, 0, "192.0.2.1")
}

// Fields are believed by who the client is, not by who passes it on.
func TestTrustIsInTheClientNotInTheLoadBalancer(t *testing.T) {
	u := startUpstream(t, script(ok200))
	p := startProxy(t, u, func(c *Config) {
		announce(c)
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	})
	const forged = "GET / HTTP/1.1\r\nHost: app.test\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n"
	p.dial().send(from1+forged).want(200, "ok")
	u.wantFrom(t, 0, "192.0.2.1")
	p.dial().send(from2+forged).want(200, "ok")
	u.wantFrom(t, 1, "203.0.113.9, 2001:db8::1")
}

// sayFirst dials and says something before all that the client says, in one
// write with the first of it.
func (p *front) sayFirst(header string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, p.addr)
		return &announcing{Conn: nc, header: header}, err
	}
}

type announcing struct {
	net.Conn
	header string
}

func (c *announcing) Write(p []byte) (int, error) {
	k := len(c.header)
	n, err := c.Conn.Write(append([]byte(c.header), p...))
	c.header = ""
	return max(n-k, 0), err
}

func TestHeaderBeforeHTTP2(t *testing.T) {
	u := startUpstream(t, script(ok200))
	p := startProxy(t, u, func(c *Config) { announce(c); speakHTTP2(c) })
	client := http2Client(t, nil)
	client.Transport.(*http.Transport).DialContext = p.sayFirst(from2)
	for n := range 2 {
		if res, body := p.fetch(client, "GET", "/", nil); res.ProtoMajor != 2 || body != "ok" {
			t.Fatalf("%s %q", res.Proto, body)
		}
		u.wantFrom(t, n, "2001:db8::1")
	}
}

func TestHeaderBeforeTLS(t *testing.T) {
	a := newAuthority(t)
	u := startUpstream(t, script(ok200))
	p := startProxy(t, u, func(c *Config) { announce(c); speakHTTP2(c); a.clientsOverTLS(t, c, false) })
	nc, err := p.sayFirst(from1)(context.Background(), "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	tc := tls.Client(nc, a.client())
	c := &client{Conn: tc, r: bufio.NewReader(tc), t: t}
	c.send(get("/")).want(200, "ok")
	u.wantFrom(t, 0, "192.0.2.1")

	client := http2Client(t, a.client())
	client.Transport.(*http.Transport).DialContext = p.sayFirst(from2)
	res, err := client.Get("https://proxy.test/")
	if err != nil || res.ProtoMajor != 2 {
		t.Fatal(res, err)
	}
	res.Body.Close()
	u.wantFrom(t, 1, "2001:db8::1")
}

// From anyone else a header is no request, and nobody is believed for it.
func TestHeaderFromOthersIsABadRequest(t *testing.T) {
	var refused atomic.Int32
	u := startUpstream(t, script(ok200))
	p := startProxy(t, u, func(c *Config) {
		c.ProxyProtocolFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		c.Refused = func(http1.Refusal) { refused.Add(1) }
	})
	for _, header := range []string{from1, from2} {
		p.dial().send(header+get("/")).want(400, "*")
	}
	p.wantOutcome(1, policy.OutcomeRefused)
	if u.sends() != 0 || refused.Load() != 2 {
		t.Errorf("%d sends, %d refused", u.sends(), refused.Load())
	}
	p.dial().send(get("/")).want(200, "ok")
	u.wantFrom(t, 0, "127.0.0.1")
}

func TestUnixSocketHasNoHeader(t *testing.T) {
	path := t.TempDir() + "/s"
	p := startProxy(t, startUpstream(t, script(ok200)), func(c *Config) { announce(c); c.Listen = append(c.Listen, "unix:"+path) })
	p.dialUnix(path).send(get("/")).want(200, "ok")
}

func TestConnectionWithoutItsHeaderIsClosedAndCounted(t *testing.T) {
	u := startUpstream(t, script(ok200))
	p := startProxy(t, u, func(c *Config) { announce(c); c.ReadHeaderTimeout = 50 * time.Millisecond })
	for _, c := range []struct {
		sent string
		why  proxyproto.Failure
		ends bool // the client's own side
	}{
		{sent: get("/"), why: proxyproto.Missing},
		{sent: "PROXY TCP4 nonsense\r\n", why: proxyproto.Malformed},
		{sent: "PROXY TCP4 " + strings.Repeat("1", 107), why: proxyproto.TooLong},
		{sent: signature + "\x21\x11\xff\xff", why: proxyproto.TooLong},
		{sent: from2[:40], why: proxyproto.TimedOut},
		{sent: "", why: proxyproto.TimedOut},
		{sent: from1[:20], why: proxyproto.Truncated, ends: true},
	} {
		before := p.Stats().HeaderFailures[c.why]
		nc := p.dial().send(c.sent)
		if c.ends {
			nc.closeWrite()
		}
		if rest, _ := nc.rest(); rest != "" {
			t.Errorf("%q is answered with %q", c.sent, rest)
		}
		soon(t, "a failure: "+c.why.String(), func() bool { return p.Stats().HeaderFailures[c.why] == before+1 })
	}
	probe := p.dial() // a check whether the port is open is no failure
	probe.closeWrite()
	probe.wantEnd("")
	soon(t, "the end of all", func() bool { return p.Stats().Connections == 0 })
	total := uint64(0)
	for _, n := range p.Stats().HeaderFailures {
		total += n
	}
	if total != 7 || u.sends() != 0 || p.seen.requests() != 0 {
		t.Errorf("%d failures, %d sends, %d requests", total, u.sends(), p.seen.requests())
	}
}

// A drain does not wait for a header that may never come.
func TestWarningsAboutClientsAreLimitedAndCounted(t *testing.T) {
	log, lines := logLines()
	p := startProxy(t, startUpstream(t, script(ok200)), func(c *Config) { announce(c); c.Log = log })
	const faultLinesPerMinute, clients = 10, 30
	for range clients {
		c := p.dial().send(get("/"))
		_, _ = io.ReadAll(c)
	}
	p.stop()
	warned := strings.Count(lines.String(), `"a connection did not begin with a PROXY protocol header and was closed"`)
	if warned < faultLinesPerMinute || warned > 2*faultLinesPerMinute { // twice, if a minute ended meanwhile
		t.Errorf("%d warnings about %d clients, want %d a minute", warned, clients, faultLinesPerMinute)
	}
	if want := fmt.Sprintf(`"more failures of clients' connections, lines suppressed","count":%d}`, clients-warned); warned == faultLinesPerMinute && !strings.Contains(lines.String(), want) {
		t.Errorf("at the end there is no line %s in %s", want, lines.String())
	}
}

func TestDrainEndsTheWaitForAHeader(t *testing.T) {
	p := startProxy(t, startUpstream(t, script(ok200)), announce)
	c := p.dial()
	soon(t, "the connection", func() bool { return p.Stats().Connections == 1 })
	if err := p.Drain(context.Background()); err != nil {
		t.Error(err)
	}
	c.wantEnd("")
	if n := p.Stats().HeaderFailures[proxyproto.TimedOut]; n != 0 {
		t.Errorf("%d failures", n)
	}
}

// A reload asks those who connect from then on.
func TestReloadAsksForHeaders(t *testing.T) {
	u := startUpstream(t, script(ok200))
	p := startProxy(t, u, nil)
	old := p.dial().send(get("/"))
	old.want(200, "ok")
	c := testConfig(t, "http://"+u.Addr().String(), p.seen)
	announce(c)
	if err := p.Reload(c); err != nil {
		t.Fatal(err)
	}
	old.send(get("/")).want(200, "ok")
	p.dial().send(from1+get("/")).want(200, "ok")
	u.wantFrom(t, 1, "127.0.0.1")
	u.wantFrom(t, 2, "192.0.2.1")
}
