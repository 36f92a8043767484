package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/idlepoller"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/internal/tcptest"
	"github.com/retryproxy/retryproxy/proxy/slots"
)

// parksAtOnce parks whoever idles for a millisecond or two.
func parksAtOnce(c *Config) { c.ParkAfter = time.Millisecond }

// wantParked waits until n clients are parked and no other is connected.
func (p *testProxy) wantParked(n int) {
	p.T.Helper()
	peers.Soon(p.T, "clients parked", func() bool {
		p.connected.mu.Lock()
		defer p.connected.mu.Unlock()
		return p.parked.Len() == n && len(p.connected.served) == 0
	})
	if got := p.Stats().Connections; got != n {
		p.T.Errorf("%d clients are counted, want %d", got, n)
	}
}

func TestAParkedClientIsServed(t *testing.T) {
	p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.OK200)), parksAtOnce)
	c := p.Dial()
	p.wantParked(1) // before it ever said something
	for range 3 {
		c.Send(peers.Get("/")).Want(200, "ok")
		p.wantParked(1)
	}
	c.Send("\r\n") // no request (RFC 9112 section 2.2)
	c.Send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 4\r\n\r\nbo")
	c.Send("dy" + peers.Get("/1") + peers.Get("/2"))
	for range 3 {
		c.Want(200, "ok")
	}
	p.wantParked(1)
	c.CloseWrite()
	c.WantEnd("")
	p.wantParked(0)
}

func TestAParkedClientOnAUnixSocketIsServed(t *testing.T) {
	path := t.TempDir() + "/s"
	p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *Config) { parksAtOnce(c); c.Listen = []string{"unix:" + path} })
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	p.wantParked(1)
	if _, err := io.WriteString(nc, strings.Replace(peers.Get("/"), "\r\n", "\r\nConnection: close\r\n", 1)); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(nc); !strings.HasSuffix(string(got), "\r\n\r\nok") || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestTheClientParkedLongestIsEvictedFirst(t *testing.T) {
	p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *Config) { parksAtOnce(c); c.MaxConnections = 2 })
	first := p.Dial()
	p.wantParked(1)
	second := p.Dial().Send(peers.Get("/"))
	second.Want(200, "ok")
	p.wantParked(2)
	third := p.Dial().Send(peers.Get("/"))
	third.Want(200, "ok")
	first.Want(503, "") // its first request may be on its way
	second.Send(peers.Get("/")).Want(200, "ok")
}

func TestAParkedClientIsClosedWhenItsTimeIsOver(t *testing.T) {
	p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *Config) { parksAtOnce(c); c.ClientIdleTimeout = 200 * time.Millisecond })
	c := p.Dial()
	began := time.Now()
	c.Send(peers.Get("/")).Want(200, "ok")
	c.WantEnd("")
	if d := time.Since(began); d < 200*time.Millisecond {
		t.Errorf("closed after %v", d)
	}
	p.wantParked(0)
}

func TestAParkedClientOverTLSIsServed(t *testing.T) {
	a := peers.NewAuthority(t)
	p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *Config) { parksAtOnce(c); a.ClientsOverTLS(t, c, false) })
	c := p.DialTLS(a.Client())
	p.wantParked(1) // before it ever said something
	for range 3 {
		c.Send(peers.Get("/")).Want(200, "ok")
		p.wantParked(1)
	}
	c.Send("GET / HTTP/1.1\r\nHost: app.t")
	c.Send("est\r\n\r\n" + peers.Get("/1") + peers.Get("/2"))
	for range 3 {
		c.Want(200, "ok")
	}
	p.wantParked(1)
	drained := make(chan error, 1)
	go func() { drained <- p.Drain(context.Background()) }()
	c.WantEnd("") // with a close_notify
	if err := peers.Within(t, "the drain", drained); err != nil {
		t.Error(err)
	}
}

func TestHTTP2ConnectionsAreNotParked(t *testing.T) {
	p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *Config) { parksAtOnce(c); peers.SpeakHTTP2(c) })
	client := peers.HTTP2Client(t, nil)
	p.Fetch(client, "GET", "/", nil)
	time.Sleep(10 * time.Millisecond)
	if n := p.parked.Len(); n != 0 {
		t.Errorf("%d parked", n)
	}
	if res, _ := p.Fetch(client, "GET", "/", nil); res.StatusCode != 200 {
		t.Error(res.Status)
	}
}

// TLS that a reload switches on is for new connections only.
func TestAParkedClientStaysWithoutTLS(t *testing.T) {
	a := peers.NewAuthority(t)
	p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.OK200)), parksAtOnce)
	c := p.Dial()
	p.wantParked(1)
	next := *p.settings.Load().Config
	a.ClientsOverTLS(t, &next, false)
	if err := p.Reload(&next); err != nil {
		t.Fatal(err)
	}
	c.Send(peers.Get("/")).Want(200, "ok")
}

func TestHTTP2BegunAfterParking(t *testing.T) {
	p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *Config) { parksAtOnce(c); peers.SpeakHTTP2(c) })
	fresh := p.Dial()
	p.wantParked(1)
	fresh.Send(http2.Preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00") // empty SETTINGS
	fresh.WantRaw("\x00\x00")                                          // a frame, not "HTTP"
	fresh.Close()
	used := p.Dial()
	used.Send(peers.Get("/")).Want(200, "ok")
	p.wantParked(1)
	if res, _, err := used.Send(http2.Preface).Response("GET"); err != nil || res.StatusCode != 505 {
		t.Errorf("HTTP/2 after a request was answered %v, %v; want 505", res, err)
	}
}

func TestDrainServesAndEndsParkedClients(t *testing.T) {
	release := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			if strings.HasPrefix(headers, "GET /held") {
				<-release
			}
			c.Say(peers.OK200)
		}
	})
	p := startProxy(t, u, func(c *Config) {
		parksAtOnce(c)
		c.DrainTimeout, c.ClientIdleTimeout, c.Default.AttemptTimeout = time.Minute, time.Hour, time.Minute
	})
	var all []*peers.Client
	for range 10 {
		all = append(all, p.Dial())
		all[len(all)-1].Send(peers.Get("/")).Want(200, "ok")
	}
	p.wantParked(len(all))
	busy := p.Dial().Send(peers.Get("/held")) // as long as it runs, idle clients stay
	peers.Soon(t, "the held request", func() bool { return u.Sends() == len(all)+1 })
	drained := make(chan error, 1)
	go func() { drained <- p.Drain(context.Background()) }()
	peers.Soon(t, "the drain to begin", p.process.IsDraining)
	if res := all[0].Send(peers.Get("/")).Want(200, "ok"); !res.Close {
		t.Error("the response does not say Connection: close")
	}
	close(release)
	busy.Want(200, "ok")
	for _, c := range all {
		c.WantEnd("")
	}
	if err := peers.Within(t, "the drain", drained); err != nil {
		t.Error(err)
	}
	p.wantParked(0)
}

// A request that is there when an idle connection is about to be closed is answered.
func TestARequestAtTheIdleDeadlineIsServed(t *testing.T) {
	for _, closing := range []string{"drain", "idle timeout"} {
		t.Run(closing, func(t *testing.T) {
			c := peers.NewConfig(t, "http://127.0.0.1:1", &peers.Recorder{})
			s, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			near, far := tcptest.Pair(t)
			if _, err := io.WriteString(far, peers.Get("/")); err != nil {
				t.Fatal(err)
			}
			conn := newConn(s, near, "")
			defer conn.client.PutIn()
			var b [1]byte
			if err := conn.client.Raw.Read(func(fd uintptr) bool { n, _ := rawsocket.TryPeek(fd, b[:]); return n > 0 }); err != nil {
				t.Fatal(err)
			}
			if closing == "drain" {
				s.drain.idleEnd.Store(true)
			} else {
				conn.idleEnd = s.process.Clock.Now().Add(-time.Second)
			}
			if !conn.nextRequest() || string(conn.client.Request().Method) != "GET" {
				t.Error("the request was not seen")
			}
		})
	}
}

func TestTheEndClosesParkedClients(t *testing.T) {
	p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *Config) { parksAtOnce(c); c.ClientIdleTimeout = time.Hour })
	c := p.Dial()
	c.Send(peers.Get("/")).Want(200, "ok")
	p.wantParked(1)
	p.kill()
	if _, err := c.Rest(); rawsocket.IsTimeout(err) {
		t.Error("the client was left")
	}
	p.wantParked(0)
}

// An idle wait that is over before it began leaves no buffer behind, which would prevent parking.
func TestAnIdleWaitWithoutTimeLeavesNoBuffer(t *testing.T) {
	s, err := New(peers.NewConfig(t, "http://127.0.0.1:1", &peers.Recorder{}))
	if err != nil {
		t.Fatal(err)
	}
	near, _ := tcptest.Pair(t)
	conn := newConn(s, near, "")
	conn.client.Begin(buffer.Small) // of the request before
	b := buffer.Get(buffer.Small)
	conn.client.Buffers.Put(&b)
	_ = near.SetReadDeadline(downstream.Past)
	if err := conn.client.FillIdle(); !rawsocket.IsTimeout(err) {
		t.Fatalf("the wait ended as %v", err)
	}
	if conn.client.HasBuffer() || conn.client.Buffers != (buffer.Cache{}) {
		t.Error("a buffer was kept")
	}
}

// forced is how many collections the program itself asked for.
func forced() uint32 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NumForcedGC
}

// A wave of connections leaves no memory behind; this test only checks that the release runs.
func TestMemoryIsReleasedAfterAWaveOfConnections(t *testing.T) {
	before := forced()
	p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.OK200)), parksAtOnce)
	var all []*peers.Client
	for range 32 {
		all = append(all, p.Dial())
	}
	for range releaseMemoryAfter / len(all) {
		p.wantParked(len(all))
		for _, c := range all {
			c.Send(peers.Get("/")).Want(200, "ok")
		}
	}
	peers.Soon(t, "memory to be released", func() bool { return p.memory.left.Load() == 0 && forced() >= before+2 })
}

// TestEveryRequestIsAnsweredHoweverParkingFalls sends requests whole and in
// pieces at intervals around that of parking, then drains.
func TestEveryRequestIsAnsweredHoweverParkingFalls(t *testing.T) {
	const clients, requests = 24, 40
	p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *Config) {
		c.ParkAfter, c.DrainTimeout, c.ReadHeaderTimeout = 200*time.Microsecond, time.Minute, time.Minute
	})
	var answered atomic.Int64
	var wg sync.WaitGroup
	for i := range clients {
		c := p.Dial()
		wg.Go(func() {
			r := rand.New(rand.NewPCG(3, uint64(i)))
			nap := func() { time.Sleep(time.Duration(r.IntN(600)) * time.Microsecond) }
			for n := range requests {
				req := peers.Get("/")
				if cut := r.IntN(2 * len(req)); cut < len(req) {
					_, _ = io.WriteString(c.Conn, req[:cut])
					nap()
					req = req[cut:]
				}
				_, err := io.WriteString(c.Conn, req)
				res, body, rerr := c.Response("GET")
				if err != nil || rerr != nil || res.StatusCode != 200 || body != "ok" {
					t.Errorf("client %d, request %d: %v, %v, %q", i, n, err, rerr, body)
					return
				}
				answered.Add(1)
				nap()
			}
		})
	}
	wg.Wait()
	if n := answered.Load(); n != clients*requests {
		t.Errorf("%d answers to %d requests", n, clients*requests)
	}
	if err := p.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	p.wantParked(0)
}

// The client's address is kept, although almost nothing else is.
func TestAParkedClientKeepsTheAddressFromItsProxyHeader(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := startProxy(t, u, func(c *Config) { parksAtOnce(c); peers.ExpectProxyHeader(c) })
	c := p.Dial().Send(peers.ProxyHeader1)
	for n := range 3 {
		p.wantParked(1)
		c.Send(peers.Get("/")).Want(200, "ok")
		u.WantFrom(t, n, "192.0.2.1")
	}
}

// Empty lines begin no request, so they do not make the idle time longer.
func TestEmptyLinesDoNotKeepAParkedClient(t *testing.T) {
	p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *Config) { parksAtOnce(c); c.ClientIdleTimeout = 200 * time.Millisecond })
	c := p.Dial().Send(peers.Get("/"))
	c.Want(200, "ok")
	ended := make(chan struct{})
	go func() { _, _ = c.Rest(); close(ended) }()
	for began := time.Now(); ; {
		select {
		case <-ended:
			p.wantParked(0)
			return
		case <-time.After(20 * time.Millisecond):
			_, _ = io.WriteString(c.Conn, "\r\n")
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("the client is still connected")
		}
	}
}

// A parked client over TLS that gets no memory when it wakes up is closed without plain text.
func TestAParkedClientOverTLSIsTurnedAwayWithoutPlainText(t *testing.T) {
	s, err := New(peers.NewConfig(t, "http://127.0.0.1:1", &peers.Recorder{}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.parked.Close()
	table := slots.New(0, 1)
	s.clients.slots, s.clients.costs.newcomer = table, 2
	table.Force(0) // another client
	near, far := tcptest.Pair(t)
	s.connected.ends.Add(1)
	s.connected.count.Add(1)
	p := &parked{server: s, nc: near, tls: tls.Server(near, &tls.Config{}), slot: table.Force(0)}
	p.Wake(idlepoller.Readable)
	s.connected.goroutines.Wait()
	if got, err := io.ReadAll(far); len(got) > 0 || err != nil || s.Stats().EvictedQueued != 1 {
		t.Errorf("%q, %v", got, err)
	}
}

// An empty line that comes while an idle client is evicted is no request, so it does not save its slot.
// A request does.
func TestAnEmptyLineDoesNotSaveAnEvictedClient(t *testing.T) {
	s, err := New(peers.NewConfig(t, "http://127.0.0.1:1", &peers.Recorder{}))
	if err != nil {
		t.Fatal(err)
	}
	for sent, want := range map[string]bool{"\r\n": false, peers.Get("/"): true} {
		near, far := tcptest.Pair(t)
		conn := newConn(s, near, "")
		conn.used.Store(true)
		conn.evicted.Store(true)
		if _, err := io.WriteString(far, sent); err != nil {
			t.Fatal(err)
		}
		peers.Soon(t, "its bytes", conn.client.HasUnread)
		if got := conn.checkForRequest(); got != want || conn.evicted.Load() == want {
			t.Errorf("after %q it stays: %v, want %v", sent, got, want)
		}
		conn.finish()
	}
}

// A client whose first request came after it was parked waits no longer for memory than one that was not
// parked: an upload that does not fit yet is behind it. One whose request is not whole is behind all others.
func TestAParkedClientsWholeRequestIsNotBehindUploads(t *testing.T) {
	for first, status := range map[string]int{
		peers.Get("/"): 200,
		"POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 4\r\n\r\nbody": 200,
		"POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 4\r\n\r\nbo":   503,
		"GET / HTTP/1.1\r\n": 503,
	} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *Config) {
				parksAtOnce(c)
				c.MaxConnections, c.ClientMemory = 0, 4*plainCost*100/55
			})
			c := p.Dial()
			p.wantParked(1)
			all := p.clients.slots
			slot := all.Force(newcomerCost)
			defer all.Release(slot)
			upload := all.Wait(slot, 5*plainCost, slots.Upload, p.process.Clock.Elapsed())
			defer all.GiveUp(upload)
			c.Send(first).Want(status, "*")
		})
	}
}
