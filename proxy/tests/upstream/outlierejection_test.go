package upstream

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/dnstest"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// listenAt listens on the same port of several loopback addresses.
func listenAt(t *testing.T, ips ...string) (port string, all []net.Listener) {
	t.Helper()
	var err error
	for range 20 {
		port, all = "0", nil
		for _, ip := range ips {
			var l net.Listener
			if l, err = net.Listen("tcp", ip+":"+port); err != nil {
				break
			}
			all = append(all, l)
			_, port, _ = net.SplitHostPort(l.Addr().String())
		}
		if err == nil {
			return port, all
		}
		for _, l := range all {
			l.Close()
		}
	}
	t.Fatal(err)
	return "", nil
}

func TestAllAddressesAreUsed(t *testing.T) {
	ips := []string{"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6", "127.0.0.7", "127.0.0.8"}
	port, l := listenAt(t, ips...)
	var ups []*peers.Upstream
	for _, l := range l {
		ups = append(ups, peers.ServeListener(t, l, peers.Script(peers.OK200)))
	}
	p := proxytest.StartTo(t, "http://name.test:"+port, func(c *proxy.Config) { peers.ResolveTo(c, ips...) })
	c := p.Dial()
	for range 300 {
		c.Send(peers.Get("/")).Want(200, "ok")
	}
	for _, u := range ups {
		if n := u.Sends(); n == 0 || u.Connections() != 1 {
			t.Errorf("%s got %d of 300 requests over %d connections, want some over one", u.Addr(), n, u.Connections())
		}
	}
}

func TestWhatEjectsAnAddress(t *testing.T) {
	response := func(code int) string {
		return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\nok", code)
	}
	row := slices.Repeat([]string{response(503), response(503), response(503), response(503), peers.OK200}, 100)
	for name, tc := range map[string]struct {
		answers []string
		ejected int
	}{
		"a row that answers break": {row, 0},
		"502":                      {[]string{response(502)}, 1}, "503": {[]string{response(503)}, 1}, "504": {[]string{response(504)}, 1}, "reset": {[]string{""}, 1}, "malformed": {[]string{"nonsense\r\n\r\n"}, 1},
		"500": {[]string{response(500)}, 0}, "429": {[]string{response(429)}, 0}, "404": {[]string{response(404)}, 0}, "501": {[]string{response(501)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			port, l := listenAt(t, "127.0.0.1", "127.0.0.2")
			bad := peers.ServeListener(t, l[0], peers.Script(tc.answers...))
			good := peers.ServeListener(t, l[1], peers.Script(peers.OK200))
			p := proxytest.StartTo(t, "http://name.test:"+port, func(c *proxy.Config) {
				peers.ResolveTo(c, "127.0.0.1", "127.0.0.2")
				c.Default.Policy.MaxRetries = 0
			})
			for range 100 {
				p.Dial().Send(peers.Get("/")).Response("GET")
			}
			// A request may have been on its way when the last of the five came back.
			if a, n := p.Addresses(), bad.Sends(); a.Ejected != tc.ejected || tc.ejected == 1 && n != upstream.DefaultEjectAfter || tc.ejected == 0 && n < 10 {
				t.Errorf("%d sent to the bad address, %d to the good one: %+v", n, good.Sends(), a)
			}
		})
	}
}

// A client's short deadlines and slow uploads, which applications close, show nothing about an address that serves
// others.
func TestAClientEjectsNoAddress(t *testing.T) {
	for name, tc := range map[string]struct {
		request string
		handle  func(c *peers.Conn)
	}{
		"short deadlines": {"GET /bad HTTP/1.1\r\nHost: x\r\nX-Request-Timeout: 0.01\r\n\r\n", peers.NeverResponds},
		"slow uploads":    {"POST /bad HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc", func(c *peers.Conn) { c.Reset() }},
	} {
		t.Run(name, func(t *testing.T) {
			port, l := listenAt(t, "127.0.0.1", "127.0.0.2")
			serve := func(l net.Listener, name string) *peers.Upstream {
				return peers.ServeListener(t, l, func(c *peers.Conn) {
					for headers := c.Head(); headers != ""; headers = c.Head() {
						if strings.Contains(headers, " /bad ") {
							tc.handle(c)
							return
						}
						c.Say("%s", peers.Response(200, name))
					}
				})
			}
			ups := []*peers.Upstream{serve(l[0], "a"), serve(l[1], "b")}
			p := proxytest.StartTo(t, "http://name.test:"+port, func(c *proxy.Config) {
				peers.ResolveTo(c, "127.0.0.1", "127.0.0.2")
				c.Default.Policy.MaxRetries = 0
			})
			for range 8 * upstream.DefaultEjectAfter {
				if got, body, err := p.Dial().Send(tc.request).Response("GET"); err != nil || got.StatusCode < 500 {
					t.Fatalf("got %v, %q, %v", got, body, err)
				}
				for served := map[string]bool{}; len(served) < len(ups); {
					_, body, err := p.Dial().Send(peers.Get("/")).Response("GET")
					if err != nil {
						t.Fatal(err)
					}
					served[body] = true
				}
			}
			if a := p.Addresses(); a.Ejected != 0 || ups[0].Sends() < 16*upstream.DefaultEjectAfter/2 || ups[1].Sends() < 16*upstream.DefaultEjectAfter/2 {
				t.Errorf("%d and %d sent: %+v", ups[0].Sends(), ups[1].Sends(), a)
			}
		})
	}
}

func TestWhenEveryAddressRefusesTheBreakerClosesAndOneOpensIt(t *testing.T) {
	port, l := listenAt(t, "127.0.0.1", "127.0.0.2", "127.0.0.3")
	for _, l := range l {
		l.Close()
	}
	p := proxytest.StartTo(t, "http://name.test:"+port, func(c *proxy.Config) {
		peers.WithBreaker(c)
		peers.ResolveTo(c, "127.0.0.1", "127.0.0.2", "127.0.0.3")
		c.Default.QueueTimeout, c.Default.QueueMax = time.Minute, 100
		c.Default.RequestTimeout = 0
	})
	c := p.Dial()
	c.Send(peers.Get("/"))
	peers.Soon(t, "the breaker is open", func() bool { return p.Stats().Upstreams[0].Guard.Breaker == breaker.Open })
	back, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Skipf("somebody took the port: %v", err)
	}
	u := peers.ServeListener(t, back, peers.Script(peers.OK200))
	c.Want(200, "ok")
	if u.Sends() != 1 {
		t.Errorf("%d requests", u.Sends())
	}
	peers.Soon(t, "the breaker is closed", func() bool {
		p.Dial().Send(peers.Get("/")).Want(200, "ok")
		return p.Stats().Upstreams[0].Guard.Breaker == breaker.Closed
	})
}

func TestAnAddressThatIsGoneIsDrainedWithoutAFailedRequest(t *testing.T) {
	port, l := listenAt(t, "127.0.0.1", "127.0.0.2", "127.0.0.3")
	dns := dnstest.Start(t)
	dns.Host("name.test", 1, "127.0.0.1", "127.0.0.2")
	arrived := make(chan int, 100) // which address got a slow request
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	handle := func(i int) func(c *peers.Conn) {
		return func(c *peers.Conn) {
			for headers := c.Head(); headers != ""; headers = c.Head() {
				if strings.HasPrefix(headers, "GET /slow") {
					if arrived <- i; i == 0 {
						<-held
					}
				}
				c.Say("%s", peers.OK200)
			}
		}
	}
	going := peers.ServeListener(t, l[0], handle(0))
	peers.ServeListener(t, l[1], handle(1))
	coming := peers.ServeListener(t, l[2], handle(2))
	p := proxytest.StartTo(t, "http://name.test:"+port, func(c *proxy.Config) { c.Default.Upstream.DNS = dns.Addr })
	var waiting []*peers.Client
	for at := -1; at != 0; at = <-arrived { // until one is held where it goes
		waiting = append(waiting, p.Dial().Send(peers.Get("/slow")))
	}
	dns.Host("name.test", 1, "127.0.0.2", "127.0.0.3")
	c := p.Dial()
	peers.Soon(t, "the name is looked up again", func() bool {
		c.Send(peers.Get("/")).Want(200, "ok")
		return p.Addresses().Draining == 1
	})
	before := going.Sends()
	peers.Soon(t, "the new address is used", func() bool {
		c.Send(peers.Get("/")).Want(200, "ok")
		return coming.Sends() > 0
	})
	if n := going.Sends(); n != before {
		t.Errorf("%d requests went to the address that is gone", n-before)
	}
	release()
	for _, c := range waiting {
		c.Want(200, "ok")
	}
	peers.Soon(t, "nothing is left of it", func() bool { return p.Addresses().Draining == 0 })
}

func TestAServiceOfTwoHosts(t *testing.T) {
	dns := dnstest.Start(t)
	a, b := peers.StartUpstream(t, peers.Script(peers.OK200)), peers.StartUpstream(t, peers.Script(peers.OK200))
	portOf := func(u *peers.Upstream) uint16 { return uint16(u.Addr().(*net.TCPAddr).Port) }
	dns.Host("one.test", 60, "127.0.0.1")
	dns.Service("_http._tcp.app.test", 60,
		dnstest.Service{Host: "one.test", Port: portOf(a), Priority: 1, Weight: 1}, dnstest.Service{Host: "one.test", Port: portOf(b), Priority: 1, Weight: 1})
	p := proxytest.StartTo(t, "http+srv://_http._tcp.app.test", func(c *proxy.Config) { c.Default.Upstream.DNS = dns.Addr })
	c := p.Dial()
	for range 60 {
		c.Send(peers.Get("/")).Want(200, "ok")
	}
	if a.Sends() < 5 || b.Sends() < 5 || a.Sends()+b.Sends() != 60 {
		t.Errorf("%d and %d requests", a.Sends(), b.Sends())
	}
}

// http2At serves HTTP/2 without TLS on l until the test ends.
func http2At(t *testing.T, l net.Listener, h http.HandlerFunc) {
	t.Helper()
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
}

func TestHTTP2UpstreamWithTwoAddresses(t *testing.T) {
	port, l := listenAt(t, "127.0.0.1", "127.0.0.2")
	var sends [2]atomic.Int32
	var bad atomic.Bool
	for i, l := range l {
		http2At(t, l, func(w http.ResponseWriter, r *http.Request) {
			sends[i].Add(1)
			if i == 0 && bad.Load() {
				w.WriteHeader(503)
				return
			}
			_, _ = io.WriteString(w, r.Proto)
		})
	}
	p := proxytest.StartTo(t, "h2c://name.test:"+port, func(c *proxy.Config) { peers.ResolveTo(c, "127.0.0.1", "127.0.0.2") })
	c := p.Dial()
	for range 60 {
		c.Send(peers.Get("/")).Want(200, "HTTP/2.0")
	}
	if a, b := sends[0].Load(), sends[1].Load(); a < 5 || b < 5 || a+b != 60 {
		t.Errorf("%d and %d requests", a, b)
	}
	peers.Soon(t, "there is one idle connection to each", func() bool {
		s := p.Stats().Upstreams[0].Pool
		return s.Dials == 2 && s.Idle == 2 && s.Streams == 0
	})
	bad.Store(true)
	before := sends[0].Load()
	for range 60 {
		c.Send(peers.Get("/")).Want(200, "HTTP/2.0") // a 503 is retried, at the other address
	}
	if n := sends[0].Load() - before; n != upstream.DefaultEjectAfter || p.Addresses().Ejected != 1 {
		t.Errorf("%d requests went to the bad address, %+v", n, p.Addresses())
	}
}

// A hedge goes to the other address. Each of the two addresses gets the result of its own attempt,
// except an overtaken one.
func TestHedgesAndTheAddressesTheyGoTo(t *testing.T) {
	addresses := [2]string{"192.0.2.1:80", "192.0.2.2:80"}
	handle := func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			peers.DiscardBody(c, headers)
			switch hedge := strings.Contains(headers, "X-Retryproxy-Attempt: 2\r\n"); {
			case hedge && strings.HasPrefix(headers, "GET /fails"):
				c.Say("%s", peers.Bad503)
			case hedge:
				c.Say("%s", peers.Response(200, c.LocalAddr().String()))
			case strings.HasPrefix(headers, "GET /fails") && c.Stays(50*time.Millisecond): // the hedge has failed by then
				c.Say("%s", peers.Response(200, c.LocalAddr().String()))
			default:
				_, _ = io.Copy(io.Discard, c.Reader) // never
			}
		}
	}
	proxytest.InMemory(t, handle, func(c *proxy.Config) {
		peers.Hedged(t)(c)
		peers.ResolveTo(c, "192.0.2.1", "192.0.2.2")
		c.Default.AttemptTimeout, c.Default.RequestTimeout = 0, 0
	}, func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Post("")) // is never answered nor hedged: its address is the busier one from now on
		synctest.Wait()
		busy := slices.IndexFunc(m.Addresses().Each, func(a upstream.EndpointStats) bool { return a.Active == 1 })
		quiet := addresses[1-busy]
		wantFailures := func(n uint64) {
			t.Helper()
			for _, a := range m.Addresses().Each {
				if want := map[bool]uint64{true: n}[a.Addr != quiet]; a.Failures != want {
					t.Errorf("%d failures of %s, want %d", a.Failures, a.Addr, want)
				}
			}
		}
		c := m.Client()
		failing := func(n int) {
			for range n {
				c.Send(peers.Get("/fails")).Want(200, quiet)
			}
		}
		c.Send(peers.Get("/")).Want(200, addresses[busy])
		wantFailures(0) // nothing has failed
		const row = upstream.DefaultEjectAfter - 1
		failing(row)
		wantFailures(row)
		c.Send(peers.Get("/")).Want(200, addresses[busy]) // ends the row
		failing(row)
		wantFailures(2 * row)
		if n := m.Addresses().Ejected; n != 0 {
			t.Errorf("%d addresses are left out after a good response and %d failures", n, row)
		}
		failing(1)
		if n := m.Addresses().Ejected; n != 1 {
			t.Errorf("%d addresses are left out after %d failures in a row", n, row+1)
		}
	})
}
