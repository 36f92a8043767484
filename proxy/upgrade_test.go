package proxy

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

var (
	upgradeRequest = requestText("GET /chat HTTP/1.1", "Host: a", "Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
	switching101   = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n"
	switched       = "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
)

func TestUpgradeBecomesATunnel(t *testing.T) {
	u := startUpstream(t, func(c *upConn) {
		if c.head() == "" {
			return
		}
		c.say("%s", switching101)
		_, _ = io.Copy(c.Conn, c.Reader) // echo
	})
	p := startProxy(t, u, bare)
	c := p.dial().send(upgradeRequest)
	c.wantRaw(switched)
	for _, s := range []string{"\x81\x05hello", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("\x00", 200_000)} {
		go func() { _, _ = io.WriteString(c.Conn, s) }()
		c.wantRaw(s)
	}
	c.closeWrite() // half close: the echo's end comes back
	c.wantEnd("")
	p.wantOutcome(0, policy.OutcomeUpgraded)
	want := requestText("GET /chat HTTP/1.1", "Host: a", "Sec-WebSocket-Version: 13", "Connection: upgrade", "Upgrade: websocket")
	if got := withoutAdded(u.head(0)); got != want {
		t.Errorf("upstream got %q, want %q", got, want)
	}
}

func TestATunnelGoesOnInOneDirectionAfterTheOtherEnded(t *testing.T) {
	t.Run("client ends first", func(t *testing.T) {
		u := startUpstream(t, func(c *upConn) {
			c.head()
			c.say("%s", switching101)
			if got, err := c.endOfInput(); got != "bye" || err != nil {
				t.Errorf("upstream got %q, %v", got, err)
			}
			c.say("still here")
		})
		c := startProxy(t, u, bare).dial().send(upgradeRequest)
		c.wantRaw(switched)
		c.send("bye").closeWrite()
		c.wantEnd("still here")
	})
	t.Run("upstream ends first", func(t *testing.T) {
		got := make(chan string, 1)
		u := startUpstream(t, func(c *upConn) {
			c.head()
			c.say(switching101 + "bye")
			_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
			s, _ := c.endOfInput()
			got <- s
		})
		c := startProxy(t, u, bare).dial().send(upgradeRequest)
		c.wantEnd(switched + "bye")
		c.send("still here").closeWrite()
		if s := within(t, "the client's end upstream", got); s != "still here" {
			t.Errorf("upstream got %q", s)
		}
	})
}

func TestBytesSentEarlyReachTheTunnelInOrder(t *testing.T) {
	got := make(chan string, 1)
	u := startUpstream(t, func(c *upConn) {
		c.head()
		time.Sleep(2 * downstream.PollEvery) // the client's bytes are read ahead meanwhile
		c.say(switching101 + "from upstream")
		s, _ := c.endOfInput()
		got <- s
	})
	c := startProxy(t, u, bare).dial().send(upgradeRequest + "early ")
	time.Sleep(downstream.PollEvery + downstream.PollEvery/2)
	c.send("later ")
	c.wantRaw(switched + "from upstream")
	c.send("last").closeWrite()
	if s := within(t, "the client's bytes upstream", got); s != "early later last" {
		t.Errorf("upstream got %q", s)
	}
}

func TestUpgradeWithABodyTunnelsAfterIt(t *testing.T) {
	got := make(chan string, 1)
	u := startUpstream(t, func(c *upConn) {
		headers := c.head()
		body := string(discardBody(c, headers))
		c.say("%s", switching101)
		s, _ := c.endOfInput()
		got <- body + "|" + s
	})
	c := startProxy(t, u, bare).dial()
	c.send(requestText("POST / HTTP/1.1", "Host: a", "Connection: Upgrade", "Upgrade: x", "Transfer-Encoding: chunked") + "4\r\nbody\r\n0\r\n\r\ntunnel")
	c.wantRaw(switched)
	c.closeWrite()
	if s := within(t, "the tunnel's end", got); s != "body|tunnel" {
		t.Errorf("upstream got %q", s)
	}
}

func TestARefusedUpgradeIsAnOrdinaryAnswer(t *testing.T) {
	u := startUpstream(t, script("HTTP/1.1 426 Upgrade Required\r\nConnection: upgrade\r\nUpgrade: other\r\nContent-Length: 2\r\n\r\nno", ok200))
	p := startProxy(t, u, bare)
	c := p.dial().send(upgradeRequest)
	c.wantRaw("HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\nno")
	c.send(get("/")).wantRaw(ok200)
	if u.connections() != 1 {
		t.Errorf("%d upstream connections, want 1", u.connections())
	}
}

func TestAnUpgradeIsRetriedLikeAnyRequest(t *testing.T) {
	u := startUpstream(t, script(bad503, switching101+"x"))
	p := startProxy(t, u, bare)
	p.dial().send(upgradeRequest).wantRaw(switched + "x")
	if u.sends() != 2 || fieldOf(u.head(1), "Upgrade") != "websocket" {
		t.Errorf("%d sends, the last %q", u.sends(), u.head(1))
	}
}

func TestAnUnasked101IsA502(t *testing.T) {
	chunked := requestText("PUT / HTTP/1.1", "Host: a", "Connection: upgrade", "Upgrade: x", "Transfer-Encoding: chunked")
	for name, tc := range map[string]struct{ request, answer string }{
		"no Upgrade":               {get("/"), switching101},
		"Upgrade, not named":       {requestText("GET / HTTP/1.1", "Host: a", "Upgrade: websocket"), switching101},
		"HTTP/1.0":                 {requestText("GET / HTTP/1.0", "Host: a", "Connection: upgrade", "Upgrade: websocket"), switching101},
		"h2c":                      {requestText("GET / HTTP/1.1", "Host: a", "Connection: upgrade", "Upgrade: h2c"), "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"},
		"no protocol named":        {upgradeRequest, "HTTP/1.1 101 Switching Protocols\r\n\r\n"},
		"before the end of a body": {chunked, switching101},
	} {
		t.Run(name, func(t *testing.T) {
			u := startUpstream(t, func(c *upConn) {
				if c.head() != "" {
					c.say("%s", tc.answer)
					_, _ = c.endOfInput()
				}
			})
			p := startProxy(t, u, func(c *Config) { c.Default.Policy.MaxRetries = 0 })
			p.dial().send(tc.request).want(502, "*")
			if c := p.seen.classes; len(c) != 1 || c[0] != policy.Unknown {
				t.Errorf("classes %v, want one unknown", c)
			}
		})
	}
}

func TestAnIdleTunnelEnds(t *testing.T) {
	handle := func(c *upConn) {
		c.head()
		c.say("%s", switching101)
		for range 3 {
			time.Sleep(9 * time.Second)
			c.say("x")
		}
		_, _ = c.endOfInput()
	}
	inMemory(t, handle, bare, func(t *testing.T, m *memory) {
		c := m.client().send(upgradeRequest)
		c.wantRaw(switched + "xxx") // one direction moving keeps both alive
		quiet := time.Now()
		c.wantEnd("")
		if d := time.Since(quiet); d < 10*time.Second || d > 20*time.Second {
			t.Errorf("ended %v after the last byte, want 10 to 20 s", d)
		}
		synctest.Wait()
		if o := m.seen.outcome(t, 0); o != policy.OutcomeUpgraded {
			t.Errorf("outcome %v", o)
		}
	})
}

func TestATunnelWhoseUpstreamBreaksEndsForTheClient(t *testing.T) {
	u := startUpstream(t, func(c *upConn) {
		c.head()
		c.say("%s", switching101)
		c.body(2)
		c.reset()
	})
	c := startProxy(t, u, bare).dial().send(upgradeRequest)
	c.wantRaw(switched)
	c.send("go")
	if s, err := c.rest(); s != "" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %q, %v, want a reset", s, err)
	}
}

// The kernel reports a reset once: if a write gets it, a read sees an ordinary end.
func TestATunnelThatIsToldOfAResetWhileItWritesLooksCut(t *testing.T) {
	t.Run("nobody reads", func(t *testing.T) {
		reset := make(chan struct{})
		u := startUpstream(t, func(c *upConn) {
			c.head()
			c.say("%s", switching101)
			for sending := true; sending; { // more than anybody takes
				_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
				_, err := c.Write(make([]byte, 1<<20))
				sending = err == nil
			}
			c.reset()
			close(reset)
		})
		c := startProxy(t, u, bare).dial().send(upgradeRequest)
		within(t, "the reset", reset)
		time.Sleep(20 * time.Millisecond) // until it is there
		c.send("x")
		if _, err := io.Copy(io.Discard, c.r); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v, want a reset", err)
		}
	})
	t.Run("both at once", func(t *testing.T) {
		u := startUpstream(t, func(c *upConn) {
			c.head()
			c.say("%s", switching101)
			c.body(10_000)
			c.reset()
		})
		p := startProxy(t, u, bare)
		for range 300 {
			c := p.dial().send(upgradeRequest)
			c.wantRaw(switched)
			told := rawsocket.Wrap(c.Conn) // the client writes and reads too
			written := make(chan struct{})
			go func() {
				defer close(written)
				for err := error(nil); err == nil; {
					_, err = told.Write(make([]byte, 100))
				}
			}()
			if s, err := io.ReadAll(told); len(s) > 0 || !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("got %q, %v, want a reset", s, err)
			}
			<-written
			_ = c.Close()
		}
	})
}

func TestATunnelWhoseClientBreaksEndsForTheUpstream(t *testing.T) {
	ended := make(chan error, 1)
	u := startUpstream(t, func(c *upConn) {
		c.head()
		c.say("%s", switching101)
		_, err := c.endOfInput()
		ended <- err
	})
	c := startProxy(t, u, bare).dial().send(upgradeRequest)
	c.wantRaw(switched)
	c.reset()
	if err := within(t, "the upstream's end", ended); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
}

// A tunnel that neither side ends does not make a drain cut connections off: both sides are
// half-closed, and what was sent before arrives.
func TestADrainEndsTunnelsInOrder(t *testing.T) {
	ended := make(chan error, 1)
	u := startUpstream(t, func(c *upConn) {
		if c.head() == "" {
			return
		}
		c.say(switching101 + "hello")
		got, err := c.endOfInput()
		if got != "bye" && err == nil {
			err = errors.New("got " + got)
		}
		ended <- err
	})
	short := func(c *Config) { bare(c); speakHTTP2(c); c.DrainTimeout = 2 * time.Second }
	drained := func(t *testing.T, p *testProxy) chan error {
		end := make(chan error, 1)
		go func() { end <- p.Drain(t.Context()) }()
		return end
	}
	finish := func(t *testing.T, end chan error) {
		t.Helper()
		if err := within(t, "the drain's end", end); err != nil {
			t.Error(err)
		}
		if err := within(t, "the upstream's end", ended); err != nil {
			t.Error(err)
		}
	}
	t.Run("HTTP/1.1", func(t *testing.T) {
		p := startProxy(t, u, short)
		c := p.dial().send(upgradeRequest)
		c.wantRaw(switched + "hello")
		c.send("bye")
		end := drained(t, p)
		c.wantEnd("")
		_ = c.Close()
		finish(t, end)
	})
	t.Run("HTTP/2", func(t *testing.T) {
		p := startProxy(t, u, short)
		w := p.openWebSocket(t, "websocket")
		if _, err := io.WriteString(w.to, "bye"); err != nil {
			t.Fatal(err)
		}
		end := drained(t, p)
		if got, err := io.ReadAll(w.from); string(got) != "hello" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		finish(t, end)
	})
}
