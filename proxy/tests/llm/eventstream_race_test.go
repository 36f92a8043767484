package llm

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// longFailure is a stream that fails far behind its beginning.
var longFailure = eventStream(strings.Repeat(peers.Prelude, 5) + peers.Overloaded)

// What the stream of one attempt has shown does not apply to the stream of the fallback upstream.
func TestTheFallbacksStreamIsItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		spare   string
		want    string
		outcome policy.Outcome
	}{
		"content at once": {eventStream(peers.FirstText), peers.FirstText, policy.OutcomeFallback},
		"a failure":       {eventStream(peers.Overloaded), strings.Repeat(peers.Prelude, 5) + peers.Overloaded, policy.OutcomeGaveUpRetriesOff},
		"no stream":       {peers.FallbackOK, "spare", policy.OutcomeFallback},
	} {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemoryWithFallback(t, peers.Script(longFailure), peers.Script(tc.spare), func(c *proxy.Config) {
				peers.HoldsStreams(t, c)
				c.Default.Policy.MaxRetries = 0
			}, func(t *testing.T, m *proxytest.Memory, _ *peers.FallbackServer) {
				m.Client().Send(peers.Get("/")).Want(200, tc.want)
				m.WantOutcome(0, tc.outcome)
			})
		})
	}
}

// The stream of a hedge is held back like any other, and what the stream of the first attempt has
// shown does not apply to it.
func TestAHedgesStreamIsItsOwn(t *testing.T) {
	const refused = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
	for name, tc := range map[string]struct {
		first, hedge string // what they get
		firstTakes   time.Duration
		status       int
		body         string
		outcome      policy.Outcome
		sends        int
	}{
		"the hedge's stream fails":     {peers.OK200, eventStream(peers.Prelude + peers.Overloaded), time.Hour, 200, peers.FirstText, policy.OutcomeRecovered, 3},
		"both streams fail":            {longFailure, eventStream(peers.Overloaded), 30 * time.Millisecond, 200, peers.FirstText, policy.OutcomeRecovered, 3},
		"a failure after a stream":     {longFailure, "HTTP/1.1 503 Unavailable\r\nRetry-After: 0\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 30 * time.Millisecond, 200, peers.FirstText, policy.OutcomeRecovered, 3},
		"a refusal after a stream":     {longFailure, refused, 30 * time.Millisecond, 400, "{}", policy.OutcomeRecovered, 2},
		"the hedge has content":        {peers.OK200, eventStream(peers.Prelude + peers.FirstText), time.Hour, 200, peers.Prelude + peers.FirstText, policy.OutcomeSuccess, 2},
		"the first fails, one is good": {longFailure, eventStream(peers.FirstText), 30 * time.Millisecond, 200, peers.FirstText, policy.OutcomeRecovered, 2},
	} {
		t.Run(name, func(t *testing.T) {
			handle := func(c *peers.Conn) {
				for headers := c.Head(); headers != ""; headers = c.Head() {
					switch c.Up.Sends() {
					case 1:
						_ = c.SetReadDeadline(time.Now().Add(tc.firstTakes))
						_, _ = c.EndOfInput()
						_ = c.SetReadDeadline(time.Time{})
						c.Say("%s", tc.first)
					case 2:
						_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
						_, _ = c.EndOfInput()
						_ = c.SetReadDeadline(time.Time{})
						c.Say("%s", tc.hedge)
					default:
						c.Say("%s", eventStream(peers.FirstText))
					}
				}
			}
			proxytest.InMemory(t, handle, func(c *proxy.Config) {
				peers.HoldsStreams(t, c)
				c.Default.HedgeAfter = peers.HedgeAfter(t, "20ms")
			}, func(t *testing.T, m *proxytest.Memory) {
				m.Client().Send(peers.Get("/")).Want(tc.status, tc.body)
				m.WantOutcome(0, tc.outcome)
				if n := m.Up.Sends(); n != tc.sends {
					t.Errorf("%d sent, want %d", n, tc.sends)
				}
				if n := m.Stats().Faults; n != 0 {
					t.Errorf("%d faults of the proxy itself", n)
				}
			})
		})
	}
}

// An upstream that sends framing without content cannot hold a stream back for longer than silence could.
func TestFramingGivesAStreamNoMoreTime(t *testing.T) {
	handle := func(c *peers.Conn) {
		peers.DiscardBody(c, c.Head())
		c.Say("%s", peers.StreamHeaders+"5;x=")
		for range 3 {
			_ = c.SetReadDeadline(time.Now().Add(50 * time.Second))
			if _, err := c.EndOfInput(); err == nil {
				return
			}
			c.Say("y")
		}
	}
	proxytest.InMemory(t, handle, func(c *proxy.Config) {
		peers.HoldsStreams(t, c)
		c.Default.RequestTimeout = 10 * time.Minute
	}, func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		if res, err := http.ReadResponse(m.Client().Send(peers.Get("/")).Reader, nil); err != nil || res.StatusCode != 200 {
			t.Errorf("%v, %v", res, err)
		}
		if took := time.Since(began); took < 59*time.Second || took > 61*time.Second {
			t.Errorf("took %v, want a minute", took)
		}
	})
}

// It cannot delay the retry after a failed response either, by sending its body's framing bit by
// bit.
func TestFramingDelaysNoRetry(t *testing.T) {
	handle := func(c *peers.Conn) {
		peers.DiscardBody(c, c.Head())
		if c.N > 1 {
			c.Say(peers.OK200)
			return
		}
		c.Say("HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n5;x=")
		for range 10 {
			_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			if _, err := c.EndOfInput(); err == nil {
				return
			}
			c.Say("y")
		}
		c.Say("\r\nhello\r\n0\r\n\r\n")
	}
	proxytest.InMemory(t, handle, nil, func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// The silent stream of a probe shows that the upstream responds: it is relayed, and the breaker closes.
func TestASilentStreamOfAProbeClosesTheBreaker(t *testing.T) {
	var resets atomic.Bool
	resets.Store(true)
	handle := func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			if resets.Load() {
				return
			}
			c.Say("%s", peers.StreamHeaders+chunk(peers.Prelude))
			time.Sleep(90 * time.Second)
			c.Say("%s", chunk(peers.FirstText)+"0\r\n\r\n")
		}
	}
	proxytest.InMemory(t, handle, func(c *proxy.Config) {
		peers.HoldsStreams(t, c)
		peers.WithBreaker(c)
		c.Default.Policy.MaxRetries, c.Default.RequestTimeout, c.Default.QueueTimeout = 100, 10*time.Minute, 5*time.Minute
		c.Default.BodyIdleTimeout = 2 * time.Minute
	}, func(t *testing.T, m *proxytest.Memory) {
		b := readBody(m.Client().Send(peers.Get("/")))
		for range 1000 {
			if g := m.Guard(); g.Breaker != breaker.Closed && g.Queued == 1 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if g := m.Guard(); g.Breaker == breaker.Closed || g.Queued != 1 {
			t.Fatalf("the request is not queued: %+v", g)
		}
		resets.Store(false)
		time.Sleep(85 * time.Second)
		if g := m.Guard(); g.Breaker != breaker.Closed && g.Breaker != breaker.SlowStart || b.text() != peers.Prelude {
			t.Errorf("the breaker is %v, and the client has %q", g.Breaker, b.text())
		}
		<-b.ended
		if body := b.text(); body != peers.Prelude+peers.FirstText {
			t.Errorf("body %q", body)
		}
	})
}
