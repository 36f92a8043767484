package proxy

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
)

// longFailure is a stream that fails far behind its beginning.
var longFailure = eventStream(strings.Repeat(prelude, 5) + overloaded)

// What the stream of one attempt has shown does not apply to the stream of the fallback upstream.
func TestTheFallbacksStreamIsItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		spare   string
		want    string
		outcome policy.Outcome
	}{
		"content at once": {eventStream(firstText), firstText, policy.OutcomeFallback},
		"a failure":       {eventStream(overloaded), strings.Repeat(prelude, 5) + overloaded, policy.OutcomeGaveUpRetriesOff},
		"no stream":       {fallbackOK, "spare", policy.OutcomeFallback},
	} {
		t.Run(name, func(t *testing.T) {
			inMemoryWithFallback(t, script(longFailure), script(tc.spare), func(c *Config) {
				holdsStreams(t, c)
				c.Default.Policy.MaxRetries = 0
			}, func(t *testing.T, m *memory, _ *fallbackServer) {
				m.client().send(get("/")).want(200, tc.want)
				m.wantOutcome(0, tc.outcome)
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
		"the hedge's stream fails":     {ok200, eventStream(prelude + overloaded), time.Hour, 200, firstText, policy.OutcomeRecovered, 3},
		"both streams fail":            {longFailure, eventStream(overloaded), 30 * time.Millisecond, 200, firstText, policy.OutcomeRecovered, 3},
		"a failure after a stream":     {longFailure, "HTTP/1.1 503 Unavailable\r\nRetry-After: 0\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 30 * time.Millisecond, 200, firstText, policy.OutcomeRecovered, 3},
		"a refusal after a stream":     {longFailure, refused, 30 * time.Millisecond, 400, "{}", policy.OutcomeRecovered, 2},
		"the hedge has content":        {ok200, eventStream(prelude + firstText), time.Hour, 200, prelude + firstText, policy.OutcomeSuccess, 2},
		"the first fails, one is good": {longFailure, eventStream(firstText), 30 * time.Millisecond, 200, firstText, policy.OutcomeRecovered, 2},
	} {
		t.Run(name, func(t *testing.T) {
			handle := func(c *upConn) {
				for headers := c.head(); headers != ""; headers = c.head() {
					switch c.up.sends() {
					case 1:
						_ = c.SetReadDeadline(time.Now().Add(tc.firstTakes))
						_, _ = c.endOfInput()
						_ = c.SetReadDeadline(time.Time{})
						c.say("%s", tc.first)
					case 2:
						_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
						_, _ = c.endOfInput()
						_ = c.SetReadDeadline(time.Time{})
						c.say("%s", tc.hedge)
					default:
						c.say("%s", eventStream(firstText))
					}
				}
			}
			inMemory(t, handle, func(c *Config) {
				holdsStreams(t, c)
				c.Default.HedgeAfter = hedgeAfter(t, "20ms")
			}, func(t *testing.T, m *memory) {
				m.client().send(get("/")).want(tc.status, tc.body)
				m.wantOutcome(0, tc.outcome)
				if n := m.up.sends(); n != tc.sends {
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
	handle := func(c *upConn) {
		discardBody(c, c.head())
		c.say("%s", streamHeaders+"5;x=")
		for range 3 {
			_ = c.SetReadDeadline(time.Now().Add(50 * time.Second))
			if _, err := c.endOfInput(); err == nil {
				return
			}
			c.say("y")
		}
	}
	inMemory(t, handle, func(c *Config) {
		holdsStreams(t, c)
		c.Default.RequestTimeout = 10 * time.Minute
	}, func(t *testing.T, m *memory) {
		began := time.Now()
		if res, err := http.ReadResponse(m.client().send(get("/")).r, nil); err != nil || res.StatusCode != 200 {
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
	handle := func(c *upConn) {
		discardBody(c, c.head())
		if c.n > 1 {
			c.say(ok200)
			return
		}
		c.say("HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n5;x=")
		for range 10 {
			_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			if _, err := c.endOfInput(); err == nil {
				return
			}
			c.say("y")
		}
		c.say("\r\nhello\r\n0\r\n\r\n")
	}
	inMemory(t, handle, nil, func(t *testing.T, m *memory) {
		began := time.Now()
		m.client().send(get("/")).want(200, "ok")
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// The silent stream of a probe shows that the upstream responds: it is relayed, and the breaker closes.
func TestASilentStreamOfAProbeClosesTheBreaker(t *testing.T) {
	var resets atomic.Bool
	resets.Store(true)
	handle := func(c *upConn) {
		for headers := c.head(); headers != ""; headers = c.head() {
			if resets.Load() {
				return
			}
			c.say("%s", streamHeaders+chunk(prelude))
			time.Sleep(90 * time.Second)
			c.say("%s", chunk(firstText)+"0\r\n\r\n")
		}
	}
	inMemory(t, handle, func(c *Config) {
		holdsStreams(t, c)
		withBreaker(c)
		c.Default.Policy.MaxRetries, c.Default.RequestTimeout, c.Default.QueueTimeout = 100, 10*time.Minute, 5*time.Minute
		c.Default.BodyIdleTimeout = 2 * time.Minute
	}, func(t *testing.T, m *memory) {
		b := readBody(m.client().send(get("/")))
		for range 1000 {
			if g := m.guard(); g.Breaker != breaker.Closed && g.Queued == 1 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if g := m.guard(); g.Breaker == breaker.Closed || g.Queued != 1 {
			t.Fatalf("the request is not queued: %+v", g)
		}
		resets.Store(false)
		time.Sleep(85 * time.Second)
		if g := m.guard(); g.Breaker != breaker.Closed && g.Breaker != breaker.SlowStart || b.text() != prelude {
			t.Errorf("the breaker is %v, and the client has %q", g.Breaker, b.text())
		}
		<-b.ended
		if body := b.text(); body != prelude+firstText {
			t.Errorf("body %q", body)
		}
	})
}
