package proxy

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
	"github.com/retryproxy/retryproxy/proxy/attempt"
)

// What a client sees of a response.
type seenBody struct {
	body string
	err  error // nil: whole; io.ErrUnexpectedEOF: shorter than framed; ECONNRESET
}

func (c *client) seenBody() seenBody {
	_, body, err := c.response("GET")
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
	fin := func(c *upConn) {}
	rst := func(c *upConn) { time.Sleep(20 * time.Millisecond); c.reset() } // else it would overtake the bytes
	stall := func(c *upConn) { _, _ = c.endOfInput() }
	cases := []struct {
		name, answer string
		end          func(c *upConn)
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
				u := startUpstream(t, func(c *upConn) {
					c.head()
					if c.n > 1 {
						c.say(ok200)
						return
					}
					c.say("%s", tc.answer)
					tc.end(c)
				})
				p := startProxy(t, u, func(c *Config) { c.Default.BodyIdleTimeout = 50 * time.Millisecond })
				c := p.dial().send(requestText("GET / HTTP/"+version, "Host: a"))
				got := c.seenBody()
				if got.err != wantErr || got.body != "half" && wantErr != syscall.ECONNRESET {
					t.Errorf("the client saw %q, %v; want \"half\", %v", got.body, got.err, wantErr)
				}
				p.wantOutcome(0, policy.OutcomeResponseBroken)
				if p.seen.codes[0] != 200 || u.sends() != 1 {
					t.Errorf("code %d, %d sends; want 200, 1", p.seen.codes[0], u.sends())
				}
				p.dial().send(get("/")).want(200, "ok") // on another upstream connection
				if u.connections() != 2 {
					t.Errorf("%d upstream connections, want 2", u.connections())
				}
			})
		}
	}
}

func TestACutLargeResponseLooksCut(t *testing.T) {
	for _, reset := range []bool{false, true} {
		u := startUpstream(t, func(c *upConn) {
			c.head()
			c.say("HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n%s", strings.Repeat("x", 3_000_000))
			if reset {
				c.reset()
			}
		})
		p := startProxy(t, u, nil)
		_, body, err := p.dial().send(get("/")).response("GET")
		if err != io.ErrUnexpectedEOF || len(body) > 3_000_000 || !reset && len(body) < 3_000_000 {
			t.Errorf("reset=%v: the client saw %d bytes, %v", reset, len(body), err)
		}
		p.wantOutcome(0, policy.OutcomeResponseBroken)
	}
}

// leave is a way in which a client leaves.
var ways = map[string]struct {
	leave func(c *client)
	rude  bool
}{
	"close": {func(c *client) { _ = c.Close() }, false},
	"reset": {func(c *client) { c.reset() }, true},
}

func TestACutUploadAbortsTheUpstream(t *testing.T) {
	bodies := map[string]string{
		"length":           requestText("PUT / HTTP/1.1", "Host: a", "Content-Length: 100") + "half",
		"chunked":          requestText("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "4\r\nhalf\r\n",
		"within a chunk":   requestText("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "9\r\nhalf",
		"HTTP/1.0":         requestText("PUT / HTTP/1.0", "Host: a", "Content-Length: 100") + "half",
		"large, spliced":   requestText("PUT / HTTP/1.1", "Host: a", "Content-Length: 10000000") + strings.Repeat("x", 3_000_000),
		"large, chunked":   requestText("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + strings.Repeat("1000\r\n"+strings.Repeat("x", 0x1000)+"\r\n", 500),
		"not a byte of it": requestText("PUT / HTTP/1.1", "Host: a", "Content-Length: 100"),
	}
	for name, sent := range bodies {
		for way, w := range ways {
			t.Run(name+" by "+way, func(t *testing.T) {
				type ending struct {
					body string
					err  error
				}
				ended := make(chan ending, 1)
				u := startUpstream(t, func(c *upConn) {
					c.head()
					body, err := c.endOfInput()
					ended <- ending{body, err}
				})
				p := startProxy(t, u, nil)
				c := p.dial().send(sent)
				soon(t, "the head upstream", func() bool { return u.sends() == 1 }) // who leaves before that is gone
				time.Sleep(2 * attempt.InlineWait)
				w.leave(c)
				got := within(t, "the end upstream", ended)
				if !errors.Is(got.err, syscall.ECONNRESET) || strings.Contains(got.body, "0\r\n\r\n") {
					t.Errorf("the upstream saw %.40q, %v; want a reset and no end of the body", got.body, got.err)
				}
				want := policy.OutcomeRequestBroken
				if w.rude {
					want = policy.OutcomeClientGone
				}
				p.wantOutcome(0, want)
				if u.sends() != 1 {
					t.Errorf("%d sends, want 1", u.sends())
				}
			})
		}
	}
}

// A half-close in the middle of a body gets a response, because the client may still read.
func TestACutUploadGetsAResponse(t *testing.T) {
	begun := make(chan struct{})
	u := startUpstream(t, func(c *upConn) { c.head(); c.body(4); close(begun); _, _ = c.endOfInput() })
	p := startProxy(t, u, nil)
	c := p.dial().send(requestText("PUT / HTTP/1.1", "Host: a", "Content-Length: 100") + "half")
	within(t, "the begin of the body", begun)
	c.closeWrite()
	c.want(400, "*")
	c.wantEnd("")
	p.wantOutcome(0, policy.OutcomeRequestBroken)
}

// gone checks that the client's leaving soon ended the only request, and that the attempt was
// aborted.
func gone(t *testing.T, p *front, left time.Time, aborted <-chan error) {
	t.Helper()
	p.wantOutcome(0, policy.OutcomeClientGone)
	if d := time.Since(left); d > 3*time.Second {
		t.Errorf("noticed after %v", d)
	}
	if aborted == nil {
		return
	}
	if err := within(t, "the end upstream", aborted); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the upstream's connection ended with %v, want a reset", err)
	}
}

func everyWay(t *testing.T, test func(t *testing.T, leave func(c *client))) {
	for name, w := range ways {
		t.Run(name, func(t *testing.T) { test(t, w.leave) })
	}
}

func TestClientLeavingEndsADial(t *testing.T) {
	everyWay(t, func(t *testing.T, leave func(c *client)) {
		dialling, ended := make(chan struct{}, 1), make(chan struct{}, 1)
		u := startUpstream(t, script(ok200))
		p := startProxy(t, u, func(c *Config) {
			c.Default.DialTimeout = 30 * time.Second
			c.Default.Upstream.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
				dialling <- struct{}{}
				<-ctx.Done()
				ended <- struct{}{}
				return nil, ctx.Err()
			}
		})
		c := p.dial().send(get("/"))
		within(t, "a dial", dialling)
		left := time.Now()
		leave(c)
		within(t, "the end of the dial", ended)
		gone(t, p.front, left, nil)
		if len(p.seen.retries) != 0 {
			t.Errorf("retries %v", p.seen.retries)
		}
	})
}

func TestClientLeavingEndsTheWaitForAResponse(t *testing.T) {
	t.Parallel()
	for name, req := range map[string]string{"get": get("/"), "post": post("hello"), "pipelined": get("/") + get("/") + strings.Repeat("x", 20000)} {
		t.Run(name, func(t *testing.T) {
			everyWay(t, func(t *testing.T, leave func(c *client)) {
				got, end := make(chan struct{}), make(chan error, 1)
				u := startUpstream(t, func(c *upConn) {
					discardBody(c, c.head())
					close(got)
					_, err := c.endOfInput()
					end <- err
				})
				p := startProxy(t, u, nil)
				c := p.dial().send(req)
				within(t, "the request", got)
				left := time.Now()
				leave(c)
				gone(t, p.front, left, end)
				if u.sends() != 1 {
					t.Errorf("%d sends, want 1", u.sends())
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
				everyWay(t, func(t *testing.T, leave func(c *client)) {
					end := make(chan error, 1)
					u := startUpstream(t, func(c *upConn) {
						c.head()
						c.say("%s", headers)
						if !trickle {
							_, err := c.endOfInput()
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
					p := startProxy(t, u, nil)
					c := p.dial().send(get("/"))
					if _, err := c.r.ReadString('x'); err != nil {
						t.Fatal(err)
					}
					left := time.Now()
					leave(c)
					gone(t, p.front, left, end)
					if p.seen.codes[0] != 200 {
						t.Errorf("code %d", p.seen.codes[0])
					}
				})
			})
		}
	}
}

func TestClientLeavingEndsABackoff(t *testing.T) {
	everyWay(t, func(t *testing.T, leave func(c *client)) {
		u := startUpstream(t, script(bad503))
		p := startProxy(t, u, func(c *Config) { c.Default.Policy.Backoff = fixedWait(t, 20*time.Second) })
		c := p.dial().send(get("/"))
		soon(t, "the wait", func() bool { return p.seen.waitsBegun() > 0 })
		left := time.Now()
		leave(c)
		gone(t, p.front, left, nil)
		if u.sends() != 1 || len(p.seen.retries) != 0 {
			t.Errorf("%d sends, retries %v; want one and none", u.sends(), p.seen.retries)
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
	u := startUpstream(t, func(c *upConn) {
		c.head()
		<-goOn
		s, _ := c.endOfInput()
		got <- s
	})
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	p := startProxy(t, u, func(c *Config) { c.Default.BodyIdleTimeout = 200 * time.Millisecond })
	c := p.dial().send(requestText("PUT / HTTP/1.1", "Host: a", fmt.Sprintf("Content-Length: %d", size)))
	sent := make(chan struct{})
	go func() { defer close(sent); _, _ = c.Write(body) }()
	p.wantOutcome(0, policy.GaveUp(policy.ReasonBodyTooLarge))
	release()
	s := within(t, "the upstream's end", got)
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
			u := startUpstream(t, func(c *upConn) {
				if c.head() != "" {
					c.say("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf")
					_, _ = io.CopyN(io.Discard, c.Reader, tc.taken)
					c.reset()
				}
			})
			p := startProxy(t, u, nil)
			for range 100 {
				c := p.dial().send(requestText("PUT / HTTP/1.1", "Host: a", tc.framing))
				go func() {
					for {
						if _, err := io.WriteString(c, tc.piece); err != nil {
							return
						}
					}
				}()
				if _, body, err := c.response("PUT"); err == nil {
					t.Fatalf("the client saw %q end in order", body)
				}
				_ = c.Close()
			}
		})
	}
}
