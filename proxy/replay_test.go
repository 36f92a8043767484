package proxy

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
)

// bodies collects the bodies that arrive upstream, one per request headers.
type bodies struct {
	mu  sync.Mutex
	all [][]byte
}

// answer reads each request whole and gives the answers in order.
func (b *bodies) answer(responses ...string) func(c *upConn) {
	return func(c *upConn) {
		for headers := c.head(); headers != ""; headers = c.head() {
			body := discardBody(c, headers)
			b.mu.Lock()
			n := len(b.all)
			b.all = append(b.all, body)
			b.mu.Unlock()
			c.say("%s", responses[min(n, len(responses)-1)])
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

func randomBytes(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

func chunks(body []byte, sizes ...int) string {
	var b strings.Builder
	for i := 0; len(body) > 0; i++ {
		n := min(sizes[i%len(sizes)], len(body))
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	b.WriteString("0\r\n\r\n")
	return b.String()
}

func TestEveryAttemptCarriesTheSameBytes(t *testing.T) {
	for _, size := range []int{0, 1, 2000, 4096, 16 << 10, 64 << 10, 65537, 300 << 10, 1 << 20} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d chunked=%v", size, chunked), func(t *testing.T) {
				body := randomBytes(size)
				var seen bodies
				u := startUpstream(t, seen.answer(bad503, bad429, ok200))
				p := startProxy(t, u, nil)
				c := p.dial()
				if chunked {
					c.send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(body, 1, 5000, 17, 70000))
				} else {
					c.send(fmt.Sprintf("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", size, body))
				}
				c.want(200, "ok")
				seen.check(t, 3, body)
				c.send(get("/next")).want(200, "ok") // the connection is still in step
			})
		}
	}
}

func TestABodyOverTheCapIsSentOnceAndCounted(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		body := randomBytes(100 << 10)
		var seen bodies
		u := startUpstream(t, seen.answer(bad503))
		p := startProxy(t, u, func(c *Config) { c.Default.RetryBufferBytes = 64 << 10 })
		c := p.dial()
		if chunked {
			c.send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(body, 9000))
		} else {
			c.send(fmt.Sprintf("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
		}
		res := c.want(503, "busy")
		if got := res.Header.Get("X-Retryproxy-Reason"); got != "body_too_large" {
			t.Errorf("chunked=%v: reason %q", chunked, got)
		}
		seen.check(t, 1, body)
		if o := p.seen.outcome(t, 0); o != policy.GaveUp(policy.ReasonBodyTooLarge) {
			t.Errorf("chunked=%v: outcome %v", chunked, o)
		}
	}
}

func TestAFullRetryBufferStopsRetriesNotRequests(t *testing.T) {
	body := randomBytes(100 << 10)
	var seen bodies
	u := startUpstream(t, seen.answer(bad503))
	p := startProxy(t, u, func(c *Config) { c.RetryBufferTotalBytes = 70 << 10 })
	c := p.dial()
	c.send(fmt.Sprintf("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	res := c.want(503, "busy")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "retry_buffer_full" {
		t.Errorf("reason %q", got)
	}
	seen.check(t, 1, body)
}

func TestConnectRetriesWorkAtAnySize(t *testing.T) {
	body := randomBytes(3 << 20)
	var seen bodies
	permit := reservePort(t) // nobody listens yet
	p := startProxyTo(t, "http://"+permit.addr, func(c *Config) {
		c.Default.Policy.MaxRetries = 50
		c.Default.Policy.Backoff = fixedWait(t, 20*time.Millisecond)
	})
	c := p.dial()
	go func() {
		_, _ = fmt.Fprintf(c.Conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", len(body))
		_, _ = c.Write(body)
	}()
	for p.seen.retried() == 0 {
		time.Sleep(time.Millisecond)
	}
	serveListener(t, permit.open(), seen.answer(ok200))
	c.want(200, "ok")
	seen.check(t, 1, body)
}

func TestTheFirstAttemptIsNotDelayedByBuffering(t *testing.T) {
	firstByte := make(chan struct{})
	u := startUpstream(t, func(c *upConn) {
		c.head()
		c.body(1)
		close(firstByte)
		c.body(9)
		c.say(ok200)
	})
	p := startProxy(t, u, nil)
	c := p.dial().send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n1")
	select {
	case <-firstByte:
	case <-time.After(patience):
		t.Fatal("the first byte did not reach the upstream before the last was sent")
	}
	c.send("234567890").want(200, "ok")
}

func TestEarlyRetryableAnswerIsRepeatedWithTheWholeBody(t *testing.T) {
	body := randomBytes(40 << 10)
	answered := make(chan struct{})
	n := 0
	var got []byte
	u := startUpstream(t, func(c *upConn) {
		headers := c.head()
		if headers == "" {
			return
		}
		if n++; n == 1 {
			c.say(bad503) // before the body
			close(answered)
			_, _ = io.Copy(io.Discard, c)
			return
		}
		got = discardBody(c, headers)
		c.say(ok200)
	})
	p := startProxy(t, u, nil)
	c := p.dial().send(fmt.Sprintf("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", len(body)))
	<-answered
	time.Sleep(50 * time.Millisecond)
	c.send(string(body)).want(200, "ok")
	if !bytes.Equal(got, body) {
		t.Errorf("the retry carried %d bytes that differ from the %d sent", len(got), len(body))
	}
}

func TestEarlyFinalAnswerIsRelayedAndEndsTheConnection(t *testing.T) {
	u := startUpstream(t, func(c *upConn) {
		c.head()
		c.say("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig")
		_, _ = io.Copy(io.Discard, c)
	})
	p := startProxy(t, u, nil)
	c := p.dial().send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nx")
	res := c.want(413, "big")
	if !res.Close {
		t.Error("the connection is said to go on although its stream holds the rest of the body")
	}
}

func TestAResponseTooLargeToBufferIsRelayedWhole(t *testing.T) {
	body := randomBytes(200 << 10)
	for name, headers := range map[string]string{
		"length":  fmt.Sprintf("HTTP/1.1 503 No\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
		"chunked": "HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(body, 3000, 1),
		"close":   "HTTP/1.1 503 No\r\nConnection: close\r\n\r\n" + string(body),
	} {
		t.Run(name, func(t *testing.T) {
			u := startUpstream(t, script(headers, ok200))
			p := startProxy(t, u, nil)
			res := p.dial().send(get("/")).want(503, string(body))
			if got := res.Header.Get("X-Retryproxy-Reason"); got != "response_too_large" {
				t.Errorf("reason %q", got)
			}
			if u.sends() != 1 {
				t.Errorf("%d sends, want 1", u.sends())
			}
		})
	}
}

func TestABufferedResponseIsRelayedUnchanged(t *testing.T) {
	body := randomBytes(60 << 10)
	trailer := "5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"
	for name, response := range map[string]string{
		"length":  fmt.Sprintf("HTTP/1.1 503 No\r\nX-A: 1\r\nContent-Length: %d\r\nx-b: 2\r\n\r\n%s", len(body), body),
		"chunked": "HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n" + trailer,
		"close":   "HTTP/1.1 503 No\r\nConnection: close\r\n\r\n" + string(body),
	} {
		t.Run(name, func(t *testing.T) {
			u := startUpstream(t, script(response, "", "", ""))
			p := startProxy(t, u, nil)
			c := p.dial().send(get("/"))
			want := string(body)
			if name == "chunked" {
				want = "hello"
			}
			res := c.want(503, want)
			if name == "chunked" && res.Trailer.Get("X-Sum") != "1" {
				t.Errorf("trailers %v", res.Trailer)
			}
			if u.sends() != 4 {
				t.Errorf("%d sends, want 4", u.sends())
			}
			c.send(get("/")).want(502, "*")
		})
	}
}

func TestABufferedResponseThatWasCutOffIsCutOffForTheClient(t *testing.T) {
	cut := "HTTP/1.1 503 No\r\nContent-Length: 100\r\nConnection: close\r\n\r\nhalf"
	u := startUpstream(t, script(cut, "", "", ""))
	p := startProxy(t, u, nil)
	_, body, err := p.dial().send(get("/")).response("GET")
	if body != "half" || err != io.ErrUnexpectedEOF {
		t.Errorf("got %q, %v; want \"half\" and an unexpected end", body, err)
	}
	if o := p.seen.outcome(t, 0); o != policy.OutcomeResponseBroken {
		t.Errorf("outcome %v", o)
	}
}

func fixedWait(t testing.TB, d time.Duration) backoff.Strategy {
	t.Helper()
	b, err := backoff.New("fixed", backoff.Options{Base: d})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
