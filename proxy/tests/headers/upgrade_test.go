package headers

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

func TestUpgradeBecomesATunnel(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		if c.Head() == "" {
			return
		}
		c.Say("%s", peers.Switching101)
		_, _ = io.Copy(c.Conn, c.Reader) // echo
	})
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	c := p.Dial().Send(peers.UpgradeRequest)
	c.WantRaw(peers.Switched)
	for _, s := range []string{"\x81\x05hello", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("\x00", 200_000)} {
		go func() { _, _ = io.WriteString(c.Conn, s) }()
		c.WantRaw(s)
	}
	c.CloseWrite() // half close: the echo's end comes back
	c.WantEnd("")
	p.WantOutcome(0, policy.OutcomeUpgraded)
	want := peers.RequestText("GET /chat HTTP/1.1", "Host: a", "Sec-WebSocket-Version: 13", "Connection: upgrade", "Upgrade: websocket")
	if got := peers.WithoutAdded(u.Head(0)); got != want {
		t.Errorf("upstream got %q, want %q", got, want)
	}
}

func TestATunnelGoesOnInOneDirectionAfterTheOtherEnded(t *testing.T) {
	t.Run("client ends first", func(t *testing.T) {
		u := peers.StartUpstream(t, func(c *peers.Conn) {
			c.Head()
			c.Say("%s", peers.Switching101)
			if got, err := c.EndOfInput(); got != "bye" || err != nil {
				t.Errorf("upstream got %q, %v", got, err)
			}
			c.Say("still here")
		})
		c := proxytest.Start(t, u, peers.AddNothingToResponses).Dial().Send(peers.UpgradeRequest)
		c.WantRaw(peers.Switched)
		c.Send("bye").CloseWrite()
		c.WantEnd("still here")
	})
	t.Run("upstream ends first", func(t *testing.T) {
		got := make(chan string, 1)
		u := peers.StartUpstream(t, func(c *peers.Conn) {
			c.Head()
			c.Say(peers.Switching101 + "bye")
			_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
			s, _ := c.EndOfInput()
			got <- s
		})
		c := proxytest.Start(t, u, peers.AddNothingToResponses).Dial().Send(peers.UpgradeRequest)
		c.WantEnd(peers.Switched + "bye")
		c.Send("still here").CloseWrite()
		if s := peers.Within(t, "the client's end upstream", got); s != "still here" {
			t.Errorf("upstream got %q", s)
		}
	})
}

func TestBytesSentEarlyReachTheTunnelInOrder(t *testing.T) {
	got := make(chan string, 1)
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		time.Sleep(2 * downstream.PollEvery) // the client's bytes are read ahead meanwhile
		c.Say(peers.Switching101 + "from upstream")
		s, _ := c.EndOfInput()
		got <- s
	})
	c := proxytest.Start(t, u, peers.AddNothingToResponses).Dial().Send(peers.UpgradeRequest + "early ")
	time.Sleep(downstream.PollEvery + downstream.PollEvery/2)
	c.Send("later ")
	c.WantRaw(peers.Switched + "from upstream")
	c.Send("last").CloseWrite()
	if s := peers.Within(t, "the client's bytes upstream", got); s != "early later last" {
		t.Errorf("upstream got %q", s)
	}
}

func TestUpgradeWithABodyTunnelsAfterIt(t *testing.T) {
	got := make(chan string, 1)
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		headers := c.Head()
		body := string(peers.DiscardBody(c, headers))
		c.Say("%s", peers.Switching101)
		s, _ := c.EndOfInput()
		got <- body + "|" + s
	})
	c := proxytest.Start(t, u, peers.AddNothingToResponses).Dial()
	c.Send(peers.RequestText("POST / HTTP/1.1", "Host: a", "Connection: Upgrade", "Upgrade: x", "Transfer-Encoding: chunked") + "4\r\nbody\r\n0\r\n\r\ntunnel")
	c.WantRaw(peers.Switched)
	c.CloseWrite()
	if s := peers.Within(t, "the tunnel's end", got); s != "body|tunnel" {
		t.Errorf("upstream got %q", s)
	}
}

func TestARefusedUpgradeIsAnOrdinaryAnswer(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script("HTTP/1.1 426 Upgrade Required\r\nConnection: upgrade\r\nUpgrade: other\r\nContent-Length: 2\r\n\r\nno", peers.OK200))
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	c := p.Dial().Send(peers.UpgradeRequest)
	c.WantRaw("HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\nno")
	c.Send(peers.Get("/")).WantRaw(peers.OK200)
	if u.Connections() != 1 {
		t.Errorf("%d upstream connections, want 1", u.Connections())
	}
}

func TestAnUpgradeIsRetriedLikeAnyRequest(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.Bad503, peers.Switching101+"x"))
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	p.Dial().Send(peers.UpgradeRequest).WantRaw(peers.Switched + "x")
	if u.Sends() != 2 || peers.FieldOf(u.Head(1), "Upgrade") != "websocket" {
		t.Errorf("%d sends, the last %q", u.Sends(), u.Head(1))
	}
}

func TestAnUnasked101IsA502(t *testing.T) {
	chunked := peers.RequestText("PUT / HTTP/1.1", "Host: a", "Connection: upgrade", "Upgrade: x", "Transfer-Encoding: chunked")
	for name, tc := range map[string]struct{ request, answer string }{
		"no Upgrade":               {peers.Get("/"), peers.Switching101},
		"Upgrade, not named":       {peers.RequestText("GET / HTTP/1.1", "Host: a", "Upgrade: websocket"), peers.Switching101},
		"HTTP/1.0":                 {peers.RequestText("GET / HTTP/1.0", "Host: a", "Connection: upgrade", "Upgrade: websocket"), peers.Switching101},
		"h2c":                      {peers.RequestText("GET / HTTP/1.1", "Host: a", "Connection: upgrade", "Upgrade: h2c"), "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"},
		"no protocol named":        {peers.UpgradeRequest, "HTTP/1.1 101 Switching Protocols\r\n\r\n"},
		"before the end of a body": {chunked, peers.Switching101},
	} {
		t.Run(name, func(t *testing.T) {
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				if c.Head() != "" {
					c.Say("%s", tc.answer)
					_, _ = c.EndOfInput()
				}
			})
			p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.Policy.MaxRetries = 0 })
			p.Dial().Send(tc.request).Want(502, "*")
			if c := p.Seen.Classes; len(c) != 1 || c[0] != policy.Unknown {
				t.Errorf("classes %v, want one unknown", c)
			}
		})
	}
}

func TestAnIdleTunnelEnds(t *testing.T) {
	handle := func(c *peers.Conn) {
		c.Head()
		c.Say("%s", peers.Switching101)
		for range 3 {
			time.Sleep(9 * time.Second)
			c.Say("x")
		}
		_, _ = c.EndOfInput()
	}
	proxytest.InMemory(t, handle, peers.AddNothingToResponses, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client().Send(peers.UpgradeRequest)
		c.WantRaw(peers.Switched + "xxx") // one direction moving keeps both alive
		quiet := time.Now()
		c.WantEnd("")
		if d := time.Since(quiet); d < 10*time.Second || d > 20*time.Second {
			t.Errorf("ended %v after the last byte, want 10 to 20 s", d)
		}
		synctest.Wait()
		if o := m.Seen.Outcome(t, 0); o != policy.OutcomeUpgraded {
			t.Errorf("outcome %v", o)
		}
	})
}

func TestATunnelWhoseUpstreamBreaksEndsForTheClient(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say("%s", peers.Switching101)
		c.Body(2)
		c.Reset()
	})
	c := proxytest.Start(t, u, peers.AddNothingToResponses).Dial().Send(peers.UpgradeRequest)
	c.WantRaw(peers.Switched)
	c.Send("go")
	if s, err := c.Rest(); s != "" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %q, %v, want a reset", s, err)
	}
}

// The kernel reports a reset once: if a write gets it, a read sees an ordinary end.
func TestATunnelThatIsToldOfAResetWhileItWritesLooksCut(t *testing.T) {
	t.Run("nobody reads", func(t *testing.T) {
		reset := make(chan struct{})
		u := peers.StartUpstream(t, func(c *peers.Conn) {
			c.Head()
			c.Say("%s", peers.Switching101)
			for sending := true; sending; { // more than anybody takes
				_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
				_, err := c.Write(make([]byte, 1<<20))
				sending = err == nil
			}
			c.Reset()
			close(reset)
		})
		c := proxytest.Start(t, u, peers.AddNothingToResponses).Dial().Send(peers.UpgradeRequest)
		peers.Within(t, "the reset", reset)
		time.Sleep(20 * time.Millisecond) // until it is there
		c.Send("x")
		if _, err := io.Copy(io.Discard, c.Reader); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v, want a reset", err)
		}
	})
	t.Run("both at once", func(t *testing.T) {
		u := peers.StartUpstream(t, func(c *peers.Conn) {
			c.Head()
			c.Say("%s", peers.Switching101)
			c.Body(10_000)
			c.Reset()
		})
		p := proxytest.Start(t, u, peers.AddNothingToResponses)
		for range 300 {
			c := p.Dial().Send(peers.UpgradeRequest)
			c.WantRaw(peers.Switched)
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
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say("%s", peers.Switching101)
		_, err := c.EndOfInput()
		ended <- err
	})
	c := proxytest.Start(t, u, peers.AddNothingToResponses).Dial().Send(peers.UpgradeRequest)
	c.WantRaw(peers.Switched)
	c.Reset()
	if err := peers.Within(t, "the upstream's end", ended); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
}

// A tunnel that neither side ends does not make a drain cut connections off: both sides are
// half-closed, and what was sent before arrives.
func TestADrainEndsTunnelsInOrder(t *testing.T) {
	ended := make(chan error, 1)
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		if c.Head() == "" {
			return
		}
		c.Say(peers.Switching101 + "hello")
		got, err := c.EndOfInput()
		if got != "bye" && err == nil {
			err = errors.New("got " + got)
		}
		ended <- err
	})
	short := func(c *proxy.Config) {
		peers.AddNothingToResponses(c)
		peers.SpeakHTTP2(c)
		c.DrainTimeout = 2 * time.Second
	}
	drained := func(t *testing.T, p *proxytest.Proxy) chan error {
		end := make(chan error, 1)
		go func() { end <- p.Drain(t.Context()) }()
		return end
	}
	finish := func(t *testing.T, end chan error) {
		t.Helper()
		if err := peers.Within(t, "the drain's end", end); err != nil {
			t.Error(err)
		}
		if err := peers.Within(t, "the upstream's end", ended); err != nil {
			t.Error(err)
		}
	}
	t.Run("HTTP/1.1", func(t *testing.T) {
		p := proxytest.Start(t, u, short)
		c := p.Dial().Send(peers.UpgradeRequest)
		c.WantRaw(peers.Switched + "hello")
		c.Send("bye")
		end := drained(t, p)
		c.WantEnd("")
		_ = c.Close()
		finish(t, end)
	})
	t.Run("HTTP/2", func(t *testing.T) {
		p := proxytest.Start(t, u, short)
		w := p.OpenWebSocket(t, "websocket")
		if _, err := io.WriteString(w.To, "bye"); err != nil {
			t.Fatal(err)
		}
		end := drained(t, p)
		if got, err := io.ReadAll(w.From); string(got) != "hello" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		finish(t, end)
	})
}
