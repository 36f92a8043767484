package proxy

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/slots"
)

func TestTheLongestIdleClientIsEvictedFirst(t *testing.T) {
	p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *Config) { c.MaxConnections = 2 })
	first, second := p.Dial(), p.Dial()
	second.Send(peers.Get("/")).Want(200, "ok")
	peers.Soon(t, "both to be idle", func() bool { // the response arrives before the connection is idle
		if runtime.GOOS == "linux" {
			return p.parked.Len() == 2 // in that order
		}
		idle := 0
		p.connected.each(func(c *conn) {
			if c.client.Phase() == downstream.PhaseIdle {
				idle++
			}
		})
		return idle == 2
	})
	first.Send(peers.Get("/")).Want(200, "ok")
	third := p.Dial().Send(peers.Get("/"))
	third.Want(200, "ok")
	if rest, err := second.Rest(); rest != "" || err != nil {
		t.Errorf("the longest idle one got %q, %v", rest, err)
	}
	first.Send(peers.Get("/")).Want(200, "ok")
	if n := p.Stats().EvictedIdle; n != 1 {
		t.Errorf("%d evicted", n)
	}
}

func TestIdleClientsGiveTheirSlotsToOthers(t *testing.T) {
	a := peers.NewAuthority(t)
	for name, tc := range map[string]struct {
		change func(c *Config)
		idle   func(t *testing.T, p *testProxy)
		ask    func(t *testing.T, p *testProxy)
	}{
		"silent":           {nil, func(_ *testing.T, p *testProxy) { p.Dial() }, askHTTP1},
		"half a head":      {nil, func(_ *testing.T, p *testProxy) { p.Dial().Send("GET / HTTP/1.1\r\nHo") }, askHTTP1},
		"HTTP/2":           {peers.SpeakHTTP2, func(t *testing.T, p *testProxy) { p.Fetch(peers.HTTP2Client(t, nil), "GET", "/", nil) }, askHTTP1},
		"no TLS handshake": {func(c *Config) { a.ClientsOverTLS(t, c, false) }, func(_ *testing.T, p *testProxy) { p.Dial() }, askTLS(a.Client())},
		"TLS":              {func(c *Config) { a.ClientsOverTLS(t, c, false) }, func(_ *testing.T, p *testProxy) { p.DialTLS(a.Client()).Send(peers.Get("/")).Want(200, "ok") }, askTLS(a.Client())},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *Config) {
				c.MaxConnections = 3
				if tc.change != nil {
					tc.change(c)
				}
			})
			for range 3 {
				tc.idle(t, p)
			}
			peers.Soon(t, "a full house", func() bool { return p.Stats().Connections == 3 })
			tc.ask(t, p)
		})
	}
}

func askHTTP1(_ *testing.T, p *testProxy) { p.Dial().Send(peers.Get("/")).Want(200, "ok") }

func askTLS(conf *tls.Config) func(*testing.T, *testProxy) {
	return func(_ *testing.T, p *testProxy) { p.DialTLS(conf).Send(peers.Get("/")).Want(200, "ok") }
}

func TestStalledClientsGiveTheirSlotsToOthers(t *testing.T) {
	large := bytes.Repeat([]byte("x"), peers.LargeSize)
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			if strings.HasPrefix(headers, "GET /large") {
				c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(large))
				_, _ = c.Write(large)
			} else {
				c.Say(peers.OK200)
			}
		}
	})
	for name, change := range map[string]func(*Config){"plain": func(*Config) {}, "within a memory limit": func(c *Config) { c.MaxConnections, c.ClientMemory = 0, 3*plainCost*100/55 }} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, u, func(c *Config) { c.MaxConnections = 2; change(c) })
			sends := u.Sends()
			for range 2 {
				p.Dial().Send(peers.Get("/large"))
			}
			peers.Soon(t, "both responses", func() bool { return u.Sends() == sends+2 })
			p.Dial().Send(peers.Get("/")).Want(200, "ok")
			p.Dial().Send(peers.Get("/")).Want(200, "ok")
		})
	}
}

// What a client that is evicted is charged is free at once, not when its connection has ended.
func TestTheMemoryOfWhoIsEvictedIsFreeAtOnce(t *testing.T) {
	config := peers.NewConfig(t, "http://127.0.0.1:1", &peers.Recorder{})
	config.MaxConnections, config.ClientMemory = 0, 2*plainCost*100/55+1
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	table := s.clients.slots
	near, far := net.Pipe()
	defer far.Close()
	c := newConn(s, near, "")
	defer near.Close()
	c.slot = table.Force(0)
	table.Charge(c.slot, plainCost)
	c.used.Store(true)
	c.idleFrom.Store(int64(s.now().Add(-idleFor)))
	c.client.Enter(downstream.PhaseIdle)
	other := table.Force(0)
	if table.TryCharge(other, 2*plainCost, slots.Request) {
		t.Fatal("there was room")
	}
	if !s.clients.end(&victim{c: c}) || c.slot.Cost() != 0 || !table.TryCharge(other, 2*plainCost, slots.Request) {
		t.Errorf("it is still charged %d", c.slot.Cost())
	}
}

// stuckUpstream answers all but requests for /hang.
func stuckUpstream(t *testing.T) *peers.Upstream {
	return peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			if strings.HasPrefix(headers, "GET /hang") {
				_, _ = io.Copy(io.Discard, c.Conn)
				return
			}
			c.Say(peers.OK200)
		}
	})
}

// greedy has a client send n requests for /hang at once over one connection, which end with the test.
func greedy(t *testing.T, p *testProxy, n int) {
	t.Helper()
	// One connection from the start: a Transport that is still dialling takes some of 30 requests at once for sent.
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, HTTP2: &http.HTTP2Config{StrictMaxConcurrentRequests: true}}
	client, err := transport.NewClientConn(t.Context(), "http", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	for range n {
		all.Go(func() {
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+p.Addr+"/hang", nil)
			if res, err := client.RoundTrip(req); err == nil {
				_ = res.Body.Close()
			}
		})
	}
}

func TestHTTP2ClientsGiveTheirSlotsToOthers(t *testing.T) {
	u := stuckUpstream(t)
	p := startProxy(t, u, peers.SpeakHTTP2)
	p.clients.streams.most = 8
	for i, sends := range []int{4, 6, 7, 8, 9} { // the fifth takes one of the first
		greedy(t, p, 30)
		peers.Soon(t, fmt.Sprint("the share of connection ", i+1), func() bool { return u.Sends() >= sends })
	}
	if res, body := p.Fetch(peers.HTTP2Client(t, nil), "GET", "/", nil); res.StatusCode != 200 || body != "ok" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

func TestAStreamWithoutASlotIsRefusedInTime(t *testing.T) {
	var mu sync.Mutex
	refused := map[http1.Refusal]int{}
	u := stuckUpstream(t)
	p := startProxy(t, u, func(c *Config) {
		peers.SpeakHTTP2(c)
		c.Refused = func(why http1.Refusal) { mu.Lock(); defer mu.Unlock(); refused[why]++ }
	})
	p.clients.streams.most = 2
	greedy(t, p, 1)
	peers.Soon(t, "the first", func() bool { return u.Sends() == 1 })
	greedy(t, p, 1)
	peers.Soon(t, "the second", func() bool { return u.Sends() == 2 })
	client := peers.HTTP2Client(t, nil)
	began := time.Now()
	res, _ := p.Fetch(client, "GET", "/", nil)
	if res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" || time.Since(began) < slotWait {
		t.Errorf("%d %v after %v", res.StatusCode, res.Header, time.Since(began))
	}
	req, _ := http.NewRequest("POST", "http://"+p.Addr+"/s/M", struct{ io.Reader }{strings.NewReader("x")}) // which the client cannot repeat
	req.Header.Set("Content-Type", "application/grpc")
	if res, err := client.Do(req); err == nil || !strings.Contains(err.Error(), "REFUSED_STREAM") {
		t.Errorf("gRPC: %v %v", res, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if refused[http1.RefusalNoStreamSlot] != 2 {
		t.Errorf("counted: %v", refused)
	}
}

// HTTP/2 clients that let nothing through give their slots to those who do.
func TestStalledStreamsGiveTheirSlotsToOthers(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", 4*peers.MiB)
			_, _ = c.Write(make([]byte, 4*peers.MiB))
		}
	})
	p := startProxy(t, u, func(c *Config) { peers.SpeakHTTP2(c); c.MaxConnections = 2 })
	for i := range 2 {
		res, err := peers.HTTP2Client(t, nil).Get("http://" + p.Addr + "/")
		if err != nil {
			t.Fatal(i, err)
		}
		defer res.Body.Close() // which is not read before
	}
	for range 2 {
		if res, body := p.Fetch(peers.HTTP2Client(t, nil), "GET", "/", nil); res.StatusCode != 200 || len(body) != 4*peers.MiB {
			t.Errorf("%d, %d bytes", res.StatusCode, len(body))
		}
	}
}

func TestAStreamsShareIsWhatIsLeft(t *testing.T) {
	l := newStreamSlots(16, clock.New())
	for i, want := range []int{7, 4, 2, 1, 1, 1} {
		h := &http2Conn{}
		for l.free(h) {
			l.occupy(&streamSlot{h: h})
		}
		if got := len(h.share.slots); got != want {
			t.Errorf("connection %d got %d slots, want %d", i+1, got, want)
		}
	}
	if l.victim(&http2Conn{}) != nil {
		t.Error("a stream was ended that had just begun")
	}
	for _, h := range l.holders {
		h.share.slots[0].since = clock.LongAgo
	}
	if got := l.victim(&http2Conn{}); got == nil || len(got.h.share.slots) != 7 {
		t.Error("a connection without a slot gets none of the one that has the most")
	}
}

// endedStreams counts the streams that were ended.
type endedStreams struct{ ends int }

func (e *endedStreams) Done() <-chan struct{} { return nil }
func (e *endedStreams) Reset(http2.Code)      { e.ends++ }

// A slot serves one stream after another: what has given it back is not ended for it.
func TestAStreamThatHasEndedIsNotEndedForItsSlot(t *testing.T) {
	l := newStreamSlots(2, clock.New())
	greedy, stream := &http2Conn{}, &endedStreams{}
	slots := []*streamSlot{{h: greedy, stream: stream}, {h: greedy, stream: stream}}
	for _, slot := range slots {
		l.occupy(slot)
		slot.since = clock.LongAgo
	}
	l.preempt(&http2Conn{})
	l.give(slots[0])
	l.preempt(&http2Conn{})
	if stream.ends != 1 {
		t.Errorf("ended %d times", stream.ends)
	}
	if l.occupy(slots[0]); slots[0].taken {
		t.Error("the next stream counts as ending")
	}
}

// A client that opens as many streams as it may has a slot for each, if others have none.
func TestWhatIsAdvertisedIsServed(t *testing.T) {
	for most := 1; most < 3000; most++ {
		l := newStreamSlots(most, clock.New())
		h := &http2Conn{}
		for range l.ofOne(1000) {
			if !l.free(h) {
				t.Fatalf("%d slots: %d of %d", most, len(h.share.slots), l.ofOne(1000))
			}
			l.occupy(&streamSlot{h: h})
		}
	}
}

// A connection with few streams is not reset for those of others, even if no stream of theirs can be refused instead.
func TestAConnectionMayAlwaysBeginAFewStreams(t *testing.T) {
	l := newStreamSlots(1, clock.New())
	greedy, modest := &http2Conn{}, &http2Conn{}
	began := 0
	for l.beginStream(greedy) {
		began++
	}
	if began != leastHandlers || !l.beginStream(modest) || !l.beginStream(modest) || l.beginStream(modest) {
		t.Errorf("%d and then %d began", began, modest.share.handlers)
	}
}

// Streams count against the process's limit of clients, and wait for a place
// without keeping the connection's other streams from ending.
func TestHTTP2StreamsAreLimitedOverAllClients(t *testing.T) {
	var mu sync.Mutex
	now, most := 0, 0
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
			c.Say(peers.OK200)
		}
	})
	p := startProxy(t, u, func(c *Config) { peers.SpeakHTTP2(c); c.MaxConnections = 3 })
	p.clients.evicting.stalledFor.Store(int64(time.Hour)) // on a busy machine a client reads late, and its turn comes late
	p.clients.streams.slotWait, p.clients.streams.preemptAfter = 2*time.Hour, time.Hour
	var all sync.WaitGroup
	for range 2 {
		client := peers.HTTP2Client(t, nil)
		p.GetAtOnce(client, 1)
		for range p.clients.streams.ofOne(10) { // as many as its one connection may begin
			all.Go(func() {
				for range 10 {
					p.GetAtOnce(client, 1)
				}
			})
		}
	}
	all.Wait()
	if most > 3 {
		t.Errorf("%d requests in flight at once, want at most 3", most)
	}
}
