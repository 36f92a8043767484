package bodies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// What a client sees of a response.
type seenBody struct {
	body string
	err  error // nil: whole; io.ErrUnexpectedEOF: shorter than framed; ECONNRESET
}

func bodySeenBy(c *peers.Client) seenBody {
	_, body, err := c.Response("GET")
	if errors.Is(err, syscall.ECONNRESET) {
		err = syscall.ECONNRESET
	}
	return seenBody{body, err}
}

func TestACutResponseLooksCut(t *testing.T) {
	const (
		length  = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"
		chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"
		closing = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf"
	)
	fin := func(c *peers.Conn) {}
	rst := func(c *peers.Conn) { time.Sleep(20 * time.Millisecond); c.Reset() } // else it would overtake the bytes
	stall := func(c *peers.Conn) { _, _ = c.EndOfInput() }
	cases := []struct {
		name, answer string
		end          func(c *peers.Conn)
		to10         error // what an HTTP/1.0 client sees
	}{
		{"length, end", length, fin, io.ErrUnexpectedEOF},
		{"length, reset", length, rst, io.ErrUnexpectedEOF},
		{"length, stall", length, stall, io.ErrUnexpectedEOF},
		{"chunked, end between chunks", chunked, fin, syscall.ECONNRESET},
		{"chunked, end in a chunk", chunked[:len(chunked)-2], fin, syscall.ECONNRESET},
		{"chunked, end before the last CRLF", chunked + "0\r\n", fin, syscall.ECONNRESET},
		{"chunked, reset", chunked, rst, syscall.ECONNRESET},
		{"chunked, stall", chunked, stall, syscall.ECONNRESET},
		{"chunked, malformed", chunked + "zz\r\n", stall, syscall.ECONNRESET},
		{"chunked, malformed trailer", chunked + "0\r\nno colon\r\n\r\n", stall, syscall.ECONNRESET},
		{"close, reset", closing, rst, syscall.ECONNRESET},
		{"close, stall", closing, stall, syscall.ECONNRESET},
	}
	for _, tc := range cases {
		for version, wantErr := range map[string]error{"1.1": io.ErrUnexpectedEOF, "1.0": tc.to10} {
			t.Run(tc.name+" to "+version, func(t *testing.T) {
				u := peers.StartUpstream(t, func(c *peers.Conn) {
					c.Head()
					if c.N > 1 {
						c.Say(peers.OK200)
						return
					}
					c.Say("%s", tc.answer)
					tc.end(c)
				})
				p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.BodyIdleTimeout = 50 * time.Millisecond })
				c := p.Dial().Send(peers.RequestText("GET / HTTP/"+version, "Host: a"))
				got := bodySeenBy(c)
				if got.err != wantErr || got.body != "half" && wantErr != syscall.ECONNRESET {
					t.Errorf("the client saw %q, %v; want \"half\", %v", got.body, got.err, wantErr)
				}
				p.WantOutcome(0, policy.OutcomeResponseBroken)
				if p.Seen.Codes[0] != 200 || u.Sends() != 1 {
					t.Errorf("code %d, %d sends; want 200, 1", p.Seen.Codes[0], u.Sends())
				}
				p.Dial().Send(peers.Get("/")).Want(200, "ok") // on another upstream connection
				if u.Connections() != 2 {
					t.Errorf("%d upstream connections, want 2", u.Connections())
				}
			})
		}
	}
}

func TestACutLargeResponseLooksCut(t *testing.T) {
	for _, reset := range []bool{false, true} {
		u := peers.StartUpstream(t, func(c *peers.Conn) {
			c.Head()
			c.Say("HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n%s", strings.Repeat("x", 3_000_000))
			if reset {
				c.Reset()
			}
		})
		p := proxytest.Start(t, u, nil)
		_, body, err := p.Dial().Send(peers.Get("/")).Response("GET")
		if err != io.ErrUnexpectedEOF || len(body) > 3_000_000 || !reset && len(body) < 3_000_000 {
			t.Errorf("reset=%v: the client saw %d bytes, %v", reset, len(body), err)
		}
		p.WantOutcome(0, policy.OutcomeResponseBroken)
	}
}

// leave is a way in which a client leaves.
var ways = map[string]struct {
	leave func(c *peers.Client)
	rude  bool
}{
	"close": {func(c *peers.Client) { _ = c.Close() }, false},
	"reset": {func(c *peers.Client) { c.Reset() }, true},
}

func TestACutUploadAbortsTheUpstream(t *testing.T) {
	bodies := map[string]string{
		"length":           peers.RequestText("PUT / HTTP/1.1", "Host: a", "Content-Length: 100") + "half",
		"chunked":          peers.RequestText("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "4\r\nhalf\r\n",
		"within a chunk":   peers.RequestText("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "9\r\nhalf",
		"HTTP/1.0":         peers.RequestText("PUT / HTTP/1.0", "Host: a", "Content-Length: 100") + "half",
		"large, spliced":   peers.RequestText("PUT / HTTP/1.1", "Host: a", "Content-Length: 10000000") + strings.Repeat("x", 3_000_000),
		"large, chunked":   peers.RequestText("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + strings.Repeat("1000\r\n"+strings.Repeat("x", 0x1000)+"\r\n", 500),
		"not a byte of it": peers.RequestText("PUT / HTTP/1.1", "Host: a", "Content-Length: 100"),
	}
	for name, sent := range bodies {
		for way, w := range ways {
			t.Run(name+" by "+way, func(t *testing.T) {
				type ending struct {
					body string
					err  error
				}
				ended := make(chan ending, 1)
				u := peers.StartUpstream(t, func(c *peers.Conn) {
					c.Head()
					body, err := c.EndOfInput()
					ended <- ending{body, err}
				})
				p := proxytest.Start(t, u, nil)
				c := p.Dial().Send(sent)
				peers.Soon(t, "the head upstream", func() bool { return u.Sends() == 1 }) // who leaves before that is gone
				time.Sleep(2 * attempt.InlineWait)
				w.leave(c)
				got := peers.Within(t, "the end upstream", ended)
				if !errors.Is(got.err, syscall.ECONNRESET) || strings.Contains(got.body, "0\r\n\r\n") {
					t.Errorf("the upstream saw %.40q, %v; want a reset and no end of the body", got.body, got.err)
				}
				want := policy.OutcomeRequestBroken
				if w.rude {
					want = policy.OutcomeClientGone
				}
				p.WantOutcome(0, want)
				if u.Sends() != 1 {
					t.Errorf("%d sends, want 1", u.Sends())
				}
			})
		}
	}
}

// A half-close in the middle of a body gets a response, because the client may still read.
func TestACutUploadGetsAResponse(t *testing.T) {
	begun := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) { c.Head(); c.Body(4); close(begun); _, _ = c.EndOfInput() })
	p := proxytest.Start(t, u, nil)
	c := p.Dial().Send(peers.RequestText("PUT / HTTP/1.1", "Host: a", "Content-Length: 100") + "half")
	peers.Within(t, "the begin of the body", begun)
	c.CloseWrite()
	c.Want(400, "*")
	c.WantEnd("")
	p.WantOutcome(0, policy.OutcomeRequestBroken)
}

func everyWay(t *testing.T, test func(t *testing.T, leave func(c *peers.Client))) {
	for name, w := range ways {
		t.Run(name, func(t *testing.T) { test(t, w.leave) })
	}
}

func TestClientLeavingEndsADial(t *testing.T) {
	everyWay(t, func(t *testing.T, leave func(c *peers.Client)) {
		dialling, ended := make(chan struct{}, 1), make(chan struct{}, 1)
		u := peers.StartUpstream(t, peers.Script(peers.OK200))
		p := proxytest.Start(t, u, func(c *proxy.Config) {
			c.Default.DialTimeout = 30 * time.Second
			c.Default.Upstream.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
				dialling <- struct{}{}
				<-ctx.Done()
				ended <- struct{}{}
				return nil, ctx.Err()
			}
		})
		c := p.Dial().Send(peers.Get("/"))
		peers.Within(t, "a dial", dialling)
		left := time.Now()
		leave(c)
		peers.Within(t, "the end of the dial", ended)
		peers.Gone(t, p.Front, left, nil)
		if len(p.Seen.Retries) != 0 {
			t.Errorf("retries %v", p.Seen.Retries)
		}
	})
}

func TestClientLeavingEndsTheWaitForAResponse(t *testing.T) {
	t.Parallel()
	for name, req := range map[string]string{"get": peers.Get("/"), "post": peers.Post("hello"), "pipelined": peers.Get("/") + peers.Get("/") + strings.Repeat("x", 20000)} {
		t.Run(name, func(t *testing.T) {
			everyWay(t, func(t *testing.T, leave func(c *peers.Client)) {
				got, end := make(chan struct{}), make(chan error, 1)
				u := peers.StartUpstream(t, func(c *peers.Conn) {
					peers.DiscardBody(c, c.Head())
					close(got)
					_, err := c.EndOfInput()
					end <- err
				})
				p := proxytest.Start(t, u, nil)
				c := p.Dial().Send(req)
				peers.Within(t, "the request", got)
				left := time.Now()
				leave(c)
				peers.Gone(t, p.Front, left, end)
				if u.Sends() != 1 {
					t.Errorf("%d sends, want 1", u.Sends())
				}
			})
		})
	}
}

func TestClientLeavingEndsABodyBeingRelayed(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string]string{
		"silent":  "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx",
		"spliced": "HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\nx",
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
		"close":   "HTTP/1.1 200 OK\r\n\r\nx",
	} {
		for _, trickle := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " trickle=", trickle), func(t *testing.T) {
				everyWay(t, func(t *testing.T, leave func(c *peers.Client)) {
					end := make(chan error, 1)
					u := peers.StartUpstream(t, func(c *peers.Conn) {
						c.Head()
						c.Say("%s", headers)
						if !trickle {
							_, err := c.EndOfInput()
							end <- err
							return
						}
						piece := "y"
						if name == "chunked" {
							piece = "1\r\ny\r\n"
						}
						for {
							if _, err := io.WriteString(c.Conn, piece); err != nil {
								end <- err
								return
							}
							time.Sleep(5 * time.Millisecond)
						}
					})
					p := proxytest.Start(t, u, nil)
					c := p.Dial().Send(peers.Get("/"))
					if _, err := c.Reader.ReadString('x'); err != nil {
						t.Fatal(err)
					}
					left := time.Now()
					leave(c)
					peers.Gone(t, p.Front, left, end)
					if p.Seen.Codes[0] != 200 {
						t.Errorf("code %d", p.Seen.Codes[0])
					}
				})
			})
		}
	}
}

func TestClientLeavingEndsABackoff(t *testing.T) {
	everyWay(t, func(t *testing.T, leave func(c *peers.Client)) {
		u := peers.StartUpstream(t, peers.Script(peers.Bad503))
		p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.Policy.Backoff = peers.FixedWait(t, 20*time.Second) })
		c := p.Dial().Send(peers.Get("/"))
		peers.Soon(t, "the wait", func() bool { return p.Seen.WaitsBegun() > 0 })
		left := time.Now()
		leave(c)
		peers.Gone(t, p.Front, left, nil)
		if u.Sends() != 1 || len(p.Seen.Retries) != 0 {
			t.Errorf("%d sends, retries %v; want one and none", u.Sends(), p.Seen.Retries)
		}
	})
}

// The upstream reads nothing for longer than a body may pause, then continues. The request was
// given up before that, and what arrives is a clean prefix.
func TestAnUploadThatStalledUpstreamIsNotGoneOnWith(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i>>16) ^ byte(i>>8) ^ byte(i)
	}
	goOn, got := make(chan struct{}), make(chan string, 1)
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		<-goOn
		s, _ := c.EndOfInput()
		got <- s
	})
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.BodyIdleTimeout = 200 * time.Millisecond })
	c := p.Dial().Send(peers.RequestText("PUT / HTTP/1.1", "Host: a", fmt.Sprintf("Content-Length: %d", size)))
	sent := make(chan struct{})
	go func() { defer close(sent); _, _ = c.Write(body) }()
	p.WantOutcome(0, policy.GaveUp(policy.ReasonBodyTooLarge))
	release()
	s := peers.Within(t, "the upstream's end", got)
	if len(s) == 0 || len(s) >= size || s != string(body[:len(s)]) {
		t.Errorf("%d bytes arrived, not a prefix of the %d sent", len(s), size)
	}
	_ = c.Close()
	<-sent
}

// TestAResetDuringTheUpload: the kernel reports a reset once. If the write of the request's body
// gets it, the read of the response sees an ordinary end, which could pass for that of a response
// without a length.
func TestAResetDuringTheUpload(t *testing.T) {
	for name, tc := range map[string]struct {
		framing, piece string
		taken          int64 // before the reset
	}{
		"chunked": {"Transfer-Encoding: chunked", "400\r\n" + strings.Repeat("x", 0x400) + "\r\n", 100_000},
		"spliced": {"Content-Length: 10000000000", strings.Repeat("x", 64<<10), 3_000_000}, // more than is kept
	} {
		t.Run(name, func(t *testing.T) {
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				if c.Head() != "" {
					c.Say("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf")
					_, _ = io.CopyN(io.Discard, c.Reader, tc.taken)
					c.Reset()
				}
			})
			p := proxytest.Start(t, u, nil)
			for range 100 {
				c := p.Dial().Send(peers.RequestText("PUT / HTTP/1.1", "Host: a", tc.framing))
				go func() {
					for {
						if _, err := io.WriteString(c, tc.piece); err != nil {
							return
						}
					}
				}()
				if _, body, err := c.Response("PUT"); err == nil {
					t.Fatalf("the client saw %q end in order", body)
				}
				_ = c.Close()
			}
		})
	}
}
