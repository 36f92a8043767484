package tls

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/certs"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

func TestClientsOverTLS(t *testing.T) {
	a := peers.NewAuthority(t)
	u := peers.StartUpstream(t, peers.Script(peers.Bad503, peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) { a.ClientsOverTLS(t, c, false) })
	c := p.DialTLS(a.Client())
	c.Send("GET /a HTTP/1.1\r\nHost: proxy.test\r\n\r\n").Want(200, "ok")
	c.Send("GET /b HTTP/1.1\r\nHost: proxy.test\r\n\r\n").Want(200, "ok")
	if !strings.Contains(u.Head(0), "X-Forwarded-Proto: https\r\n") {
		t.Errorf("the upstream was told %q", u.Head(0))
	}
	if n := u.Sends(); n != 3 {
		t.Errorf("%d sends, want 3", n)
	}
}

func TestUnixSocketStaysPlainBesideTLS(t *testing.T) {
	a := peers.NewAuthority(t)
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		a.ClientsOverTLS(t, c, false)
		c.Listen = append(c.Listen, "unix:"+t.TempDir()+"/s")
	})
	nc, err := net.Dial("unix", p.Addrs()[1].String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c := &peers.Client{Conn: nc, Reader: bufio.NewReader(nc), T: t}
	c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").Want(200, "ok")
}

func TestLargeBodiesOverTLS(t *testing.T) {
	a := peers.NewAuthority(t)
	const size = 3 << 20
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			b := peers.DiscardBody(c, headers)
			c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(b))
			_, _ = c.Conn.Write(b)
		}
	})
	p := proxytest.Start(t, u, func(c *proxy.Config) { a.ClientsOverTLS(t, c, false) })
	client := http.Client{Transport: &http.Transport{TLSClientConfig: a.Client()}}
	defer client.CloseIdleConnections()
	body := strings.Repeat("0123456789abcdef", size/16)
	res, err := client.Post("https://"+p.Addr+"/", "text/plain", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, err := io.ReadAll(res.Body); err != nil || string(got) != body {
		t.Errorf("%d bytes came back (%v), want %d", len(got), err, size)
	}
}

func TestClientWithoutCertificateIsRefused(t *testing.T) {
	a := peers.NewAuthority(t)
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) { a.ClientsOverTLS(t, c, true) })

	tc := tls.Client(p.Dial().Conn, a.Client())
	if err := tc.Handshake(); err == nil { // with TLS 1.3 the client learns of it when it reads
		if _, err = tc.Read(make([]byte, 1)); err == nil {
			t.Fatal("a client without a certificate was served")
		}
	}
	peers.Soon(t, "the failure is counted", func() bool { return p.Stats().HandshakeFailures == 1 })
	if n := u.Sends(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	with := a.Client()
	pair, err := tls.LoadX509KeyPair(a.Issue(t, "caller.test"))
	if err != nil {
		t.Fatal(err)
	}
	with.Certificates = []tls.Certificate{pair}
	p.DialTLS(with).Send("GET / HTTP/1.1\r\nHost: proxy.test\r\n\r\n").Want(200, "ok")
}

func TestPlainHTTPOnTLSPortGets400(t *testing.T) {
	a := peers.NewAuthority(t)
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *proxy.Config) { a.ClientsOverTLS(t, c, false) })
	c := p.Dial().Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	res, body, err := c.Response("GET")
	if err != nil || res.StatusCode != 400 || !strings.Contains(body, "HTTPS") {
		t.Errorf("got %v %q %v, want 400 and a hint", res, body, err)
	}
}

func TestReloadChangesTheCertificateForNewClients(t *testing.T) {
	a := peers.NewAuthority(t)
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) { a.ClientsOverTLS(t, c, false) })
	before := p.DialTLS(a.Client())

	next := *p.Config
	cert, _ := a.IssueSerial(t, "proxy.test", 77)
	conf, err := certs.Load(certs.Files{Cert: cert})
	if err != nil {
		t.Fatal(err)
	}
	next.TLS = conf
	if err := p.Reload(&next); err != nil {
		t.Fatal(err)
	}
	after := p.DialTLS(a.Client())
	if n := after.Conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64(); n != 77 {
		t.Errorf("a new client was shown certificate %d, want 77", n)
	}
	before.Send("GET / HTTP/1.1\r\nHost: proxy.test\r\n\r\n").Want(200, "ok")
}

// A cut response must not look whole: it ends without close_notify.
func TestCutResponseOverTLSIsNotEndedProperly(t *testing.T) {
	a := peers.NewAuthority(t)
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say("HTTP/1.0 200 OK\r\n\r\npart")
		c.Reset()
	})
	p := proxytest.Start(t, u, func(c *proxy.Config) { a.ClientsOverTLS(t, c, false) })
	c := p.DialTLS(a.Client())
	c.Send("GET / HTTP/1.0\r\nHost: proxy.test\r\n\r\n")
	if got, err := c.Rest(); err == nil {
		t.Errorf("%q ended as if it was whole", got)
	}
}

// A client that leaves during a wait ends the wait, also over TLS.
func TestClientOverTLSThatLeavesEndsTheWait(t *testing.T) {
	a := peers.NewAuthority(t)
	u := peers.StartUpstream(t, peers.Script("HTTP/1.1 503 Busy\r\nRetry-After: 20\r\nContent-Length: 0\r\n\r\n", peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) { a.ClientsOverTLS(t, c, false) })
	c := p.DialTLS(a.Client())
	c.Send("GET / HTTP/1.1\r\nHost: proxy.test\r\n\r\n")
	peers.Soon(t, "the wait began", func() bool { defer p.Seen.Lock()(); return p.Seen.Waiting == 1 })
	c.Conn.(*tls.Conn).NetConn().Close()
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeClientGone {
		t.Errorf("outcome %v, want %v", o, policy.OutcomeClientGone)
	}
}

// A client that connects and never begins the handshake is closed, and does not delay a drain.
func TestSilentClientDoesNotStayInTheHandshake(t *testing.T) {
	a := peers.NewAuthority(t)
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *proxy.Config) {
		a.ClientsOverTLS(t, c, false)
		c.ReadHeaderTimeout = 50 * time.Millisecond
	})
	c := p.Dial()
	if _, err := c.Rest(); err != nil && rawsocket.IsTimeout(err) {
		t.Fatal("the connection was still open after a minute")
	}
}

func TestDrainEndsIdleClientsOverTLS(t *testing.T) {
	a := peers.NewAuthority(t)
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *proxy.Config) {
		a.ClientsOverTLS(t, c, false)
		c.DrainTimeout = time.Minute
		c.ReadHeaderTimeout = time.Hour
	})
	used := p.DialTLS(a.Client())
	used.Send("GET / HTTP/1.1\r\nHost: proxy.test\r\n\r\n").Want(200, "ok")
	silent := p.Dial()
	peers.Soon(t, "both are connected", func() bool { return p.Stats().Connections == 2 })
	if err := p.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := used.Rest(); err != nil {
		t.Errorf("the idle client's connection ended with %v, want an orderly end", err)
	}
	_, _ = silent.Rest()
}
