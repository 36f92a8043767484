package proxy

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/route"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// authority signs the certificates of a test.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, _ = x509.ParseCertificate(der)
	a.write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) write(t testing.TB, name, kind string, der []byte) string {
	t.Helper()
	path := a.dir + "/" + name
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// issue makes a certificate for name and gives the files of it and of its key.
func (a *authority) issue(t testing.TB, name string) (certFile, keyFile string) {
	t.Helper()
	return a.issueSerial(t, name, 2)
}

func (a *authority) issueSerial(t testing.TB, name string, serial int64) (certFile, keyFile string) {
	t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, _ := x509.MarshalPKCS8PrivateKey(key)
	return a.write(t, name+".pem", "CERTIFICATE", der), a.write(t, name+".key", "PRIVATE KEY", private)
}

// secureUpstream is an upstream behind TLS for the name secure.test, and a
// proxy in front of it.
func secureUpstream(t *testing.T, handle func(c *upConn), server func(*tls.Config), files upstream.TLSFiles, change func(*Config)) (*testProxy, *fakeUpstream) {
	t.Helper()
	a := newAuthority(t)
	pair, err := tls.LoadX509KeyPair(a.issue(t, "secure.test"))
	if err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}, ClientCAs: x509.NewCertPool()}
	conf.ClientCAs.AddCert(a.cert)
	if server != nil {
		server(conf)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := serveListener(t, tls.NewListener(l, conf), handle)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if files.Cert != "" {
		files.Cert, _ = a.issue(t, files.Cert)
	}
	if files.CA == "" {
		files.CA = a.dir + "/ca.pem"
	}
	return startProxyTo(t, "https://secure.test:"+port, func(c *Config) {
		if err := c.Default.Upstream.UseTLS(files); err != nil {
			t.Fatal(err)
		}
		c.Default.Upstream.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
		if change != nil {
			change(c)
		}
	}), u
}

func TestUpstreamOverTLS(t *testing.T) {
	states := make(chan tls.ConnectionState, 10)
	p, u := secureUpstream(t, func(c *upConn) {
		for headers := c.head(); headers != ""; headers = c.head() {
			states <- c.Conn.(*tls.Conn).ConnectionState()
			body := discardBody(c, headers)
			c.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
	}, nil, upstream.TLSFiles{}, nil)
	c := p.dial()
	large := string(randomBytes(1 << 20))
	for _, body := range []string{"", "hello", large} {
		go func() { _, _ = io.WriteString(c.Conn, post(body)) }()
		c.want(200, body)
		s := <-states
		if s.ServerName != "secure.test" || s.NegotiatedProtocol != "http/1.1" {
			t.Errorf("SNI %q, ALPN %q; want the upstream's name (the Host is app.test) and http/1.1", s.ServerName, s.NegotiatedProtocol)
		}
	}
	if u.connections() != 1 {
		t.Errorf("%d connections, want 1 kept alive", u.connections())
	}
}

// The deadlines by which a slow answer is waited for do no harm to TLS.
func TestASlowAnswerOverTLS(t *testing.T) {
	p, _ := secureUpstream(t, func(c *upConn) {
		for headers := c.head(); headers != ""; headers = c.head() {
			discardBody(c, headers)
			time.Sleep(2 * downstream.PollEvery)
			c.say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsl")
			time.Sleep(2 * downstream.PollEvery)
			c.say("ow")
		}
	}, nil, upstream.TLSFiles{}, nil)
	c := p.dial()
	for range 2 {
		c.send(post(strings.Repeat("x", 1000))).want(200, "slow")
	}
}

func TestTLSServerNameAndClientCertificate(t *testing.T) {
	p, _ := secureUpstream(t, func(c *upConn) {
		c.head()
		who := c.Conn.(*tls.Conn).ConnectionState()
		c.say("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s %s", who.PeerCertificates[0].Subject.CommonName, who.ServerName)
		_ = c.Conn.Close()
	}, func(s *tls.Config) {
		s.ClientAuth = tls.RequireAndVerifyClientCert
	}, upstream.TLSFiles{Cert: "client.test", ServerName: "secure.test"}, nil)
	p.dial().send(get("/")).want(200, "client.test secure.test")
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
			p, u := secureUpstream(t, func(c *upConn) { c.head() }, tc.server, tc.files, nil)
			res := p.dial().send(post("x")).want(502, "*")
			if got := res.Header.Get("X-Retryproxy-Attempts"); got != "4" || u.sends() != 0 {
				t.Errorf("attempts %q, %d sends; want 4, none", got, u.sends())
			}
			p.wantOutcome(0, policy.GaveUp(policy.ReasonRetriesExhausted))
			if got := fmt.Sprint(p.seen.classes, p.seen.retries); got != "[not_sent not_sent not_sent not_sent] [tls_failure tls_failure tls_failure]" {
				t.Errorf("classes and reasons %s", got)
			}
		})
	}
}

// cutTLS closes the connection below TLS, without close_notify.
func (c *upConn) cutTLS() { _ = c.Conn.(*tls.Conn).NetConn().Close() }

func TestATLSEndWithoutCloseNotifyIsIncomplete(t *testing.T) {
	for _, whole := range []bool{true, false} {
		for name, headers := range map[string]string{"close": "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", "length": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"} {
			t.Run(fmt.Sprint(name, " whole=", whole), func(t *testing.T) {
				p, _ := secureUpstream(t, func(c *upConn) {
					c.head()
					c.say(headers + "half")
					if whole {
						c.say(" full")
						_ = c.Conn.Close() // says close_notify
					} else {
						c.cutTLS()
					}
				}, nil, upstream.TLSFiles{}, nil)
				_, body, err := p.dial().send(get("/")).response("GET")
				if whole {
					if body != "half full" || err != nil {
						t.Errorf("got %q, %v", body, err)
					}
					p.wantOutcome(0, policy.OutcomeSuccess)
					return
				}
				if body != "half" || err != io.ErrUnexpectedEOF {
					t.Errorf("got %q, %v; want \"half\" and an unexpected end", body, err)
				}
				p.wantOutcome(0, policy.OutcomeResponseBroken)
			})
		}
	}
}

func TestACutUploadDoesNotEndTLSInOrder(t *testing.T) {
	end := make(chan error, 1)
	begun := make(chan struct{})
	p, _ := secureUpstream(t, func(c *upConn) {
		c.head()
		c.body(4)
		close(begun)
		_, err := c.endOfInput()
		end <- err
	}, nil, upstream.TLSFiles{}, nil)
	c := p.dial().send(requestText("PUT / HTTP/1.1", "Host: a", "Content-Length: 100") + "half")
	within(t, "the begin of the body", begun)
	c.reset()
	if err := within(t, "the end upstream", end); err == nil {
		t.Error("the upstream saw an orderly end")
	}
	p.wantOutcome(0, policy.OutcomeClientGone)
}

func TestAnIdleCloseOverTLSCostsNoError(t *testing.T) {
	for _, polite := range []bool{false, true} {
		closed := make(chan struct{})
		p, u := secureUpstream(t, func(c *upConn) {
			c.head()
			c.say(ok200)
			if c.n > 1 {
				_, _ = c.endOfInput()
				return
			}
			time.Sleep(20 * time.Millisecond)
			if polite {
				_ = c.Conn.Close()
			} else {
				c.cutTLS()
			}
			close(closed)
		}, nil, upstream.TLSFiles{}, func(c *Config) { c.Default.Policy.MaxRetries = 0 })
		c := p.dial()
		c.send(get("/")).want(200, "ok")
		within(t, "the idle close", closed)
		c.send(post("x")).want(200, "ok")
		if u.connections() != 2 {
			t.Errorf("%d connections, want 2", u.connections())
		}
	}
}

func TestATunnelOverTLSGoesOnAfterAHalfClose(t *testing.T) {
	p, _ := secureUpstream(t, func(c *upConn) {
		c.head()
		c.say("%s", switching101)
		if got, err := c.endOfInput(); got != "bye" || err != nil {
			t.Errorf("upstream got %q, %v", got, err)
		}
		c.say("still here")
	}, nil, upstream.TLSFiles{}, bare)
	c := p.dial().send(upgradeRequest)
	c.wantRaw(switched)
	c.send("bye").closeWrite()
	if s, _ := c.rest(); s != "still here" {
		t.Errorf("the client got %q", s)
	}
}

func TestUpstreamOnAUnixSocket(t *testing.T) {
	closed := make(chan struct{})
	p, u := startFor(t, true, func(c *upConn) {
		for headers := c.head(); headers != ""; headers = c.head() {
			body := discardBody(c, headers)
			c.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			if c.n == 1 && string(body) == "last" {
				_ = c.Close()
				close(closed)
				return
			}
		}
	}, func(c *Config) { c.Default.Forward.UpstreamHost = c.Default.Upstream.Host })
	c := p.dial()
	c.send(get("/")).want(200, "")
	c.send(post("hello")).want(200, "hello")
	c.send(requestText("GET / HTTP/1.0", "Connection: keep-alive")).want(200, "")
	if got := fieldOf(u.head(2), "Host"); got != "localhost" {
		t.Errorf("Host %q", got)
	}
	if u.connections() != 1 {
		t.Errorf("%d connections, want 1", u.connections())
	}
	c.send(post("last")).want(200, "last") // then the upstream closes
	<-closed                               // a POST sent before that might have been acted on
	c.send(post("again")).want(200, "again")
	if u.connections() != 2 || p.seen.retried() != 0 {
		t.Errorf("%d connections, %d retries; want 2, none", u.connections(), p.seen.retried())
	}
	u.stop()
	c.send(post("")).want(502, "*") // the socket is gone: not sent, so repeated
	p.wantOutcome(5, policy.GaveUp(policy.ReasonRetriesExhausted))
}

// dialUnix is dial over a unix socket.
func (p *front) dialUnix(path string) *client {
	p.t.Helper()
	nc, err := net.Dial("unix", path)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	p.t.Cleanup(func() { nc.Close() })
	return &client{Conn: nc, r: bufio.NewReader(nc), t: p.t}
}

func TestListeningOnAUnixSocket(t *testing.T) {
	path := t.TempDir() + "/in.sock"
	u := startUpstream(t, script(ok200, ok200, ok200, bad503))
	p := startProxy(t, u, func(c *Config) {
		c.Listen = []string{"unix:" + path}
		c.Default.Policy.Backoff = fixedWait(t, 20*time.Second)
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	})
	c := p.dialUnix(path)
	c.send(get("/")+get("/")).want(200, "ok")
	c.want(200, "ok")
	c.send(requestText("GET / HTTP/1.1", "Host: a", "X-Forwarded-For: 1.1.1.1")).want(200, "ok")
	if strings.Contains(u.head(0), "X-Forwarded-For") || fieldOf(u.head(2), "X-Forwarded-For") != "1.1.1.1" {
		t.Errorf("a peer without an address: upstream got %q and %q", u.head(0), u.head(2))
	}
	c.send("GET /\n\n").want(400, "*")
	c.wantEnd("")

	c = p.dialUnix(path).send(get("/"))
	soon(t, "the wait", func() bool { return p.seen.waitsBegun() > 0 })
	left := time.Now()
	_ = c.Close()
	p.wantOutcome(4, policy.OutcomeClientGone)
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
	u := startUpstream(t, script(ok200))
	config := testConfig(t, "http://"+u.Addr().String(), &recorder{})
	busy, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	config.Listen = []string{"unix:" + path}
	if err := busy.Listen(); err == nil {
		t.Fatal("a socket that somebody listens on was taken over")
	}
	left.SetUnlinkOnClose(false)
	_ = left.Close()
	p := startProxy(t, u, func(c *Config) { c.Listen = []string{"unix:" + path} })
	p.dialUnix(path).send(get("/")).want(200, "ok")

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
	main, other := startUpstream(t, script(ok200)), startUpstream(t, script(strings.Replace(ok200, "ok", "no", 1)))
	p := startProxy(t, main, func(c *Config) {
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
		c.Routes = []Route{r}
	})
	p.dial().send(get("/")).want(200, "ok")
	second := *p
	second.addr = p.Addrs()[1].String()
	second.dial().send(get("/")).want(200, "no")
	if main.sends() != 1 || other.sends() != 1 {
		t.Errorf("%d and %d sends, want 1 and 1", main.sends(), other.sends())
	}
}

// A response to an HTTP/1.0 client over TCP that is cut off is reset, see
// TestACutResponseLooksCut. Over a unix socket only framed bodies can show it.
func TestACutResponseOverAUnixSocket(t *testing.T) {
	path := t.TempDir() + "/in.sock"
	u := startUpstream(t, func(c *upConn) {
		c.head()
		c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
	})
	p := startProxy(t, u, func(c *Config) { c.Listen = []string{"unix:" + path} })
	c := p.dialUnix(path).send(get("/"))
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(res.Body); string(b) != "half" || err != io.ErrUnexpectedEOF {
		t.Errorf("got %q, %v", b, err)
	}
	p.wantOutcome(0, policy.OutcomeResponseBroken)
}
