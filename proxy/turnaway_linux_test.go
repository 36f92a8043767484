package proxy

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/internal/tcptest"
)

const slowBody = "POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 1000000\r\n\r\na"

var largeHeaders = "POST / HTTP/1.1\r\nHost: app.test\r\nX-A: " + strings.Repeat("a", 8<<10) + "\r\nContent-Length: 1000000\r\n"

// Whoever makes the least progress leaves first, whatever it is doing, and gets a 503.
func TestTheSlowestClientGivesItsSlotToOthers(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			if strings.HasPrefix(headers, "POST") {
				_, _ = io.Copy(io.Discard, c.Conn)
				return
			}
			c.Say(peers.OK200)
		}
	})
	for name, slow := range map[string]string{"body": slowBody, "body after large headers": largeHeaders + "\r\na", "chunked body": "POST / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\na", "headers": "GET / HTTP/1.1\r\nX-A: a"} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, u, func(c *Config) { c.MaxConnections = 2 })
			fast := p.Dial()
			fast.Send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("a", 512<<10))
			last := p.Dial().Send(slow)
			peers.Soon(t, "a full house", func() bool { return p.Stats().Connections == 2 })
			p.Dial().Send(peers.Get("/")).Want(200, "ok")
			if res := last.Want(503, "*"); res.Header.Get("Retry-After") != "1" {
				t.Errorf("no Retry-After: %v", res.Header)
			}
			if n := p.Stats().EvictedSlow; n != 1 {
				t.Errorf("%d evicted, want the slow one only", n)
			}
			_, _ = fast.Write([]byte("a")) // it is still there
			if p.Stats().Connections == 0 {
				t.Error("the fast client was evicted too")
			}
		})
	}
}

// A slow client stays as long as there are slots.
func TestASlowClientStaysWhileSlotsArePlentiful(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			if strings.HasPrefix(headers, "POST") {
				_, _ = io.CopyN(io.Discard, c, 2)
			}
			c.Say(peers.OK200)
		}
	})
	p := startProxy(t, u, func(c *Config) { c.MaxConnections = 16 })
	slow := p.Dial().Send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 2\r\n\r\na")
	for range 20 {
		c := p.Dial()
		c.Send(peers.Get("/")).Want(200, "ok")
		c.Close()
	}
	slow.Send("b").Want(200, "ok")
}

// Some slots are kept for requests that need no body. A further body gets a 503 at once.
func TestUploadsLeaveSlotsForRequestsWithoutBody(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			if strings.HasPrefix(headers, "POST") {
				_, _ = io.Copy(io.Discard, c.Conn)
				return
			}
			c.Say(peers.OK200)
		}
	})
	p := startProxy(t, u, func(c *Config) { c.MaxConnections = 4 })
	for range 3 {
		p.Dial().Send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("a", 512<<10))
	}
	peers.Soon(t, "three bodies", func() bool { return p.clients.bodiesAwaited() == 3 })
	res := p.Dial().Send(slowBody).Want(503, "*")
	if res.Header.Get("Retry-After") != "1" {
		t.Errorf("no Retry-After: %v", res.Header)
	}
	p.Dial().Send(peers.Get("/")).Want(200, "ok")
	p.Dial().Send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 1\r\n\r\na") // whole: it needs no slot for a body
	peers.Soon(t, "the small body upstream", func() bool { return u.Sends() == 5 })
}

// A client that has to leave before its request was read can read its 503, even if bytes of it
// have arrived.
func TestAClientWithoutASlotCanReadItsResponse(t *testing.T) {
	s, err := New(peers.NewConfig(t, "http://127.0.0.1:1", &peers.Recorder{}))
	if err != nil {
		t.Fatal(err)
	}
	near, far := tcptest.Pair(t)
	if _, err := io.WriteString(far, peers.Get("/")); err != nil {
		t.Fatal(err)
	}
	raw, err := near.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if err := raw.Read(func(fd uintptr) bool { n, _ := rawsocket.TryPeek(fd, b[:]); return n > 0 }); err != nil {
		t.Fatal(err)
	}
	s.turnAway(acceptedConn{nc: near})
	if got, err := io.ReadAll(far); string(got) != "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if s.Stats().EvictedQueued != 1 {
		t.Error("not counted")
	}
}

// An HTTP/2 connection for which there is no memory gets a GOAWAY that lets its client try again.
func TestAnHTTP2ConnectionWithoutRoomGetsGoAway(t *testing.T) {
	u := stuckUpstream(t)
	p := startProxy(t, u, func(c *Config) {
		peers.SpeakHTTP2(c)
		c.MaxConnections, c.ClientMemory = 0, (plainCost+newcomerCost)*100/55+1
	})
	p.Dial().Send(peers.Get("/hang"))
	peers.Soon(t, "a request in flight", func() bool { return u.Sends() == 1 })
	p.Dial().Send(http2.ClientPreface).WantRaw(goAwayFrames)
}

// halfPreface returns a client that has sent a part of its HTTP/2 preface.
func halfPreface(t *testing.T, p *testProxy) *peers.Client {
	t.Helper()
	c := p.Dial().Send(http2.ClientPreface[:10])
	peers.Soon(t, "half a preface", func() (is bool) {
		p.connected.each(func(c *conn) { is = c.client.Phase() == downstream.PhaseHeaders })
		return is
	})
	return c
}

// A client that is evicted when its preface becomes complete is not served after that: nobody could evict
// it any more.
func TestAClientThatIsEvictedWithinItsPrefaceIsNotServed(t *testing.T) {
	p := startProxy(t, stuckUpstream(t), peers.SpeakHTTP2)
	c := halfPreface(t, p)
	p.connected.each(func(c *conn) { c.evicted.Store(true) })
	c.Send(http2.ClientPreface[10:]).WantRaw(goAwayFrames)
	peers.Soon(t, "its end", func() bool { return p.Stats().Connections == 0 })
}

// A client whose preface came in two pieces is not slow for as long as it is connected.
func TestAPrefaceInTwoPiecesDoesNotDelayForEver(t *testing.T) {
	u := stuckUpstream(t)
	p := startProxy(t, u, peers.SpeakHTTP2)
	c := halfPreface(t, p).Send(http2.ClientPreface[10:])
	f := http2.NewFramer(c.Conn, c.Reader)
	_ = f.WriteSettings()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", "GET"}, {":path", "/hang"}, {":scheme", "http"}, {":authority", "a"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	peers.Soon(t, "its request", func() bool { return u.Sends() == 1 })
	p.connected.each(func(c *conn) {
		if d, _ := c.delaying(p.process.Clock.Now()); d != delayNone {
			t.Errorf("it delays the proxy: %v", d)
		}
	})
}

// Parked clients hold too little for others to gain by their end. A client that waits for memory in vain
// does not evict them.
func TestParkedClientsStayWhenMemoryIsShort(t *testing.T) {
	u := stuckUpstream(t)
	p := startProxy(t, u, func(c *Config) {
		parksAtOnce(c)
		c.MaxConnections, c.ClientMemory = 0, (2*plainCost+4*parkedCost)*100/55
	})
	silent := p.Dial()
	p.wantParked(1)
	for range 2 {
		p.Dial().Send(peers.Get("/hang"))
	}
	peers.Soon(t, "two requests in flight", func() bool { return u.Sends() == 2 })
	time.Sleep(2 * newcomerFor) // the least time that it has
	p.Dial().Send(peers.Get("/")).Want(503, "*")
	if n := p.Stats().EvictedIdle; n != 0 || p.parked.Len() != 1 {
		t.Errorf("%d idle clients were evicted, %d are parked", n, p.parked.Len())
	}
	silent.Send(peers.Get("/")).Want(503, "*")
}

// A whole HTTP/2 connection gives way if its streams do not move, and its room is free at once.
func TestAnHTTP2ConnectionWithIdleStreamsGivesItsRoomToOthers(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			if strings.HasPrefix(headers, "POST") {
				_, _ = io.Copy(io.Discard, c.Conn)
				return
			}
			c.Say(peers.OK200)
		}
	})
	p := startProxy(t, u, func(c *Config) {
		peers.SpeakHTTP2(c)
		c.MaxConnections, c.ClientMemory = 0, (plainCost+http2Cost+parkedCost)*100/55+1
	})
	p.clients.streams.most, p.clients.uploads.most = 4, 0 // on a busy machine a stream would be evicted for the body of the next one
	_, f := p.DialFramer()
	for i := range 4 { // two get a slot, and two wait for theirs
		peers.WriteHeaders(t, f, uint32(2*i+1), "POST", false)
	}
	peers.Soon(t, "streams upstream", func() bool { return u.Sends() > 0 })
	p.Dial().Send(peers.Get("/")).Want(200, "ok")
	if n := p.Stats().EvictedSlow; n != 1 {
		t.Errorf("%d evicted", n)
	}
	for away := false; ; {
		frame, err := f.ReadFrame()
		if err != nil {
			if !away {
				t.Errorf("no GOAWAY before %v", err)
			}
			break
		}
		if _, is := frame.(*http2.GoAwayFrame); is {
			away = true
		}
	}
}

// An HTTP/2 connection is charged little before its first stream, so that there is room for many.
func TestManyHTTP2ConnectionsFit(t *testing.T) {
	p := startProxy(t, stuckUpstream(t), func(c *Config) {
		peers.SpeakHTTP2(c)
		c.MaxConnections, c.ClientMemory = 0, 64<<20*30/100
	})
	const n = 100
	for range n {
		_, f := p.DialFramer()
		if _, err := f.ReadFrame(); err != nil {
			t.Fatal(err)
		}
	}
	if s := p.Stats(); s.EvictedQueued+s.EvictedIdle+s.EvictedSlow > 0 || s.Connections != n {
		t.Errorf("%d connections, %d refused, %d evicted", s.Connections, s.EvictedQueued, s.EvictedSlow)
	}
}

// A client that has to leave before its header ended gets no response: it may speak TLS after it.
func TestAnEvictedClientWithoutItsHeaderGetsNoPlainText(t *testing.T) {
	a := peers.NewAuthority(t)
	conf := peers.NewConfig(t, "http://127.0.0.1:1", &peers.Recorder{})
	peers.ExpectProxyHeader(conf)
	a.ClientsOverTLS(t, conf, false)
	s, err := New(conf)
	if err != nil {
		t.Fatal(err)
	}
	near, far := tcptest.Pair(t)
	c := newConn(s, near, "")
	c.evicted.Store(true)
	s.drain.idleEnd.Store(true) // both at once
	c.serve()
	if got, err := io.ReadAll(far); len(got) > 0 || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
