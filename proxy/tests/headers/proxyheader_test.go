package headers

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
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/proxyproto"
)

func TestTheClientsAddressComesFromTheProxyHeader(t *testing.T) {
	for name, c := range map[string]struct{ header, addr string }{
		"v1":           {peers.ProxyHeader1, "192.0.2.1"},
		"v1, unknown":  {"PROXY UNKNOWN\r\n", "127.0.0.1"},
		"v2":           {peers.ProxyHeader2, "2001:db8::1"},
		"v2, LOCAL":    {peers.LocalProxyHeader2, "127.0.0.1"},
		"v2, no names": {peers.ProxySignature + "\x21\x00\x00\x00", "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			u := peers.StartUpstream(t, peers.Script(peers.OK200))
			p := proxytest.Start(t, u, peers.ExpectProxyHeader)
			p.Dial().Send(c.header+peers.Get("/")).Want(200, "ok")
			u.WantFrom(t, 0, c.addr)
			slow := p.Dial()
			for i := range c.header {
				slow.Send(c.header[i : i+1])
			}
			slow.Send(peers.Get("/")).Want(200, "ok")
			slow.Send(peers.Get("/again")).Want(200, "ok")
			u.WantFrom(t, 1, c.addr)
			u.WantFrom(t, 2, c.addr)
		})
	}
}

// A body that comes with the header, and goes on after what was read with it.
func TestBodyBehindTheHeaderIsWhole(t *testing.T) {
	const size = 1 << 20
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		if c.Head() != "" && len(c.Body(size)) == size {
			c.Say(peers.OK200)
		}
	})
	p := proxytest.Start(t, u, peers.ExpectProxyHeader)
	p.Dial().Send(peers.ProxyHeader1+"POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 1048576\r\n\r\n"+strings.Repeat("x", size)).Want(200, "ok")
	u.WantFrom(t, 0, "192.0.2.1")
}

// Fields are believed by who the client is, not by who passes it on.
func TestTrustIsInTheClientNotInTheLoadBalancer(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		peers.ExpectProxyHeader(c)
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	})
	const forged = "GET / HTTP/1.1\r\nHost: app.test\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n"
	p.Dial().Send(peers.ProxyHeader1+forged).Want(200, "ok")
	u.WantFrom(t, 0, "192.0.2.1")
	p.Dial().Send(peers.ProxyHeader2+forged).Want(200, "ok")
	u.WantFrom(t, 1, "203.0.113.9, 2001:db8::1")
}

// sayFirst dials and says something before all that the client says, in one
// write with the first of it.
func sayFirst(p *peers.Front, header string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, p.Addr)
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
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) { peers.ExpectProxyHeader(c); peers.SpeakHTTP2(c) })
	client := peers.HTTP2Client(t, nil)
	client.Transport.(*http.Transport).DialContext = sayFirst(p.Front, peers.ProxyHeader2)
	for n := range 2 {
		if res, body := p.Fetch(client, "GET", "/", nil); res.ProtoMajor != 2 || body != "ok" {
			t.Fatalf("%s %q", res.Proto, body)
		}
		u.WantFrom(t, n, "2001:db8::1")
	}
}

func TestHeaderBeforeTLS(t *testing.T) {
	a := peers.NewAuthority(t)
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) { peers.ExpectProxyHeader(c); peers.SpeakHTTP2(c); a.ClientsOverTLS(t, c, false) })
	nc, err := sayFirst(p.Front, peers.ProxyHeader1)(context.Background(), "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	tc := tls.Client(nc, a.Client())
	c := &peers.Client{Conn: tc, Reader: bufio.NewReader(tc), T: t}
	c.Send(peers.Get("/")).Want(200, "ok")
	u.WantFrom(t, 0, "192.0.2.1")

	client := peers.HTTP2Client(t, a.Client())
	client.Transport.(*http.Transport).DialContext = sayFirst(p.Front, peers.ProxyHeader2)
	res, err := client.Get("https://proxy.test/")
	if err != nil || res.ProtoMajor != 2 {
		t.Fatal(res, err)
	}
	res.Body.Close()
	u.WantFrom(t, 1, "2001:db8::1")
}

// From anyone else a header is no request, and nobody is believed for it.
func TestHeaderFromOthersIsABadRequest(t *testing.T) {
	var refused atomic.Int32
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		c.ProxyProtocolFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		c.Refused = func(http1.Refusal) { refused.Add(1) }
	})
	for _, header := range []string{peers.ProxyHeader1, peers.ProxyHeader2} {
		p.Dial().Send(header+peers.Get("/")).Want(400, "*")
	}
	p.WantOutcome(1, policy.OutcomeRefused)
	if u.Sends() != 0 || refused.Load() != 2 {
		t.Errorf("%d sends, %d refused", u.Sends(), refused.Load())
	}
	p.Dial().Send(peers.Get("/")).Want(200, "ok")
	u.WantFrom(t, 0, "127.0.0.1")
}

func TestUnixSocketHasNoHeader(t *testing.T) {
	path := t.TempDir() + "/s"
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *proxy.Config) { peers.ExpectProxyHeader(c); c.Listen = append(c.Listen, "unix:"+path) })
	p.DialUnix(path).Send(peers.Get("/")).Want(200, "ok")
}

func TestConnectionWithoutItsHeaderIsClosedAndCounted(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	patient := proxytest.Start(t, u, peers.ExpectProxyHeader)
	hasty := proxytest.Start(t, u, func(c *proxy.Config) { peers.ExpectProxyHeader(c); c.ReadHeaderTimeout = 50 * time.Millisecond })
	for _, c := range []struct {
		sent string
		why  proxyproto.Failure
		ends bool // the client's own side
	}{
		{sent: peers.Get("/"), why: proxyproto.Missing},
		{sent: "PROXY TCP4 nonsense\r\n", why: proxyproto.Malformed},
		{sent: "PROXY TCP4 " + strings.Repeat("1", 107), why: proxyproto.TooLong},
		{sent: peers.ProxySignature + "\x21\x11\xff\xff", why: proxyproto.TooLong},
		{sent: peers.ProxyHeader2[:40], why: proxyproto.TimedOut},
		{sent: "", why: proxyproto.TimedOut},
		{sent: peers.ProxyHeader1[:20], why: proxyproto.Truncated, ends: true},
	} {
		p := patient
		if c.why == proxyproto.TimedOut {
			p = hasty
		}
		before := p.Stats().HeaderFailures[c.why]
		nc := p.Dial().Send(c.sent)
		if c.ends {
			nc.CloseWrite()
		}
		if rest, _ := nc.Rest(); rest != "" {
			t.Errorf("%q is answered with %q", c.sent, rest)
		}
		peers.Soon(t, "a failure: "+c.why.String(), func() bool { return p.Stats().HeaderFailures[c.why] == before+1 })
	}
	probe := patient.Dial() // a check whether the port is open is no failure
	probe.CloseWrite()
	probe.WantEnd("")
	for p, want := range map[*proxytest.Proxy]uint64{patient: 5, hasty: 2} {
		peers.Soon(t, "the end of all", func() bool { return p.Stats().Connections == 0 })
		total := uint64(0)
		for _, n := range p.Stats().HeaderFailures {
			total += n
		}
		if total != want || u.Sends() != 0 || p.Seen.Requests() != 0 {
			t.Errorf("%d failures, %d sends, %d requests", total, u.Sends(), p.Seen.Requests())
		}
	}
}

// A drain does not wait for a header that may never come.
func TestWarningsAboutClientsAreLimitedAndCounted(t *testing.T) {
	log, lines := peers.LogLines()
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *proxy.Config) { peers.ExpectProxyHeader(c); c.Log = log })
	const faultLinesPerMinute, clients = 10, 30
	for range clients {
		c := p.Dial().Send(peers.Get("/"))
		_, _ = io.ReadAll(c)
	}
	p.Stop()
	warned := strings.Count(lines.String(), `"a connection did not begin with a PROXY protocol header and was closed"`)
	if warned < faultLinesPerMinute || warned > 2*faultLinesPerMinute { // twice, if a minute ended meanwhile
		t.Errorf("%d warnings about %d clients, want %d a minute", warned, clients, faultLinesPerMinute)
	}
	if want := fmt.Sprintf(`"more failures of clients' connections, lines suppressed","count":%d}`, clients-warned); warned == faultLinesPerMinute && !strings.Contains(lines.String(), want) {
		t.Errorf("at the end there is no line %s in %s", want, lines.String())
	}
}

func TestDrainEndsTheWaitForAHeader(t *testing.T) {
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), peers.ExpectProxyHeader)
	c := p.Dial()
	peers.Soon(t, "the connection", func() bool { return p.Stats().Connections == 1 })
	if err := p.Drain(context.Background()); err != nil {
		t.Error(err)
	}
	c.WantEnd("")
	if n := p.Stats().HeaderFailures[proxyproto.TimedOut]; n != 0 {
		t.Errorf("%d failures", n)
	}
}

// A reload asks those who connect from then on.
func TestReloadAsksForHeaders(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, nil)
	old := p.Dial().Send(peers.Get("/"))
	old.Want(200, "ok")
	c := peers.NewConfig(t, "http://"+u.Addr().String(), p.Seen)
	peers.ExpectProxyHeader(c)
	if err := p.Reload(c); err != nil {
		t.Fatal(err)
	}
	old.Send(peers.Get("/")).Want(200, "ok")
	p.Dial().Send(peers.ProxyHeader1+peers.Get("/")).Want(200, "ok")
	u.WantFrom(t, 1, "127.0.0.1")
	u.WantFrom(t, 2, "192.0.2.1")
}
