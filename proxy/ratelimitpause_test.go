package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy/admission"
)

// rawResponse is a response with the fields given, one a line.
func rawResponse(status int, fields ...string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\n%s\r\nContent-Length: 4\r\n\r\nwait", status, http.StatusText(status), strings.Join(append(fields, "X-Test: 1"), "\r\n"))
}

// sharedPause switches rate-limit pauses on: "route", or the name of a field.
func sharedPause(key string) func(c *Config) {
	return func(c *Config) {
		c.Default.RateLimitPause = RateLimitPause{SharedBy: admission.Sharing{Header: key}, Max: time.Minute}
		if key == "route" {
			c.Default.RateLimitPause = RateLimitPause{SharedBy: admission.Sharing{Route: true}, Max: time.Minute}
		}
	}
}

func getWithHeaders(fields ...string) string {
	return "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n"
}

// timed answers first with the given answers, then 200, and notes when.
type timed struct {
	mu    sync.Mutex
	first []string
	at    []time.Time
}

func (s *timed) handle(c *upConn) {
	for headers := c.head(); headers != ""; headers = c.head() {
		discardBody(c, headers)
		s.answer(c)
	}
}

// answer answers one request.
func (s *timed) answer(c *upConn) {
	s.mu.Lock()
	s.at = append(s.at, time.Now())
	response := ok200
	if len(s.first) > 0 {
		response, s.first = s.first[0], s.first[1:]
	}
	s.mu.Unlock()
	c.say("%s", response)
}

// later runs the rest of a client's exchange; call the result for its end.
func (c *client) later() (ended func() (*http.Response, time.Time)) {
	var res *http.Response
	var at time.Time
	done := make(chan struct{})
	go func() {
		defer close(done)
		res, _, _ = c.response("GET")
		at = time.Now()
	}()
	return func() (*http.Response, time.Time) { <-done; return res, at }
}

func TestA429PausesThoseWithTheSameKey(t *testing.T) {
	for _, tc := range []struct {
		name, key, first, second string
		waits                    bool
	}{
		{name: "route", key: "route", waits: true},
		{name: "same value", key: "X-Key", first: "X-Key: a", second: "x-key: a", waits: true},
		{name: "another value", key: "X-Key", first: "X-Key: a", second: "X-Key: b"},
		{name: "second without the field", key: "X-Key", first: "X-Key: a", second: "X-Other: a"},
		{name: "first without the field", key: "X-Key", first: "X-Other: a", second: "X-Key: a"},
		{name: "both without the field", key: "X-Key", first: "X-Other: a", second: "X-Other: a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			up := &timed{first: []string{rawResponse(429, "Retry-After: 5")}}
			inMemory(t, up.handle, sharedPause(tc.key), func(t *testing.T, m *memory) {
				began := time.Now()
				first := m.client().send(getWithHeaders(tc.first)).later()
				time.Sleep(time.Second)
				second := m.client().send(getWithHeaders(tc.second)).later()
				res, at := second()
				switch waited := at.Sub(began); {
				case res.StatusCode != 200:
					t.Errorf("got %d", res.StatusCode)
				case tc.waits && (waited < 5*time.Second || waited > 6*time.Second):
					t.Errorf("answered after %v, want within the second after 5 s", waited)
				case !tc.waits && waited != time.Second:
					t.Errorf("answered after %v, want at once", waited)
				}
				first()
				if n := len(m.seen.retries); n != 1 {
					t.Errorf("%d retries counted, want that of the first alone", n)
				}
				if held := len(m.seen.held); (held == 1) != tc.waits {
					t.Errorf("%d holds counted", held)
				}
			})
		})
	}
}

func TestWithoutAKeyA429PausesItsOwnRequestAlone(t *testing.T) {
	up := &timed{first: []string{rawResponse(429, "Retry-After: 5")}}
	inMemory(t, up.handle, nil, func(t *testing.T, m *memory) {
		began := time.Now()
		first := m.client().send(get("/")).later()
		time.Sleep(time.Second)
		m.client().send(get("/")).want(200, "ok")
		if d := time.Since(began); d != time.Second {
			t.Errorf("the second was answered after %v", d)
		}
		first()
	})
}

func TestA429WithoutATimeStopsNobodyElse(t *testing.T) {
	for name, limited := range map[string]string{
		"no word":         rawResponse(429),
		"rate limit left": rawResponse(429, "X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 5"),
		"503":             rawResponse(503, "Retry-After: 5"),
		"500":             rawResponse(500, "Retry-After: 5"),
		"at once":         rawResponse(429, "Retry-After: 0"),
		"200 exhausted":   rawResponse(200, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5"),
	} {
		t.Run(name, func(t *testing.T) {
			up := &timed{first: []string{limited}}
			inMemory(t, up.handle, sharedPause("route"), func(t *testing.T, m *memory) {
				first := m.client().send(get("/")).later()
				time.Sleep(time.Second)
				began := time.Now()
				m.client().send(get("/")).want(200, "ok")
				if d := time.Since(began); d != 0 {
					t.Errorf("the second was answered after %v", d)
				}
				first()
			})
		})
	}
}

func TestAnExhaustedRateLimitIsWaitedForLikeARetryAfter(t *testing.T) {
	for name, limited := range map[string]string{
		"429 structured":         rawResponse(429, `RateLimit: "a";r=0;t=7`),
		"503 structured":         rawResponse(503, `RateLimit: "a";r=0;t=7`),
		"429 X":                  rawResponse(429, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7"),
		"Retry-After goes first": rawResponse(429, "Retry-After: 7", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 9"),
	} {
		t.Run(name, func(t *testing.T) {
			up := &timed{first: []string{limited}}
			inMemory(t, up.handle, nil, func(t *testing.T, m *memory) {
				began := time.Now()
				m.client().send(get("/")).want(200, "ok")
				if d := time.Since(began); d < 7*time.Second || d > 7*time.Second+time.Millisecond {
					t.Errorf("answered after %v, want 7 s plus the jitter of at most 1 ms", d)
				}
			})
		})
	}
}

func TestAPauseThatDoesNotFitGetsTheResponseAtOnce(t *testing.T) {
	up := &timed{first: []string{rawResponse(429, "Retry-After: 20")}}
	inMemory(t, up.handle, func(c *Config) {
		sharedPause("route")(c)
		c.Default.RequestTimeout = 10 * time.Second
		c.Default.NoBudget, c.Default.Budget = false, budget.Config{Burst: 2}
	}, func(t *testing.T, m *memory) {
		m.client().send(get("/")).want(429, "wait") // too long for itself
		time.Sleep(500 * time.Millisecond)
		for _, request := range []string{get("/"), post("x")} {
			began := time.Now()
			res := m.client().send(request).want(429, "*")
			if d := time.Since(began); d != 0 {
				t.Errorf("answered after %v", d)
			}
			if h := res.Header; h.Get("Retry-After") != "20" || h.Get("X-Retryproxy-Reason") != "rate_limit_pause" || h.Get("X-Retryproxy-Attempts") != "" {
				t.Errorf("header %v", h)
			}
		}
		synctest.Wait()
		if want := []policy.Outcome{policy.OutcomeGaveUpRetryAfterTooLong, policy.OutcomeRateLimitPause, policy.OutcomeRateLimitPause}; !slices.Equal(m.seen.outcomes, want) {
			t.Errorf("outcomes %v, want %v", m.seen.outcomes, want)
		}
		if m.up.sends() != 1 || len(m.seen.retries) != 0 {
			t.Errorf("%d sends, %d retries", m.up.sends(), len(m.seen.retries))
		}
		if tokens := m.Stats().Upstreams[0].BudgetTokens; tokens != 2 {
			t.Errorf("%v tokens left of 2", tokens)
		}
		time.Sleep(20 * time.Second)
		m.client().send(get("/")).want(200, "ok")
	})
}

func TestAPauseBeyondTheCapIsForTheClientAndPausesNothing(t *testing.T) {
	up := &timed{first: []string{rawResponse(429, "Retry-After: 61")}}
	inMemory(t, up.handle, func(c *Config) {
		sharedPause("route")(c)
		c.Default.RequestTimeout = 10 * time.Minute
	}, func(t *testing.T, m *memory) {
		began := time.Now()
		res := m.client().send(get("/")).want(429, "wait")
		if got := res.Header.Get("X-Retryproxy-Reason"); got != "retry_after_too_long" {
			t.Errorf("reason %q", got)
		}
		m.client().send(get("/")).want(200, "ok")
		if d := time.Since(began); d != 0 {
			t.Errorf("took %v", d)
		}
		if m.Stats().RateLimitPauses.Begun != 0 {
			t.Error("a rate-limit pause began")
		}
	})
}

func TestWaitersDoNotComeBackInTheSameInstant(t *testing.T) {
	up := &timed{first: []string{rawResponse(429, "Retry-After: 5")}}
	inMemory(t, up.handle, sharedPause("route"), func(t *testing.T, m *memory) {
		began := time.Now()
		m.client().send(get("/")).later()
		time.Sleep(time.Second)
		var ends []func() (*http.Response, time.Time)
		for range 40 {
			ends = append(ends, m.client().send(get("/")).later())
		}
		for _, end := range ends {
			end()
		}
		slices.SortFunc(up.at, time.Time.Compare)
		distinct := len(slices.CompactFunc(slices.Clone(up.at[1:]), time.Time.Equal))
		spread := up.at[len(up.at)-1].Sub(up.at[1])
		if first := up.at[1].Sub(began); first < 5*time.Second || distinct < 39 || spread < 500*time.Millisecond || spread > time.Second {
			t.Errorf("the first came back after %v, at %d different times spread over %v", first, distinct, spread)
		}
	})
}

func TestWaitersWaitOnWhenThePauseGrows(t *testing.T) {
	up := &timed{first: []string{rawResponse(429, "Retry-After: 3"), rawResponse(429, "Retry-After: 6")}}
	inMemory(t, up.handle, sharedPause("route"), func(t *testing.T, m *memory) {
		began := time.Now()
		first := m.client().send(get("/")).later() // is told 3 s, then at 3 s 6 more
		time.Sleep(time.Second)
		second := m.client().send(get("/")).later()
		first()
		if _, at := second(); at.Sub(began) < 3*time.Second {
			t.Errorf("came back after %v", at.Sub(began))
		}
		for _, at := range up.at[2:] {
			if d := at.Sub(began); d < 9*time.Second {
				t.Errorf("sent after %v, within the second pause", d)
			}
		}
	})
}

func TestClientLeavingEndsAPause(t *testing.T) {
	up := &timed{first: []string{rawResponse(429, "Retry-After: 20")}}
	inMemory(t, up.handle, sharedPause("route"), func(t *testing.T, m *memory) {
		m.client().send(get("/")).later()
		time.Sleep(time.Second)
		c := m.client().send(get("/"))
		time.Sleep(time.Second)
		if n := m.Stats().Paused; n != 1 {
			t.Errorf("%d requests wait for the pause, expected 1: the retry of the first waits for itself", n)
		}
		c.Close()
		synctest.Wait()
		if n := m.Stats().Paused; n != 0 {
			t.Errorf("%d requests still wait", n)
		}
		if want := []policy.Outcome{policy.OutcomeClientGone}; !slices.Equal(m.seen.outcomes, want) {
			t.Errorf("outcomes %v, want %v at once", m.seen.outcomes, want)
		}
		if m.up.sends() != 1 {
			t.Errorf("%d sends", m.up.sends())
		}
	})
}

func TestADrainEndsAPause(t *testing.T) {
	up := &timed{first: []string{rawResponse(429, "Retry-After: 20")}}
	inMemory(t, up.handle, sharedPause("route"), func(t *testing.T, m *memory) {
		m.client().send(get("/")).later()
		time.Sleep(time.Second)
		waiting := m.client().send(get("/")).later()
		time.Sleep(time.Second)
		began := time.Now()
		drained := make(chan error)
		go func() { drained <- m.Drain(context.Background()) }()
		res, at := waiting()
		if res.StatusCode != 503 || !at.Equal(began) || res.Header.Get("X-Retryproxy-Reason") != "draining" || res.Header.Get("Retry-After") != "19" {
			t.Errorf("%d after %v, %v", res.StatusCode, at.Sub(began), res.Header)
		}
		<-drained
	})
}

// Both ways in which a retry that was decided is not sent after all.
func TestARetryThatIsNotSentIsNotCountedAndGivesItsTokenBack(t *testing.T) {
	busy := func(c *Config) {
		backoff, _ := backoff.New("fixed", backoff.Options{Base: 2 * time.Second})
		c.Default.Policy.Backoff, c.Default.Policy.Throttled = backoff, backoff
		c.Default.NoBudget, c.Default.Budget = false, budget.Config{Burst: 5}
		c.Default.RequestTimeout = 10 * time.Second
	}
	check := func(t *testing.T, m *memory, ended func() (*http.Response, time.Time), reason string) {
		t.Helper()
		res, _ := ended()
		if res.StatusCode != 503 || res.Header.Get("X-Retryproxy-Reason") != reason {
			t.Errorf("%d, reason %q", res.StatusCode, res.Header.Get("X-Retryproxy-Reason"))
		}
		synctest.Wait()
		if n := len(m.seen.retries); n != 0 {
			t.Errorf("%d retries counted", n)
		}
		if tokens := m.Stats().Upstreams[0].BudgetTokens; tokens != 5 {
			t.Errorf("%v tokens left of 5", tokens)
		}
	}
	t.Run("cool-down", func(t *testing.T) {
		up := &timed{first: []string{bad503, rawResponse(429, "Retry-After: 30")}}
		inMemory(t, up.handle, func(c *Config) { busy(c); sharedPause("route")(c) }, func(t *testing.T, m *memory) {
			first := m.client().send(get("/")).later()
			time.Sleep(time.Second)
			m.client().send(get("/")).want(429, "wait")
			check(t, m, first, "rate_limit_pause")
			if !slices.Contains(m.seen.outcomes, policy.GaveUp(policy.ReasonRateLimitPause)) {
				t.Errorf("outcomes %v", m.seen.outcomes)
			}
		})
	})
	t.Run("breaker", func(t *testing.T) {
		var down atomic.Bool
		inMemory(t, script(rawResponse(503, "Connection: close")), func(c *Config) {
			busy(c)
			c.Default.Guard, c.Default.FailFast = breaker.Options{}, true
			dial := c.Default.Upstream.Dial
			c.Default.Upstream.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if down.Load() {
					return nil, syscall.ECONNREFUSED
				}
				return dial(ctx, network, address)
			}
		}, func(t *testing.T, m *memory) {
			first := m.client().send(get("/")).later()
			time.Sleep(time.Second)
			down.Store(true)
			second := m.client().send(get("/")).later() // opens the breaker, and waits as well
			second()                                    // so that its token is back too
			check(t, m, first, "fail_fast")
			check(t, m, second, "fail_fast")
		})
	})
	t.Run("client left", func(t *testing.T) {
		inMemory(t, script(bad503), busy, func(t *testing.T, m *memory) {
			c := m.client().send(get("/"))
			time.Sleep(time.Second)
			c.Close()
			synctest.Wait()
			if n, tokens := len(m.seen.retries), m.Stats().Upstreams[0].BudgetTokens; n != 0 || tokens != 5 {
				t.Errorf("%d retries counted, %v tokens left of 5", n, tokens)
			}
		})
	})
}

func TestARetryThatAPauseForbidsIsNotWaitedFor(t *testing.T) {
	routeKey := routePauseKey(t)
	inMemory(t, slow(time.Second, bad503), func(c *Config) {
		sharedPause("route")(c)
		c.Default.Policy.Backoff, _ = backoff.New("fixed", backoff.Options{Base: 2 * time.Second})
	}, func(t *testing.T, m *memory) {
		began := time.Now()
		ended := m.client().send(get("/")).later()
		time.Sleep(500 * time.Millisecond) // it is sent
		m.ApplyRateLimitPause(routeKey, time.Minute)
		res, at := ended()
		if d := at.Sub(began); res.StatusCode != 503 || d != time.Second || res.Header.Get("X-Retryproxy-Reason") != "rate_limit_pause" {
			t.Errorf("%d after %v, %v", res.StatusCode, d, res.Header)
		}
	})
}

// routePauseKey returns the key under which processes share the pauses of the default route.
func routePauseKey(t *testing.T) (key uint64) {
	t.Helper()
	inMemory(t, script(rawResponse(429, "Retry-After: 50")), func(c *Config) {
		sharedPause("route")(c)
		c.RateLimitPauseBegan = func(began uint64, _ time.Duration) { key = began }
	}, func(t *testing.T, m *memory) { m.client().send(get("/")).want(429, "*") })
	return key
}

func TestPausesAreSharedAndLearnt(t *testing.T) {
	type told struct {
		key   uint64
		lasts time.Duration
	}
	var began []told
	note := func(c *Config) {
		sharedPause("X-Key")(c)
		c.RateLimitPauseBegan = func(key uint64, lasts time.Duration) { began = append(began, told{key, lasts}) }
	}
	inMemory(t, script(rawResponse(429, "Retry-After: 50")), note, func(t *testing.T, m *memory) {
		for range 3 { // one after the other on kept connections: at the same time
			m.client().send(getWithHeaders("X-Key: a")).want(429, "*")
		}
		m.client().send(getWithHeaders("X-Key: b")).want(429, "*")
	})
	if len(began) != 2 || began[0].lasts != 50*time.Second || began[0].key == began[1].key {
		t.Fatalf("told %v", began)
	}
	key := began[0].key
	inMemory(t, script(ok200), note, func(t *testing.T, m *memory) {
		m.ApplyRateLimitPause(key, 61*time.Second)
		m.ApplyRateLimitPause(key, -time.Second)
		m.client().send(getWithHeaders("X-Key: a")).want(200, "ok")
		m.ApplyRateLimitPause(key, 60*time.Second)
		m.client().send(getWithHeaders("X-Key: a")).want(429, "*")
		m.client().send(getWithHeaders("X-Key: b")).want(200, "ok")
	})
	if len(began) != 2 {
		t.Errorf("what was learnt was told on: %v", began)
	}
}
