package upstream

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// authority signs certificates for a test and keeps them as files.
type authority struct {
	t      *testing.T
	dir    string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), key: newKey(t)}
	tmpl := a.template("test authority", time.Hour)
	tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) template(name string, valid time.Duration) *x509.Certificate {
	a.serial++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(valid).Truncate(time.Second),
	}
}

// path of a file in the authority's folder.
func (a *authority) path(file string) string { return filepath.Join(a.dir, file) }

func (a *authority) write(file, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.path(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// issue writes name.pem and name.key and gives the pair.
func (a *authority) issue(name string, valid time.Duration, names ...string) tls.Certificate {
	a.t.Helper()
	tmpl := a.template(name, valid)
	tmpl.DNSNames = names
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	key := newKey(a.t)
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "PRIVATE KEY", pkcs8)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// secure is https://app.test at s's address, trusting the authority.
func (a *authority) secure(s *server, f TLSFiles) Target {
	a.t.Helper()
	target, err := ParseTarget(fmt.Sprintf("https://app.test:%d", s.addr.(*net.TCPAddr).Port))
	if err != nil {
		a.t.Fatal(err)
	}
	target.Address = s.addr.String()
	if err := target.UseTLS(f); err != nil {
		a.t.Fatal(err)
	}
	return target
}

// gather collects what TLS writes, so that the test can send it at once.
type gather struct {
	net.Conn
	mu   sync.Mutex
	on   bool
	held bytes.Buffer
}

func (g *gather) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.on {
		return g.held.Write(p)
	}
	return g.Conn.Write(p)
}

// tlsServe shakes hands on the next connection, in its own goroutine.
type tlsServe struct {
	*tls.Conn
	wire *gather
	done chan error
}

func (s *server) tls(config *tls.Config) *tlsServe {
	v := &tlsServe{done: make(chan error, 1)}
	ready := make(chan struct{})
	go func() {
		c, ok := <-s.got
		if !ok {
			close(ready)
			return
		}
		v.wire = &gather{Conn: c}
		v.Conn = tls.Server(v.wire, config)
		close(ready)
		err := v.Handshake()
		if err != nil {
			_ = c.Close()
		}
		v.done <- err
	}()
	s.t.Cleanup(func() {
		<-ready
		if v.wire != nil {
			_ = v.wire.Close()
		}
	})
	return v
}

// ready waits for the end of the handshake.
func (v *tlsServe) ready(t *testing.T) {
	t.Helper()
	if err := <-v.done; err != nil {
		t.Fatal(err)
	}
}

// tlsPair is a held connection and the server's end of it, version being the only one spoken.
func tlsPair(t *testing.T, version uint16) (*Pool, *Conn, *tlsServe) {
	t.Helper()
	a, s := newAuthority(t), tcpServer(t)
	far := s.tls(&tls.Config{Certificates: []tls.Certificate{a.issue("app", time.Hour, "app.test")}, MinVersion: version, MaxVersion: version})
	p := makePool(t, a.secure(s, TLSFiles{CA: a.path("ca.pem")}), Options{})
	c := get(t, p, GetOptions{})
	far.ready(t)
	return p, c, far
}

func versions(t *testing.T, f func(t *testing.T, version uint16)) {
	for _, v := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(v), func(t *testing.T) { f(t, v) })
	}
}

// exchange sends a byte each way, after which the server's session tickets are read.
func exchange(t *testing.T, c *Conn, far *tlsServe) {
	t.Helper()
	b := make([]byte, 1)
	for _, dir := range []struct {
		from io.Writer
		to   io.Reader
	}{{c, far}, {far, c}} {
		if _, err := dir.from.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(dir.to, b); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTLSConnectionIsVerifiedAndReused(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		p, c, far := tlsPair(t, version)
		exchange(t, c, far)
		if c.Raw() != nil {
			t.Error("Raw gives the encrypted stream")
		}
		if state := c.TLS(); state == nil || state.Version != version || state.ServerName != "app.test" || len(state.VerifiedChains) == 0 {
			t.Errorf("state %+v", state)
		}
		if until := time.Until(p.Stats().PeerExpiry); until < 55*time.Minute || until > time.Hour {
			t.Errorf("the upstream's certificate is said to end in %v", until)
		}
		c.Release(0)
		if got := p.TryPooled(&alwaysChecked); got != c {
			t.Fatalf("not reused: %+v", p.Stats())
		}
		exchange(t, c, far)
	})
}

func TestTLSOffersItsProtocolsAndTheTargetsName(t *testing.T) {
	a, s := newAuthority(t), tcpServer(t)
	cert := a.issue("app", time.Hour, "app.test", "other.test")
	for name, want := range map[string]string{"": "app.test", "other.test": "other.test"} {
		http1 := name == ""
		offered := []string{"h2", "http/1.1"}
		if http1 {
			offered = offered[1:]
		}
		var hello *tls.ClientHelloInfo
		far := s.tls(&tls.Config{NextProtos: []string{"http/1.1"}, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			hello = h
			return &cert, nil
		}})
		c := get(t, makePool(t, a.secure(s, TLSFiles{CA: a.path("ca.pem"), ServerName: name}), Options{}), GetOptions{HTTP1: http1})
		far.ready(t)
		if hello.ServerName != want || !slices.Equal(hello.SupportedProtos, offered) || c.TLS().NegotiatedProtocol != "http/1.1" {
			t.Errorf("name %q, offered %q, got %q", hello.ServerName, hello.SupportedProtos, c.TLS().NegotiatedProtocol)
		}
		for _, v := range hello.SupportedVersions {
			if v < tls.VersionTLS12 {
				t.Errorf("offers %s", tls.VersionName(v))
			}
		}
	}
}

func TestTLSFailuresAreOfKindTLS(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	good := a.issue("good", time.Hour, "app.test")
	serve := func(c tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c}} }
	for _, c := range []struct {
		name   string
		config *tls.Config
		ca     string
		cause  func(error) bool
	}{
		{"unknown authority", serve(good), stranger.path("ca.pem"), as[x509.UnknownAuthorityError]},
		{"wrong name", serve(a.issue("wrong", time.Hour, "wrong.test")), a.path("ca.pem"), as[x509.HostnameError]},
		{"expired", serve(a.issue("expired", -time.Hour, "app.test")), a.path("ca.pem"), as[x509.CertificateInvalidError]},
		{"protocol too old", &tls.Config{Certificates: []tls.Certificate{good}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, a.path("ca.pem"), as[net.Error]},
		{"no common ALPN", &tls.Config{Certificates: []tls.Certificate{good}, NextProtos: []string{"spdy/3.1"}}, a.path("ca.pem"), as[net.Error]},
		{"client certificate wanted", &tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}, a.path("ca.pem"), as[net.Error]},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tcpServer(t)
			far := s.tls(c.config)
			var wire net.Conn
			target := a.secure(s, TLSFiles{CA: c.ca})
			target.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				var err error
				wire, err = dialer.DialContext(ctx, network, addr)
				return wire, err
			}
			p := makePool(t, target, Options{})
			d := fail(t, p, t.Context(), GetOptions{})
			if _, err := wire.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the connection is left open: %v", err)
			}
			if d.Kind != KindTLS || d.Addr != s.addr.String() || !c.cause(d) {
				t.Fatalf("%s at %s: %T %v", d.Kind, d.Addr, d.Err, d)
			}
			if name := strings.Fields(c.name)[0]; d.Untrusted != (name == "unknown" || name == "wrong" || name == "expired") {
				t.Errorf("untrusted: %v", d.Untrusted)
			}
			if <-far.done == nil {
				t.Error("the server believes in the handshake")
			}
			if got := p.Stats(); got.Active != 0 || got.DialErrors[KindTLS] != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A list of addresses is untrusted only if each of them is: another one may be back soon.
func TestAListIsUntrustedIfEachAddressIs(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	for name, want := range map[string]bool{"both untrusted": true, "one refuses": false} {
		s, second := tcpServer(t), tcpServer(t)
		s.tls(&tls.Config{Certificates: []tls.Certificate{a.issue("one", time.Hour, "app.test")}})
		target := a.secure(s, TLSFiles{CA: stranger.path("ca.pem")})
		other := a.secure(second, TLSFiles{CA: stranger.path("ca.pem")})
		if want {
			second.tls(&tls.Config{Certificates: []tls.Certificate{a.issue("two", time.Hour, "app.test")}})
		} else {
			other.Address = "127.0.0.1:1"
		}
		target.MoreTargets = []Target{other}
		if d := fail(t, makeGroup(t, target, Options{}), t.Context(), GetOptions{}); d.Untrusted != want {
			t.Errorf("%s: untrusted %v: %v", name, d.Untrusted, d)
		}
	}
}

func as[T error](err error) bool {
	var e T
	return errors.As(err, &e)
}

func TestHandshakeCutOffIsTLSAndSilentIsTimeout(t *testing.T) {
	a := newAuthority(t)
	for _, c := range []struct {
		name string
		act  func(net.Conn)
		want DialKind
	}{
		{"closed", func(far net.Conn) { _ = far.Close() }, KindTLS},
		{"reset", func(far net.Conn) {
			_, _ = far.Read(make([]byte, 1)) // connected for sure
			_ = far.(*net.TCPConn).SetLinger(0)
			_ = far.Close()
		}, KindTLS},
		{"plain text", func(far net.Conn) { _, _ = io.WriteString(far, "HTTP/1.1 400 Bad Request\r\n\r\n") }, KindTLS},
		{"silent", func(net.Conn) {}, KindTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tcpServer(t)
			target := a.secure(s, TLSFiles{CA: a.path("ca.pem")})
			o := GetOptions{}
			if c.want == KindTimeout {
				o.DialTimeout = 100 * time.Millisecond
			}
			acted := make(chan struct{})
			go func() {
				defer close(acted)
				c.act(s.accept())
			}()
			d := fail(t, makePool(t, target, Options{}), t.Context(), o)
			<-acted
			if d.Kind != c.want {
				t.Fatalf("%s: %v", d.Kind, d)
			}
		})
	}
}

func TestAFailedHandshakeGoesOnToTheNextAddress(t *testing.T) {
	a, s := newAuthority(t), tcpServer(t)
	s2 := listen(t, "tcp", fmt.Sprintf("127.0.0.2:%d", s.addr.(*net.TCPAddr).Port))
	bad := s.tls(&tls.Config{Certificates: []tls.Certificate{a.issue("expired", -time.Hour, "app.test")}})
	good := s2.tls(&tls.Config{Certificates: []tls.Certificate{a.issue("app", time.Hour, "app.test")}})
	target := a.secure(s, TLSFiles{CA: a.path("ca.pem")})
	names := resolving(s.addr.(*net.TCPAddr).Port, "127.0.0.1", "127.0.0.2")
	target.Address, target.Resolve = names.Address, names.Resolve
	c := get(t, makeGroup(t, target, Options{}), GetOptions{})
	good.ready(t)
	if <-bad.done == nil || c.Addr != s2.addr.String() {
		t.Fatalf("connected to %s", c.Addr)
	}
}

// crypto/tls alone gives io.EOF for both ends.
func TestOnlyCloseNotifyEndsATLSStreamProperly(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		for _, c := range []struct {
			name string
			end  func(*tlsServe)
			cut  bool
		}{
			{"close_notify", func(far *tlsServe) { _ = far.Close() }, false},
			{"close_notify alone", func(far *tlsServe) { _ = far.CloseWrite() }, false},
			{"no close_notify", func(far *tlsServe) { _ = far.wire.Close() }, true},
			{"no close_notify, half closed", func(far *tlsServe) { _ = far.wire.Conn.(*net.TCPConn).CloseWrite() }, true},
			{"in the middle of a record", func(far *tlsServe) {
				_, _ = far.wire.Write([]byte{23, 3, 3, 0, 40, 1, 2, 3})
				_ = far.wire.Close()
			}, true},
		} {
			t.Run(c.name, func(t *testing.T) {
				_, conn, far := tlsPair(t, version)
				if _, err := io.WriteString(far, "half a body"); err != nil {
					t.Fatal(err)
				}
				c.end(far)
				got, err := io.ReadAll(conn) // takes io.EOF for success
				if string(got) != "half a body" || errors.Is(err, io.ErrUnexpectedEOF) != c.cut || !c.cut && err != nil {
					t.Fatalf("read %q, %v", got, err)
				}
				if _, again := conn.Read(make([]byte, 1)); c.cut && !errors.Is(again, io.ErrUnexpectedEOF) || !c.cut && again != io.EOF {
					t.Fatalf("read again: %v", again)
				}
			})
		}
	})
}

func TestErrTruncatedIsNotEOF(t *testing.T) {
	if errors.Is(ErrTruncated, io.EOF) || !errors.Is(ErrTruncated, io.ErrUnexpectedEOF) || !errors.Is(ErrTruncated, ErrTruncated) {
		t.Fatal("ErrTruncated is taken for something else")
	}
}

func TestTLSIdleCloseIsSeen(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		for name, end := range map[string]func(*tlsServe){
			"close_notify": func(far *tlsServe) { _ = far.CloseWrite() },
			"cut off":      func(far *tlsServe) { _ = far.wire.Close() },
			"speaks":       func(far *tlsServe) { _, _ = io.WriteString(far, "HTTP/1.1 408 Request Timeout\r\n\r\n") },
		} {
			t.Run(name, func(t *testing.T) {
				p, c, far := tlsPair(t, version)
				exchange(t, c, far)
				end(far)
				awaitPeeked(t, c)
				c.Release(0)
				if p.TryPooled(&alwaysChecked) != nil || p.Stats().IdleCloses != 1 {
					t.Fatalf("%+v", p.Stats())
				}
			})
		}
	})
}

// What crypto/tls took from the socket no look at the socket can see.
func TestTLSConnectionWithUnreadBytesIsNotKept(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		for _, c := range []struct {
			name string
			say  func(*tlsServe)
			kept bool
		}{
			{"nothing more", func(far *tlsServe) { _, _ = io.WriteString(far, "a") }, true},
			{"more of the same record", func(far *tlsServe) { _, _ = io.WriteString(far, "ab") }, false},
			{"another record", func(far *tlsServe) { _, _ = io.WriteString(far, "a"); _, _ = io.WriteString(far, "b") }, false},
			{"close_notify", func(far *tlsServe) { _, _ = io.WriteString(far, "a"); _ = far.CloseWrite() }, false},
		} {
			t.Run(c.name, func(t *testing.T) {
				p, conn, far := tlsPair(t, version)
				exchange(t, conn, far)
				far.wire.on = true
				c.say(far)
				_ = far.SetDeadline(time.Time{}) // CloseWrite leaves one
				if _, err := far.wire.Conn.Write(far.wire.held.Bytes()); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				conn.Release(0)
				if got := p.Stats(); (got.Idle == 1) != c.kept || got.Active != 0 {
					t.Fatalf("%+v", got)
				}
				if c.kept {
					far.wire.on = false
					exchange(t, p.TryPooled(&alwaysChecked), far)
				}
			})
		}
	})
}

func TestTLSAbortResetsWithoutCloseNotify(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		_, c, far := tlsPair(t, version)
		exchange(t, c, far)
		c.Abort()
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("the upstream sees %v", err)
		}
	})
}

func TestTLSCloseSaysCloseNotify(t *testing.T) {
	_, c, far := tlsPair(t, tls.VersionTLS13)
	exchange(t, c, far)
	_ = c.Close()
	first, err := io.ReadAll(far.wire.Conn)
	if err != nil || len(first) == 0 {
		t.Fatalf("before the end came %q, %v", first, err)
	}
}

// Taking a connection allocates nothing. Giving it back asks crypto/tls for
// unread bytes, and that is one small allocation of its own, as in every read.
// A peer that reads nothing, so that close_notify cannot be written, delays nobody for long: neither
// the request that meets its idle connection, nor the end of many.
func TestTLSCloseDoesNotWaitForAPeerThatDoesNotRead(t *testing.T) {
	const conns = 20
	for name, c := range map[string]struct {
		end func(p *Pool, all []*Conn)
		max time.Duration
	}{
		"an expired connection is met": {end: func(p *Pool, all []*Conn) {
			for _, c := range all {
				c.Release(0)
			}
			time.Sleep(sweepPeriod / 2)
			if p.TryPooled(&GetOptions{}) != nil {
				t.Error("an expired connection was reused")
			}
		}, max: sweepPeriod / 2},
		"the pool is closed": {end: func(p *Pool, all []*Conn) {
			for _, c := range all {
				c.Release(0)
			}
			p.Close()
		}, max: closeNotifyTime},
		"expired connections are swept": {end: func(p *Pool, all []*Conn) {
			for _, c := range all {
				c.Release(0)
			}
			for sweeping := true; sweeping; {
				time.Sleep(time.Millisecond)
				p.mu.Lock()
				sweeping = p.sweeping
				p.mu.Unlock()
			}
		}, max: sweepPeriod + 2*closeNotifyTime + time.Millisecond}, // in two steps
		"the request closes it": {end: func(p *Pool, all []*Conn) { _ = all[0].Close() }, max: closeNotifyTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAuthority(t)
				config := &tls.Config{Certificates: []tls.Certificate{a.issue("app", time.Hour, "app.test")}, SessionTicketsDisabled: true}
				target := Target{Network: "tcp", Address: "10.0.0.1:443", TLS: &tls.Config{RootCAs: a.pool(), ServerName: "app.test"}}
				target.Dial = func(context.Context, string, string) (net.Conn, error) {
					near, far := net.Pipe()
					t.Cleanup(func() { _ = far.Close() })
					go func() { _ = tls.Server(far, config).Handshake() }()
					return near, nil
				}
				p := makePool(t, target, Options{IdleAge: sweepPeriod / 4})
				var all []*Conn
				for range conns {
					all = append(all, get(t, p, GetOptions{Fresh: true}))
				}
				began := time.Now()
				c.end(p, all)
				if took := time.Since(began); took > c.max {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

func TestTLSPooledPathAllocatesOnceAtMost(t *testing.T) {
	versions(t, func(t *testing.T, version uint16) {
		p, c, far := tlsPair(t, version)
		exchange(t, c, far)
		c.Release(0)
		if n := testing.AllocsPerRun(100, func() { p.TryPooled(&alwaysChecked).Release(0) }); n > 1 {
			t.Errorf("%v allocations", n)
		}
	})
}

// shown gives the name in the client certificate of a new connection.
func shown(t *testing.T, p *Pool, s *server, config *tls.Config) string {
	t.Helper()
	far := s.tls(config)
	c := get(t, p, GetOptions{Fresh: true})
	far.ready(t)
	exchange(t, c, far)
	return far.ConnectionState().PeerCertificates[0].Subject.CommonName
}

func TestClientCertificateFollowsItsFiles(t *testing.T) {
	a, s := newAuthority(t), tcpServer(t)
	config := &tls.Config{Certificates: []tls.Certificate{a.issue("app", time.Hour, "app.test")},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool()}
	a.issue("one", 2*time.Hour)
	a.issue("two", 3*time.Hour)
	use := func(name string) {
		for _, end := range []string{".pem", ".key"} {
			if err := os.Symlink(a.path(name+end), a.path("new")); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(a.path("new"), a.path("client"+end)); err != nil {
				t.Fatal(err)
			}
		}
	}
	use("one")
	target := a.secure(s, TLSFiles{CA: a.path("ca.pem"), Cert: a.path("client.pem")})
	p := makePool(t, target, Options{})
	expect := func(when, name string, valid time.Duration) {
		t.Helper()
		if got := shown(t, p, s, config); got != name {
			t.Fatalf("%s: shows %s, want %s", when, got, name)
		}
		if at, ok := target.CertificateExpiry(); !ok || (time.Until(at)-valid).Abs() > time.Minute {
			t.Fatalf("%s: ends at %v", when, at)
		}
	}
	expect("at first", "one", 2*time.Hour)
	use("two")
	expect("after a swap of links", "two", 3*time.Hour)
	a.issue("two", 4*time.Hour)
	expect("after a change of the files", "two", 4*time.Hour)
	if err := os.Rename(a.path("one.key"), a.path("client.key")); err != nil {
		t.Fatal(err)
	}
	expect("while certificate and key do not match", "two", 4*time.Hour)
	if err := os.Remove(a.path("client.key")); err != nil {
		t.Fatal(err)
	}
	expect("while a file is missing", "two", 4*time.Hour)
	a.issue("one", 5*time.Hour)
	use("one")
	expect("when they are whole again", "one", 5*time.Hour)
}

// As certbot writes them: a certificate and a key whose names have nothing in common.
func TestClientCertificateWithAKeyOfItsOwnFile(t *testing.T) {
	a, s := newAuthority(t), tcpServer(t)
	config := &tls.Config{Certificates: []tls.Certificate{a.issue("app", time.Hour, "app.test")},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool()}
	renew := func(name string) {
		t.Helper()
		a.issue(name, time.Hour)
		for from, to := range map[string]string{name + ".pem": "fullchain.pem", name + ".key": "privkey.pem"} {
			if err := os.Rename(a.path(from), a.path(to)); err != nil {
				t.Fatal(err)
			}
		}
	}
	renew("one")
	p := makePool(t, a.secure(s, TLSFiles{CA: a.path("ca.pem"), Cert: a.path("fullchain.pem"), Key: a.path("privkey.pem")}), Options{})
	if got := shown(t, p, s, config); got != "one" {
		t.Fatalf("shows %s", got)
	}
	renew("two")
	if got := shown(t, p, s, config); got != "two" {
		t.Fatalf("after both files changed: shows %s", got)
	}
	a.issue("three", time.Hour)
	if err := os.Rename(a.path("three.key"), a.path("privkey.pem")); err != nil {
		t.Fatal(err)
	}
	if got := shown(t, p, s, config); got != "two" {
		t.Fatalf("while the key is of another certificate: shows %s", got)
	}
}

func TestUseTLSRefusesWhatCannotWork(t *testing.T) {
	a := newAuthority(t)
	a.issue("one", time.Hour)
	a.issue("two", time.Hour)
	if err := os.Rename(a.path("one.key"), a.path("two.key")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.path("junk"), []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, target string
		f            TLSFiles
		want         string
	}{
		{"plain http", "http://a", TLSFiles{CA: a.path("ca.pem")}, "need an https://"},
		{"unix", "unix:/a", TLSFiles{ServerName: "a"}, "need an https://"},
		{"not a pair", "https://a", TLSFiles{Cert: a.path("two.pem")}, "two.key"},
		{"not a pair, with a named key", "https://a", TLSFiles{Cert: a.path("ca.pem"), Key: a.path("two.key")}, a.path("ca.pem") + " with key " + a.path("two.key")},
		{"no such authority", "https://a", TLSFiles{CA: a.path("none")}, "none"},
		{"no such key", "https://a", TLSFiles{Cert: a.path("ca.pem")}, "ca.key"},
		{"authority is junk", "https://a", TLSFiles{CA: a.path("junk")}, "junk: no certificate"},
		{"certificate is junk", "https://a", TLSFiles{Cert: a.path("junk")}, "junk"},
		{"bad name", "https://a", TLSFiles{ServerName: "a b"}, "server name"},
	} {
		target, err := ParseTarget(c.target)
		if err != nil {
			t.Fatal(err)
		}
		before := target.Key()
		if err := target.UseTLS(c.f); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q in it", c.name, err, c.want)
		}
		if target.Key() != before {
			t.Errorf("%s: the refused settings changed the target", c.name)
		}
		if _, ok := target.CertificateExpiry(); ok {
			t.Errorf("%s: has a client certificate", c.name)
		}
	}
}

func TestTLSSettingsArePartOfTheKey(t *testing.T) {
	a := newAuthority(t)
	a.issue("one", time.Hour)
	make := func(f TLSFiles) string {
		t.Helper()
		target, err := ParseTarget("https://app.test")
		if err != nil {
			t.Fatal(err)
		}
		if err := target.UseTLS(f); err != nil {
			t.Fatal(err)
		}
		return target.Key()
	}
	seen := map[string]TLSFiles{}
	for _, f := range []TLSFiles{{}, {CA: a.path("ca.pem")}, {CA: a.path("one.pem")}, {ServerName: "b"},
		{Cert: a.path("one.pem")}, {Cert: a.path("one.pem"), Key: a.path("one.key")}} {
		k := make(f)
		if k != make(f) {
			t.Errorf("%+v: the same settings give different keys", f)
		}
		if other, ok := seen[k]; ok {
			t.Errorf("%+v and %+v share a key", f, other)
		}
		seen[k] = f
	}
}
