package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/certs"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// clientsOverTLS makes c's clients connect over TLS with a certificate for proxy.test, and with
// one of their own if required.
func (a *authority) clientsOverTLS(t *testing.T, c *Config, clients bool) {
	t.Helper()
	var f certs.Files
	f.Cert, _ = a.issue(t, "proxy.test")
	if clients {
		f.ClientCA = a.dir + "/ca.pem"
	}
	conf, err := certs.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	c.TLS = conf
}

// client returns the TLS configuration of a client of proxy.test that trusts the authority.
func (a *authority) client() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{RootCAs: roots, ServerName: "proxy.test"}
}

// dialTLS opens a client's connection over TLS; the handshake is done.
func (p *front) dialTLS(conf *tls.Config) *client {
	p.t.Helper()
	c := p.dial()
	tc := tls.Client(c.Conn, conf)
	if err := tc.Handshake(); err != nil {
		p.t.Fatalf("handshake: %v", err)
	}
	return &client{Conn: tc, r: bufio.NewReader(tc), t: p.t}
}

func TestClientsOverTLS(t *testing.T) {
	a := newAuthority(t)
	u := startUpstream(t, script(bad503, ok200))
	p := startProxy(t, u, func(c *Config) { a.clientsOverTLS(t, c, false) })
	c := p.dialTLS(a.client())
	c.send("GET /a HTTP/1.1\r\nHost: proxy.test\r\n\r\n").want(200, "ok")
	c.send("GET /b HTTP/1.1\r\nHost: proxy.test\r\n\r\n").want(200, "ok")
	if !strings.Contains(u.head(0), "X-Forwarded-Proto: https\r\n") {
		t.Errorf("the upstream was told %q", u.head(0))
	}
	if n := u.sends(); n != 3 {
		t.Errorf("%d sends, want 3", n)
	}
}

func TestUnixSocketStaysPlainBesideTLS(t *testing.T) {
	a := newAuthority(t)
	u := startUpstream(t, script(ok200))
	p := startProxy(t, u, func(c *Config) {
		a.clientsOverTLS(t, c, false)
		c.Listen = append(c.Listen, "unix:"+t.TempDir()+"/s")
	})
	nc, err := net.Dial("unix", p.Addrs()[1].String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c := &client{Conn: nc, r: bufio.NewReader(nc), t: t}
	c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").want(200, "ok")
}

func TestLargeBodiesOverTLS(t *testing.T) {
	a := newAuthority(t)
	const size = 3 << 20
	u := startUpstream(t, func(c *upConn) {
		for headers := c.head(); headers != ""; headers = c.head() {
			b := discardBody(c, headers)
			c.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(b))
			_, _ = c.Conn.Write(b)
		}
	})
	p := startProxy(t, u, func(c *Config) { a.clientsOverTLS(t, c, false) })
	client := http.Client{Transport: &http.Transport{TLSClientConfig: a.client()}}
	defer client.CloseIdleConnections()
	body := strings.Repeat("0123456789abcdef", size/16)
	res, err := client.Post("https://"+p.addr+"/", "text/plain", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, err := io.ReadAll(res.Body); err != nil || string(got) != body {
		t.Errorf("%d bytes came back (%v), want %d", len(got), err, size)
	}
}

func TestClientWithoutCertificateIsRefused(t *testing.T) {
	a := newAuthority(t)
	u := startUpstream(t, script(ok200))
	p := startProxy(t, u, func(c *Config) { a.clientsOverTLS(t, c, true) })

	tc := tls.Client(p.dial().Conn, a.client())
	if err := tc.Handshake(); err == nil { // with TLS 1.3 the client learns of it when it reads
		if _, err = tc.Read(make([]byte, 1)); err == nil {
			t.Fatal("a client without a certificate was served")
		}
	}
	eventually(t, "the failure is counted", func() bool { return p.Stats().HandshakeFailures == 1 })
	if n := u.sends(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	with := a.client()
	pair, err := tls.LoadX509KeyPair(a.issue(t, "caller.test"))
	if err != nil {
		t.Fatal(err)
	}
	with.Certificates = []tls.Certificate{pair}
	p.dialTLS(with).send("GET / HTTP/1.1\r\nHost: proxy.test\r\n\r\n").want(200, "ok")
}

func TestPlainHTTPOnTLSPortGets400(t *testing.T) {
	a := newAuthority(t)
	p := startProxy(t, startUpstream(t, script(ok200)), func(c *Config) { a.clientsOverTLS(t, c, false) })
	c := p.dial().send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	res, body, err := c.response("GET")
	if err != nil || res.StatusCode != 400 || !strings.Contains(body, "HTTPS") {
		t.Errorf("got %v %q %v, want 400 and a hint", res, body, err)
	}
}

func TestReloadChangesTheCertificateForNewClients(t *testing.T) {
	a := newAuthority(t)
	u := startUpstream(t, script(ok200))
	p := startProxy(t, u, func(c *Config) { a.clientsOverTLS(t, c, false) })
	before := p.dialTLS(a.client())

	next := *p.config
	cert, _ := a.issueSerial(t, "proxy.test", 77)
	conf, err := certs.Load(certs.Files{Cert: cert})
	if err != nil {
		t.Fatal(err)
	}
	next.TLS = conf
	if err := p.Reload(&next); err != nil {
		t.Fatal(err)
	}
	after := p.dialTLS(a.client())
	if n := after.Conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64(); n != 77 {
		t.Errorf("a new client was shown certificate %d, want 77", n)
	}
	before.send("GET / HTTP/1.1\r\nHost: proxy.test\r\n\r\n").want(200, "ok")
}

// A cut response must not look whole: it ends without close_notify.
func TestCutResponseOverTLSIsNotEndedProperly(t *testing.T) {
	a := newAuthority(t)
	u := startUpstream(t, func(c *upConn) {
		c.head()
		c.say("HTTP/1.0 200 OK\r\n\r\npart")
		c.reset()
	})
	p := startProxy(t, u, func(c *Config) { a.clientsOverTLS(t, c, false) })
	c := p.dialTLS(a.client())
	c.send("GET / HTTP/1.0\r\nHost: proxy.test\r\n\r\n")
	if got, err := c.rest(); err == nil {
		t.Errorf("%q ended as if it was whole", got)
	}
}

// A client that leaves during a wait ends the wait, also over TLS.
func TestClientOverTLSThatLeavesEndsTheWait(t *testing.T) {
	a := newAuthority(t)
	u := startUpstream(t, script("HTTP/1.1 503 Busy\r\nRetry-After: 20\r\nContent-Length: 0\r\n\r\n", ok200))
	p := startProxy(t, u, func(c *Config) { a.clientsOverTLS(t, c, false) })
	c := p.dialTLS(a.client())
	c.send("GET / HTTP/1.1\r\nHost: proxy.test\r\n\r\n")
	eventually(t, "the wait began", func() bool { defer p.seen.lock()(); return p.seen.waiting == 1 })
	c.Conn.(*tls.Conn).NetConn().Close()
	if o := p.seen.outcome(t, 0); o != policy.OutcomeClientGone {
		t.Errorf("outcome %v, want %v", o, policy.OutcomeClientGone)
	}
}

// A client that connects and never begins the handshake is closed, and does not delay a drain.
func TestSilentClientDoesNotStayInTheHandshake(t *testing.T) {
	a := newAuthority(t)
	p := startProxy(t, startUpstream(t, script(ok200)), func(c *Config) {
		a.clientsOverTLS(t, c, false)
		c.ReadHeaderTimeout = 50 * time.Millisecond
	})
	c := p.dial()
	if _, err := c.rest(); err != nil && rawsocket.IsTimeout(err) {
		t.Fatal("the connection was still open after a minute")
	}
}

func TestDrainEndsIdleClientsOverTLS(t *testing.T) {
	a := newAuthority(t)
	p := startProxy(t, startUpstream(t, script(ok200)), func(c *Config) {
		a.clientsOverTLS(t, c, false)
		c.DrainTimeout = time.Minute
		c.ReadHeaderTimeout = time.Hour
	})
	used := p.dialTLS(a.client())
	used.send("GET / HTTP/1.1\r\nHost: proxy.test\r\n\r\n").want(200, "ok")
	silent := p.dial()
	eventually(t, "both are connected", func() bool { return p.Stats().Connections == 2 })
	if err := p.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := used.rest(); err != nil {
		t.Errorf("the idle client's connection ended with %v, want an orderly end", err)
	}
	_, _ = silent.rest()
}

// eventually polls until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("within a minute it never came that %s", what)
		}
	}
}
