package proxy

import (
	"io"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/tcptest"
)

// delayingRates returns what each client, or stream, that delays the proxy moves, in bytes per second.
func (p *testProxy) delayingRates() (rates []float64) {
	now := p.process.Clock.Now()
	p.connected.each(func(c *conn) {
		if d, _ := c.delaying(now); d == delayBody || d == delayHeaders && c.client.Phase() == downstream.PhaseHeaders {
			rate, _ := c.rate(p.process.Clock.Since(now))
			rates = append(rates, rate)
		}
	})
	return rates
}

// What a client moved before it began to delay the proxy does not protect it from eviction; what has come of
// a body does.
func TestOnlyTheBodyThatIsAwaitedIsProgress(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			if strings.HasPrefix(headers, "POST") {
				_, _ = io.Copy(io.Discard, c.Conn)
				return
			}
			c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", peers.MiB, strings.Repeat("a", peers.MiB))
		}
	})
	for name, tc := range map[string]struct {
		responded bool // before
		sends     string
		fast      bool
	}{
		"large headers":           {sends: largeHeaders + "\r\na"},
		"an earlier response":     {responded: true, sends: slowBody},
		"slow headers":            {responded: true, sends: "POST / HTTP/1.1\r\nHo"},
		"a body that has arrived": {sends: largeHeaders + "\r\n" + strings.Repeat("a", 40<<10), fast: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, u, func(c *Config) { c.MaxConnections = 2 })
			c := p.Dial()
			if tc.responded {
				c.Send(peers.Get("/")).Want(200, strings.Repeat("a", peers.MiB))
			}
			c.Send(tc.sends)
			peers.Soon(t, "a client that delays the proxy", func() bool {
				rates := p.delayingRates()
				if len(rates) == 1 && !tc.fast && rates[0] >= leastUploadRate {
					t.Fatalf("%v bytes per second", rates[0])
				}
				return len(rates) == 1 && (rates[0] >= leastUploadRate) == tc.fast
			})
		})
	}
}

// A client whose bytes wait for the proxy does not delay it: the machine is busy.
func TestAClientWhoseBytesAreUnreadIsNotSlow(t *testing.T) {
	s, err := New(peers.NewConfig(t, "http://127.0.0.1:1", &peers.Recorder{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, phase := range []int32{downstream.PhaseIdle, downstream.PhaseHeaders} {
		near, far := tcptest.Pair(t)
		c := newConn(s, near, "")
		c.client.Enter(phase)
		if d, _ := c.delaying(s.process.Clock.Now()); d != delayHeaders {
			t.Errorf("a silent one: %v", d)
		}
		if _, err := io.WriteString(far, peers.Get("/")); err != nil {
			t.Fatal(err)
		}
		peers.Soon(t, "its bytes", c.client.HasUnread)
		if d, _ := c.delaying(s.process.Clock.Now()); d != delayNone {
			t.Errorf("%v", d)
		}
	}
}

// A client that was parked begins anew, too.
func TestWhatWasMovedBeforeParkingIsNoProgress(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", peers.MiB, strings.Repeat("a", peers.MiB))
		c.Head()
		_, _ = io.Copy(io.Discard, c.Conn)
	})
	p := startProxy(t, u, func(c *Config) { parksAtOnce(c); c.MaxConnections = 2 })
	c := p.Dial()
	c.Send(peers.Get("/")).Want(200, strings.Repeat("a", peers.MiB))
	p.wantParked(1)
	c.Send(peers.Get("/hang"))
	peers.Soon(t, "no progress of its next request", func() bool {
		slow := u.Sends() == 2
		p.connected.each(func(c *conn) {
			rate, _ := c.rate(p.process.Clock.Elapsed())
			slow = slow && rate < leastUploadRate
		})
		return slow
	})
}

// The progress of an HTTP/2 client is that of its bodies, each stream's its own: headers are free.
func TestOnlyBodiesAreProgressOverHTTP2(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		_, _ = io.Copy(io.Discard, c.Conn)
	})
	p := startProxy(t, u, func(c *Config) { peers.SpeakHTTP2(c); c.MaxConnections = 100 })
	_, f := p.DialFramer()
	const n = 20
	for i := range n {
		peers.WriteHeaders(t, f, uint32(2*i+1), "POST", false)
	}
	awaited := func() (slow, fast int) {
		rates := p.delayingRates()
		for _, rate := range rates {
			if rate >= leastUploadRate {
				fast++
			} else {
				slow++
			}
		}
		return slow, fast
	}
	peers.Soon(t, "the streams and their connection", func() bool { slow, fast := awaited(); return slow == n+1 && fast == 0 })
	for range 8 {
		if err := f.WriteData(3, false, make([]byte, 8<<10)); err != nil {
			t.Fatal(err)
		}
	}
	peers.Soon(t, "one stream and the connection to be fast", func() bool { slow, fast := awaited(); return slow == n-1 && fast == 2 })
}
