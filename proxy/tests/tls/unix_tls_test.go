package tls

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/route"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

func TestUpstreamOverTLS(t *testing.T) {
	states := make(chan tls.ConnectionState, 10)
	p, u := proxytest.SecureUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			states <- c.Conn.(*tls.Conn).ConnectionState()
			body := peers.DiscardBody(c, headers)
			c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
	}, nil, upstream.TLSFiles{}, nil)
	c := p.Dial()
	large := string(peers.RandomBytes(1 << 20))
	for _, body := range []string{"", "hello", large} {
		go func() { _, _ = io.WriteString(c.Conn, peers.Post(body)) }()
		c.Want(200, body)
		s := <-states
		if s.ServerName != "secure.test" || s.NegotiatedProtocol != "http/1.1" {
			t.Errorf("SNI %q, ALPN %q; want the upstream's name (the Host is app.test) and http/1.1", s.ServerName, s.NegotiatedProtocol)
		}
	}
	if u.Connections() != 1 {
		t.Errorf("%d connections, want 1 kept alive", u.Connections())
	}
}

// The deadlines by which a slow answer is waited for do no harm to TLS.
func TestASlowAnswerOverTLS(t *testing.T) {
	p, _ := proxytest.SecureUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			peers.DiscardBody(c, headers)
			time.Sleep(2 * downstream.PollEvery)
			c.Say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsl")
			time.Sleep(2 * downstream.PollEvery)
			c.Say("ow")
		}
	}, nil, upstream.TLSFiles{}, nil)
	c := p.Dial()
	for range 2 {
		c.Send(peers.Post(strings.Repeat("x", 1000))).Want(200, "slow")
	}
}

func TestTLSServerNameAndClientCertificate(t *testing.T) {
	p, _ := proxytest.SecureUpstream(t, func(c *peers.Conn) {
		c.Head()
		who := c.Conn.(*tls.Conn).ConnectionState()
		c.Say("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s %s", who.PeerCertificates[0].Subject.CommonName, who.ServerName)
		_ = c.Conn.Close()
	}, func(s *tls.Config) {
		s.ClientAuth = tls.RequireAndVerifyClientCert
	}, upstream.TLSFiles{Cert: "client.test", ServerName: "secure.test"}, nil)
	p.Dial().Send(peers.Get("/")).Want(200, "client.test secure.test")
}

func TestAFailedHandshakeIsNotSent(t *testing.T) {
	cases := map[string]struct {
		server func(*tls.Config)
		files  upstream.TLSFiles
	}{
		"old version":        {func(s *tls.Config) { s.MaxVersion = tls.VersionTLS11 }, upstream.TLSFiles{}},
		"no common protocol": {func(s *tls.Config) { s.NextProtos = []string{"spdy/3.1"} }, upstream.TLSFiles{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, u := proxytest.SecureUpstream(t, func(c *peers.Conn) { c.Head() }, tc.server, tc.files, nil)
			res := p.Dial().Send(peers.Post("x")).Want(502, "*")
			if got := res.Header.Get("X-Retryproxy-Attempts"); got != "4" || u.Sends() != 0 {
				t.Errorf("attempts %q, %d sends; want 4, none", got, u.Sends())
			}
			p.WantOutcome(0, policy.GaveUp(policy.ReasonRetriesExhausted))
			if got := fmt.Sprint(p.Seen.Classes, p.Seen.Retries); got != "[not_sent not_sent not_sent not_sent] [tls_failure tls_failure tls_failure]" {
				t.Errorf("classes and reasons %s", got)
			}
		})
	}
}

// cutTLS closes the connection below TLS, without close_notify.
func cutTLS(c *peers.Conn) { _ = c.Conn.(*tls.Conn).NetConn().Close() }

func TestATLSEndWithoutCloseNotifyIsIncomplete(t *testing.T) {
	for _, whole := range []bool{true, false} {
		for name, headers := range map[string]string{"close": "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", "length": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"} {
			t.Run(fmt.Sprint(name, " whole=", whole), func(t *testing.T) {
				p, _ := proxytest.SecureUpstream(t, func(c *peers.Conn) {
					c.Head()
					c.Say(headers + "half")
					if whole {
						c.Say(" full")
						_ = c.Conn.Close() // says close_notify
					} else {
						cutTLS(c)
					}
				}, nil, upstream.TLSFiles{}, nil)
				_, body, err := p.Dial().Send(peers.Get("/")).Response("GET")
				if whole {
					if body != "half full" || err != nil {
						t.Errorf("got %q, %v", body, err)
					}
					p.WantOutcome(0, policy.OutcomeSuccess)
					return
				}
				if body != "half" || err != io.ErrUnexpectedEOF {
					t.Errorf("got %q, %v; want \"half\" and an unexpected end", body, err)
				}
				p.WantOutcome(0, policy.OutcomeResponseBroken)
			})
		}
	}
}

func TestACutUploadDoesNotEndTLSInOrder(t *testing.T) {
	end := make(chan error, 1)
	begun := make(chan struct{})
	p, _ := proxytest.SecureUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Body(4)
		close(begun)
		_, err := c.EndOfInput()
		end <- err
	}, nil, upstream.TLSFiles{}, nil)
	c := p.Dial().Send(peers.RequestText("PUT / HTTP/1.1", "Host: a", "Content-Length: 100") + "half")
	peers.Within(t, "the begin of the body", begun)
	c.Reset()
	if err := peers.Within(t, "the end upstream", end); err == nil {
		t.Error("the upstream saw an orderly end")
	}
	p.WantOutcome(0, policy.OutcomeClientGone)
}

func TestAnIdleCloseOverTLSCostsNoError(t *testing.T) {
	for _, polite := range []bool{false, true} {
		closed := make(chan struct{})
		p, u := proxytest.SecureUpstream(t, func(c *peers.Conn) {
			c.Head()
			c.Say(peers.OK200)
			if c.N > 1 {
				_, _ = c.EndOfInput()
				return
			}
			time.Sleep(20 * time.Millisecond)
			if polite {
				_ = c.Conn.Close()
			} else {
				cutTLS(c)
			}
			close(closed)
		}, nil, upstream.TLSFiles{}, func(c *proxy.Config) { c.Default.Policy.MaxRetries = 0 })
		c := p.Dial()
		c.Send(peers.Get("/")).Want(200, "ok")
		peers.Within(t, "the idle close", closed)
		c.Send(peers.Post("x")).Want(200, "ok")
		if u.Connections() != 2 {
			t.Errorf("%d connections, want 2", u.Connections())
		}
	}
}

func TestATunnelOverTLSGoesOnAfterAHalfClose(t *testing.T) {
	p, _ := proxytest.SecureUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say("%s", peers.Switching101)
		if got, err := c.EndOfInput(); got != "bye" || err != nil {
			t.Errorf("upstream got %q, %v", got, err)
		}
		c.Say("still here")
	}, nil, upstream.TLSFiles{}, peers.AddNothingToResponses)
	c := p.Dial().Send(peers.UpgradeRequest)
	c.WantRaw(peers.Switched)
	c.Send("bye").CloseWrite()
	if s, _ := c.Rest(); s != "still here" {
		t.Errorf("the client got %q", s)
	}
}

func TestUpstreamOnAUnixSocket(t *testing.T) {
	closed := make(chan struct{})
	p, u := proxytest.StartFor(t, true, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			body := peers.DiscardBody(c, headers)
			c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			if c.N == 1 && string(body) == "last" {
				_ = c.Close()
				close(closed)
				return
			}
		}
	}, func(c *proxy.Config) { c.Default.Forward.UpstreamHost = c.Default.Upstream.Host })
	c := p.Dial()
	c.Send(peers.Get("/")).Want(200, "")
	c.Send(peers.Post("hello")).Want(200, "hello")
	c.Send(peers.RequestText("GET / HTTP/1.0", "Connection: keep-alive")).Want(200, "")
	if got := peers.FieldOf(u.Head(2), "Host"); got != "localhost" {
		t.Errorf("Host %q", got)
	}
	if u.Connections() != 1 {
		t.Errorf("%d connections, want 1", u.Connections())
	}
	c.Send(peers.Post("last")).Want(200, "last") // then the upstream closes
	<-closed                                     // a POST sent before that might have been acted on
	c.Send(peers.Post("again")).Want(200, "again")
	if u.Connections() != 2 || p.Seen.Retried() != 0 {
		t.Errorf("%d connections, %d retries; want 2, none", u.Connections(), p.Seen.Retried())
	}
	u.Stop()
	c.Send(peers.Post("")).Want(502, "*") // the socket is gone: not sent, so repeated
	p.WantOutcome(5, policy.GaveUp(policy.ReasonRetriesExhausted))
}

func TestListeningOnAUnixSocket(t *testing.T) {
	path := t.TempDir() + "/in.sock"
	u := peers.StartUpstream(t, peers.Script(peers.OK200, peers.OK200, peers.OK200, peers.Bad503))
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		c.Listen = []string{"unix:" + path}
		c.Default.Policy.Backoff = peers.FixedWait(t, 20*time.Second)
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	})
	c := p.DialUnix(path)
	c.Send(peers.Get("/")+peers.Get("/")).Want(200, "ok")
	c.Want(200, "ok")
	c.Send(peers.RequestText("GET / HTTP/1.1", "Host: a", "X-Forwarded-For: 1.1.1.1")).Want(200, "ok")
	if strings.Contains(u.Head(0), "X-Forwarded-For") || peers.FieldOf(u.Head(2), "X-Forwarded-For") != "1.1.1.1" {
		t.Errorf("a peer without an address: upstream got %q and %q", u.Head(0), u.Head(2))
	}
	c.Send("GET /\n\n").Want(400, "*")
	c.WantEnd("")

	c = p.DialUnix(path).Send(peers.Get("/"))
	peers.Soon(t, "the wait", func() bool { return p.Seen.WaitsBegun() > 0 })
	left := time.Now()
	_ = c.Close()
	p.WantOutcome(4, policy.OutcomeClientGone)
	if d := time.Since(left); d > 3*time.Second {
		t.Errorf("the client's leaving was noticed after %v", d)
	}
}

func TestAUnixSocketLeftBehindIsTakenOver(t *testing.T) {
	path := t.TempDir() + "/in.sock"
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	config := peers.NewConfig(t, "http://"+u.Addr().String(), &peers.Recorder{})
	busy, err := proxy.New(config)
	if err != nil {
		t.Fatal(err)
	}
	config.Listen = []string{"unix:" + path}
	if err := busy.Listen(); err == nil {
		t.Fatal("a socket that somebody listens on was taken over")
	}
	left.SetUnlinkOnClose(false)
	_ = left.Close()
	p := proxytest.Start(t, u, func(c *proxy.Config) { c.Listen = []string{"unix:" + path} })
	p.DialUnix(path).Send(peers.Get("/")).Want(200, "ok")

	file := t.TempDir() + "/file"
	_ = os.WriteFile(file, []byte("precious"), 0o600)
	config.Listen = []string{"unix:" + file}
	if err := busy.Listen(); err == nil {
		t.Error("a file that is no socket was taken over")
	}
	if b, _ := os.ReadFile(file); string(b) != "precious" {
		t.Errorf("the file now holds %q", b)
	}
}

func TestAListenerOfARoutesOwn(t *testing.T) {
	main, other := peers.StartUpstream(t, peers.Script(peers.OK200)), peers.StartUpstream(t, peers.Script(strings.Replace(peers.OK200, "ok", "no", 1)))
	p := proxytest.Start(t, main, func(c *proxy.Config) {
		second, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free, most likely still so below
		if err != nil {
			t.Fatal(err)
		}
		addr := second.Addr().String()
		_ = second.Close()
		c.Listen = append(c.Listen, addr)
		r := c.Default
		r.Name, r.Match = "own", route.Match{Listen: addr}
		if r.Upstream, err = upstream.ParseTarget("http://" + other.Addr().String()); err != nil {
			t.Fatal(err)
		}
		c.Routes = []proxy.Route{r}
	})
	p.Dial().Send(peers.Get("/")).Want(200, "ok")
	second := *p
	second.Addr = p.Addrs()[1].String()
	second.Dial().Send(peers.Get("/")).Want(200, "no")
	if main.Sends() != 1 || other.Sends() != 1 {
		t.Errorf("%d and %d sends, want 1 and 1", main.Sends(), other.Sends())
	}
}

// A response to an HTTP/1.0 client over TCP that is cut off is reset, see
// TestACutResponseLooksCut. Over a unix socket only framed bodies can show it.
func TestACutResponseOverAUnixSocket(t *testing.T) {
	path := t.TempDir() + "/in.sock"
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
	})
	p := proxytest.Start(t, u, func(c *proxy.Config) { c.Listen = []string{"unix:" + path} })
	c := p.DialUnix(path).Send(peers.Get("/"))
	res, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(res.Body); string(b) != "half" || err != io.ErrUnexpectedEOF {
		t.Errorf("got %q, %v", b, err)
	}
	p.WantOutcome(0, policy.OutcomeResponseBroken)
}
