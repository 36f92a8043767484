package bodies

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// bodies collects the bodies that arrive upstream, one per request headers.
type bodies struct {
	mu  sync.Mutex
	all [][]byte
}

// answer reads each request whole and gives the answers in order.
func (b *bodies) answer(responses ...string) func(c *peers.Conn) {
	return func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			body := peers.DiscardBody(c, headers)
			b.mu.Lock()
			n := len(b.all)
			b.all = append(b.all, body)
			b.mu.Unlock()
			c.Say("%s", responses[min(n, len(responses)-1)])
		}
	}
}

func (b *bodies) check(t *testing.T, attempts int, want []byte) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.all) != attempts {
		t.Fatalf("%d attempts, want %d", len(b.all), attempts)
	}
	for i, got := range b.all {
		if !bytes.Equal(got, want) {
			t.Errorf("attempt %d carried %d bytes that differ from the %d sent", i+1, len(got), len(want))
		}
	}
}

func TestEveryAttemptCarriesTheSameBytes(t *testing.T) {
	for _, size := range []int{0, 1, 2000, 4096, 16 << 10, 64 << 10, 65537, 300 << 10, 1 << 20} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d chunked=%v", size, chunked), func(t *testing.T) {
				body := peers.RandomBytes(size)
				var seen bodies
				u := peers.StartUpstream(t, seen.answer(peers.Bad503, peers.Bad429, peers.OK200))
				p := proxytest.Start(t, u, nil)
				c := p.Dial()
				if chunked {
					c.Send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + peers.Chunks(body, 1, 5000, 17, 70000))
				} else {
					c.Send(fmt.Sprintf("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", size, body))
				}
				c.Want(200, "ok")
				seen.check(t, 3, body)
				c.Send(peers.Get("/next")).Want(200, "ok") // the connection is still in step
			})
		}
	}
}

func TestABodyOverTheCapIsSentOnceAndCounted(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		body := peers.RandomBytes(100 << 10)
		var seen bodies
		u := peers.StartUpstream(t, seen.answer(peers.Bad503))
		p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.RetryBufferBytes = 64 << 10 })
		c := p.Dial()
		if chunked {
			c.Send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + peers.Chunks(body, 9000))
		} else {
			c.Send(fmt.Sprintf("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
		}
		res := c.Want(503, "busy")
		if got := res.Header.Get("X-Retryproxy-Reason"); got != "body_too_large" {
			t.Errorf("chunked=%v: reason %q", chunked, got)
		}
		seen.check(t, 1, body)
		if o := p.Seen.Outcome(t, 0); o != policy.GaveUp(policy.ReasonBodyTooLarge) {
			t.Errorf("chunked=%v: outcome %v", chunked, o)
		}
	}
}

func TestAFullRetryBufferStopsRetriesNotRequests(t *testing.T) {
	body := peers.RandomBytes(100 << 10)
	var seen bodies
	u := peers.StartUpstream(t, seen.answer(peers.Bad503))
	p := proxytest.Start(t, u, func(c *proxy.Config) { c.RetryBufferTotalBytes = 70 << 10 })
	c := p.Dial()
	c.Send(fmt.Sprintf("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	res := c.Want(503, "busy")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "retry_buffer_full" {
		t.Errorf("reason %q", got)
	}
	seen.check(t, 1, body)
}

func TestConnectRetriesWorkAtAnySize(t *testing.T) {
	body := peers.RandomBytes(3 << 20)
	var seen bodies
	permit := peers.ReservePort(t) // nobody listens yet
	p := proxytest.StartTo(t, "http://"+permit.Addr, func(c *proxy.Config) {
		c.Default.Policy.MaxRetries = 50
		c.Default.Policy.Backoff = peers.FixedWait(t, 20*time.Millisecond)
	})
	c := p.Dial()
	go func() {
		_, _ = fmt.Fprintf(c.Conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", len(body))
		_, _ = c.Write(body)
	}()
	for p.Seen.Retried() == 0 {
		time.Sleep(time.Millisecond)
	}
	peers.ServeListener(t, permit.Open(), seen.answer(peers.OK200))
	c.Want(200, "ok")
	seen.check(t, 1, body)
}

func TestTheFirstAttemptIsNotDelayedByBuffering(t *testing.T) {
	firstByte := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Body(1)
		close(firstByte)
		c.Body(9)
		c.Say(peers.OK200)
	})
	p := proxytest.Start(t, u, nil)
	c := p.Dial().Send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n1")
	select {
	case <-firstByte:
	case <-time.After(peers.Patience):
		t.Fatal("the first byte did not reach the upstream before the last was sent")
	}
	c.Send("234567890").Want(200, "ok")
}

func TestEarlyRetryableAnswerIsRepeatedWithTheWholeBody(t *testing.T) {
	body := peers.RandomBytes(40 << 10)
	answered := make(chan struct{})
	n := 0
	var got []byte
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		headers := c.Head()
		if headers == "" {
			return
		}
		if n++; n == 1 {
			c.Say(peers.Bad503) // before the body
			close(answered)
			_, _ = io.Copy(io.Discard, c)
			return
		}
		got = peers.DiscardBody(c, headers)
		c.Say(peers.OK200)
	})
	p := proxytest.Start(t, u, nil)
	c := p.Dial().Send(fmt.Sprintf("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", len(body)))
	<-answered
	time.Sleep(50 * time.Millisecond)
	c.Send(string(body)).Want(200, "ok")
	if !bytes.Equal(got, body) {
		t.Errorf("the retry carried %d bytes that differ from the %d sent", len(got), len(body))
	}
}

func TestEarlyFinalAnswerIsRelayedAndEndsTheConnection(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig")
		_, _ = io.Copy(io.Discard, c)
	})
	p := proxytest.Start(t, u, nil)
	c := p.Dial().Send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nx")
	res := c.Want(413, "big")
	if !res.Close {
		t.Error("the connection is said to go on although its stream holds the rest of the body")
	}
}

func TestAResponseTooLargeToBufferIsRelayedWhole(t *testing.T) {
	body := peers.RandomBytes(200 << 10)
	for name, headers := range map[string]string{
		"length":  fmt.Sprintf("HTTP/1.1 503 No\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
		"chunked": "HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n" + peers.Chunks(body, 3000, 1),
		"close":   "HTTP/1.1 503 No\r\nConnection: close\r\n\r\n" + string(body),
	} {
		t.Run(name, func(t *testing.T) {
			u := peers.StartUpstream(t, peers.Script(headers, peers.OK200))
			p := proxytest.Start(t, u, nil)
			res := p.Dial().Send(peers.Get("/")).Want(503, string(body))
			if got := res.Header.Get("X-Retryproxy-Reason"); got != "response_too_large" {
				t.Errorf("reason %q", got)
			}
			if u.Sends() != 1 {
				t.Errorf("%d sends, want 1", u.Sends())
			}
		})
	}
}

func TestABufferedResponseIsRelayedUnchanged(t *testing.T) {
	body := peers.RandomBytes(60 << 10)
	trailer := "5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"
	for name, response := range map[string]string{
		"length":  fmt.Sprintf("HTTP/1.1 503 No\r\nX-A: 1\r\nContent-Length: %d\r\nx-b: 2\r\n\r\n%s", len(body), body),
		"chunked": "HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n" + trailer,
		"close":   "HTTP/1.1 503 No\r\nConnection: close\r\n\r\n" + string(body),
	} {
		t.Run(name, func(t *testing.T) {
			u := peers.StartUpstream(t, peers.Script(response, "", "", ""))
			p := proxytest.Start(t, u, nil)
			c := p.Dial().Send(peers.Get("/"))
			want := string(body)
			if name == "chunked" {
				want = "hello"
			}
			res := c.Want(503, want)
			if name == "chunked" && res.Trailer.Get("X-Sum") != "1" {
				t.Errorf("trailers %v", res.Trailer)
			}
			if u.Sends() != 4 {
				t.Errorf("%d sends, want 4", u.Sends())
			}
			c.Send(peers.Get("/")).Want(502, "*")
		})
	}
}

func TestABufferedResponseThatWasCutOffIsCutOffForTheClient(t *testing.T) {
	cut := "HTTP/1.1 503 No\r\nContent-Length: 100\r\nConnection: close\r\n\r\nhalf"
	u := peers.StartUpstream(t, peers.Script(cut, "", "", ""))
	p := proxytest.Start(t, u, nil)
	_, body, err := p.Dial().Send(peers.Get("/")).Response("GET")
	if body != "half" || err != io.ErrUnexpectedEOF {
		t.Errorf("got %q, %v; want \"half\" and an unexpected end", body, err)
	}
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeResponseBroken {
		t.Errorf("outcome %v", o)
	}
}
