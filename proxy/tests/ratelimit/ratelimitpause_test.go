package ratelimit

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

func getWithHeaders(fields ...string) string {
	return "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n"
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
			up := &peers.Timed{First: []string{peers.RawResponse(429, "Retry-After: 5")}}
			proxytest.InMemory(t, up.Handle, peers.SharedPause(tc.key), func(t *testing.T, m *proxytest.Memory) {
				began := time.Now()
				first := m.Client().Send(getWithHeaders(tc.first)).Later()
				time.Sleep(time.Second)
				second := m.Client().Send(getWithHeaders(tc.second)).Later()
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
				if n := len(m.Seen.Retries); n != 1 {
					t.Errorf("%d retries counted, want that of the first alone", n)
				}
				if held := len(m.Seen.Held); (held == 1) != tc.waits {
					t.Errorf("%d holds counted", held)
				}
			})
		})
	}
}

func TestWithoutAKeyA429PausesItsOwnRequestAlone(t *testing.T) {
	up := &peers.Timed{First: []string{peers.RawResponse(429, "Retry-After: 5")}}
	proxytest.InMemory(t, up.Handle, nil, func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		first := m.Client().Send(peers.Get("/")).Later()
		time.Sleep(time.Second)
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		if d := time.Since(began); d != time.Second {
			t.Errorf("the second was answered after %v", d)
		}
		first()
	})
}

func TestA429WithoutATimeStopsNobodyElse(t *testing.T) {
	for name, limited := range map[string]string{
		"no word":         peers.RawResponse(429),
		"rate limit left": peers.RawResponse(429, "X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 5"),
		"503":             peers.RawResponse(503, "Retry-After: 5"),
		"500":             peers.RawResponse(500, "Retry-After: 5"),
		"at once":         peers.RawResponse(429, "Retry-After: 0"),
		"200 exhausted":   peers.RawResponse(200, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5"),
	} {
		t.Run(name, func(t *testing.T) {
			up := &peers.Timed{First: []string{limited}}
			proxytest.InMemory(t, up.Handle, peers.SharedPause("route"), func(t *testing.T, m *proxytest.Memory) {
				first := m.Client().Send(peers.Get("/")).Later()
				time.Sleep(time.Second)
				began := time.Now()
				m.Client().Send(peers.Get("/")).Want(200, "ok")
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
		"429 structured":         peers.RawResponse(429, `RateLimit: "a";r=0;t=7`),
		"503 structured":         peers.RawResponse(503, `RateLimit: "a";r=0;t=7`),
		"429 X":                  peers.RawResponse(429, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7"),
		"Retry-After goes first": peers.RawResponse(429, "Retry-After: 7", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 9"),
	} {
		t.Run(name, func(t *testing.T) {
			up := &peers.Timed{First: []string{limited}}
			proxytest.InMemory(t, up.Handle, nil, func(t *testing.T, m *proxytest.Memory) {
				began := time.Now()
				m.Client().Send(peers.Get("/")).Want(200, "ok")
				if d := time.Since(began); d < 7*time.Second || d > 7*time.Second+time.Millisecond {
					t.Errorf("answered after %v, want 7 s plus the jitter of at most 1 ms", d)
				}
			})
		})
	}
}

func TestAPauseThatDoesNotFitGetsTheResponseAtOnce(t *testing.T) {
	up := &peers.Timed{First: []string{peers.RawResponse(429, "Retry-After: 20")}}
	proxytest.InMemory(t, up.Handle, func(c *proxy.Config) {
		peers.SharedPause("route")(c)
		c.Default.RequestTimeout = 10 * time.Second
		c.Default.NoBudget, c.Default.Budget = false, budget.Config{Burst: 2}
	}, func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Get("/")).Want(429, "wait") // too long for itself
		time.Sleep(500 * time.Millisecond)
		for _, request := range []string{peers.Get("/"), peers.Post("x")} {
			began := time.Now()
			res := m.Client().Send(request).Want(429, "*")
			if d := time.Since(began); d != 0 {
				t.Errorf("answered after %v", d)
			}
			if h := res.Header; h.Get("Retry-After") != "20" || h.Get("X-Retryproxy-Reason") != "rate_limit_pause" || h.Get("X-Retryproxy-Attempts") != "" {
				t.Errorf("header %v", h)
			}
		}
		synctest.Wait()
		if want := []policy.Outcome{policy.OutcomeGaveUpRetryAfterTooLong, policy.OutcomeRateLimitPause, policy.OutcomeRateLimitPause}; !slices.Equal(m.Seen.Outcomes, want) {
			t.Errorf("outcomes %v, want %v", m.Seen.Outcomes, want)
		}
		if m.Up.Sends() != 1 || len(m.Seen.Retries) != 0 {
			t.Errorf("%d sends, %d retries", m.Up.Sends(), len(m.Seen.Retries))
		}
		if tokens := m.Stats().Upstreams[0].BudgetTokens; tokens != 2 {
			t.Errorf("%v tokens left of 2", tokens)
		}
		time.Sleep(20 * time.Second)
		m.Client().Send(peers.Get("/")).Want(200, "ok")
	})
}

func TestAPauseBeyondTheCapIsForTheClientAndPausesNothing(t *testing.T) {
	up := &peers.Timed{First: []string{peers.RawResponse(429, "Retry-After: 61")}}
	proxytest.InMemory(t, up.Handle, func(c *proxy.Config) {
		peers.SharedPause("route")(c)
		c.Default.RequestTimeout = 10 * time.Minute
	}, func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		res := m.Client().Send(peers.Get("/")).Want(429, "wait")
		if got := res.Header.Get("X-Retryproxy-Reason"); got != "retry_after_too_long" {
			t.Errorf("reason %q", got)
		}
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		if d := time.Since(began); d != 0 {
			t.Errorf("took %v", d)
		}
		if m.Stats().RateLimitPauses.Begun != 0 {
			t.Error("a rate-limit pause began")
		}
	})
}

func TestWaitersDoNotComeBackInTheSameInstant(t *testing.T) {
	up := &peers.Timed{First: []string{peers.RawResponse(429, "Retry-After: 5")}}
	proxytest.InMemory(t, up.Handle, peers.SharedPause("route"), func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		m.Client().Send(peers.Get("/")).Later()
		time.Sleep(time.Second)
		var ends []func() (*http.Response, time.Time)
		for range 40 {
			ends = append(ends, m.Client().Send(peers.Get("/")).Later())
		}
		for _, end := range ends {
			end()
		}
		slices.SortFunc(up.At, time.Time.Compare)
		distinct := len(slices.CompactFunc(slices.Clone(up.At[1:]), time.Time.Equal))
		spread := up.At[len(up.At)-1].Sub(up.At[1])
		if first := up.At[1].Sub(began); first < 5*time.Second || distinct < 39 || spread < 500*time.Millisecond || spread > time.Second {
			t.Errorf("the first came back after %v, at %d different times spread over %v", first, distinct, spread)
		}
	})
}

func TestWaitersWaitOnWhenThePauseGrows(t *testing.T) {
	up := &peers.Timed{First: []string{peers.RawResponse(429, "Retry-After: 3"), peers.RawResponse(429, "Retry-After: 6")}}
	proxytest.InMemory(t, up.Handle, peers.SharedPause("route"), func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		first := m.Client().Send(peers.Get("/")).Later() // is told 3 s, then at 3 s 6 more
		time.Sleep(time.Second)
		second := m.Client().Send(peers.Get("/")).Later()
		first()
		if _, at := second(); at.Sub(began) < 3*time.Second {
			t.Errorf("came back after %v", at.Sub(began))
		}
		for _, at := range up.At[2:] {
			if d := at.Sub(began); d < 9*time.Second {
				t.Errorf("sent after %v, within the second pause", d)
			}
		}
	})
}

func TestClientLeavingEndsAPause(t *testing.T) {
	up := &peers.Timed{First: []string{peers.RawResponse(429, "Retry-After: 20")}}
	proxytest.InMemory(t, up.Handle, peers.SharedPause("route"), func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Get("/")).Later()
		time.Sleep(time.Second)
		c := m.Client().Send(peers.Get("/"))
		time.Sleep(time.Second)
		if n := m.Stats().Paused; n != 1 {
			t.Errorf("%d requests wait for the pause, expected 1: the retry of the first waits for itself", n)
		}
		c.Close()
		synctest.Wait()
		if n := m.Stats().Paused; n != 0 {
			t.Errorf("%d requests still wait", n)
		}
		if want := []policy.Outcome{policy.OutcomeClientGone}; !slices.Equal(m.Seen.Outcomes, want) {
			t.Errorf("outcomes %v, want %v at once", m.Seen.Outcomes, want)
		}
		if m.Up.Sends() != 1 {
			t.Errorf("%d sends", m.Up.Sends())
		}
	})
}

func TestADrainEndsAPause(t *testing.T) {
	up := &peers.Timed{First: []string{peers.RawResponse(429, "Retry-After: 20")}}
	proxytest.InMemory(t, up.Handle, peers.SharedPause("route"), func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Get("/")).Later()
		time.Sleep(time.Second)
		waiting := m.Client().Send(peers.Get("/")).Later()
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
	busy := func(c *proxy.Config) {
		backoff, _ := backoff.New("fixed", backoff.Options{Base: 2 * time.Second})
		c.Default.Policy.Backoff, c.Default.Policy.Throttled = backoff, backoff
		c.Default.NoBudget, c.Default.Budget = false, budget.Config{Burst: 5}
		c.Default.RequestTimeout = 10 * time.Second
	}
	check := func(t *testing.T, m *proxytest.Memory, ended func() (*http.Response, time.Time), reason string) {
		t.Helper()
		res, _ := ended()
		if res.StatusCode != 503 || res.Header.Get("X-Retryproxy-Reason") != reason {
			t.Errorf("%d, reason %q", res.StatusCode, res.Header.Get("X-Retryproxy-Reason"))
		}
		synctest.Wait()
		if n := len(m.Seen.Retries); n != 0 {
			t.Errorf("%d retries counted", n)
		}
		if tokens := m.Stats().Upstreams[0].BudgetTokens; tokens != 5 {
			t.Errorf("%v tokens left of 5", tokens)
		}
	}
	t.Run("cool-down", func(t *testing.T) {
		up := &peers.Timed{First: []string{peers.Bad503, peers.RawResponse(429, "Retry-After: 30")}}
		proxytest.InMemory(t, up.Handle, func(c *proxy.Config) { busy(c); peers.SharedPause("route")(c) }, func(t *testing.T, m *proxytest.Memory) {
			first := m.Client().Send(peers.Get("/")).Later()
			time.Sleep(time.Second)
			m.Client().Send(peers.Get("/")).Want(429, "wait")
			check(t, m, first, "rate_limit_pause")
			if !slices.Contains(m.Seen.Outcomes, policy.GaveUp(policy.ReasonRateLimitPause)) {
				t.Errorf("outcomes %v", m.Seen.Outcomes)
			}
		})
	})
	t.Run("breaker", func(t *testing.T) {
		var down atomic.Bool
		proxytest.InMemory(t, peers.Script(peers.RawResponse(503, "Connection: close")), func(c *proxy.Config) {
			busy(c)
			c.Default.Guard, c.Default.FailFast = breaker.Options{}, true
			dial := c.Default.Upstream.Dial
			c.Default.Upstream.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if down.Load() {
					return nil, syscall.ECONNREFUSED
				}
				return dial(ctx, network, address)
			}
		}, func(t *testing.T, m *proxytest.Memory) {
			first := m.Client().Send(peers.Get("/")).Later()
			time.Sleep(time.Second)
			down.Store(true)
			second := m.Client().Send(peers.Get("/")).Later() // opens the breaker, and waits as well
			second()                                          // so that its token is back too
			check(t, m, first, "fail_fast")
			check(t, m, second, "fail_fast")
		})
	})
	t.Run("client left", func(t *testing.T) {
		proxytest.InMemory(t, peers.Script(peers.Bad503), busy, func(t *testing.T, m *proxytest.Memory) {
			c := m.Client().Send(peers.Get("/"))
			time.Sleep(time.Second)
			c.Close()
			synctest.Wait()
			if n, tokens := len(m.Seen.Retries), m.Stats().Upstreams[0].BudgetTokens; n != 0 || tokens != 5 {
				t.Errorf("%d retries counted, %v tokens left of 5", n, tokens)
			}
		})
	})
}

func TestARetryThatAPauseForbidsIsNotWaitedFor(t *testing.T) {
	routeKey := proxytest.RoutePauseKey(t)
	proxytest.InMemory(t, peers.AnswersAfter(time.Second, peers.Bad503), func(c *proxy.Config) {
		peers.SharedPause("route")(c)
		c.Default.Policy.Backoff, _ = backoff.New("fixed", backoff.Options{Base: 2 * time.Second})
	}, func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		ended := m.Client().Send(peers.Get("/")).Later()
		time.Sleep(500 * time.Millisecond) // it is sent
		m.ApplyRateLimitPause(routeKey, time.Minute)
		res, at := ended()
		if d := at.Sub(began); res.StatusCode != 503 || d != time.Second || res.Header.Get("X-Retryproxy-Reason") != "rate_limit_pause" {
			t.Errorf("%d after %v, %v", res.StatusCode, d, res.Header)
		}
	})
}

func TestPausesAreSharedAndLearnt(t *testing.T) {
	type told struct {
		key   uint64
		lasts time.Duration
	}
	var began []told
	note := func(c *proxy.Config) {
		peers.SharedPause("X-Key")(c)
		c.RateLimitPauseBegan = func(key uint64, lasts time.Duration) { began = append(began, told{key, lasts}) }
	}
	proxytest.InMemory(t, peers.Script(peers.RawResponse(429, "Retry-After: 50")), note, func(t *testing.T, m *proxytest.Memory) {
		for range 3 { // one after the other on kept connections: at the same time
			m.Client().Send(getWithHeaders("X-Key: a")).Want(429, "*")
		}
		m.Client().Send(getWithHeaders("X-Key: b")).Want(429, "*")
	})
	if len(began) != 2 || began[0].lasts != 50*time.Second || began[0].key == began[1].key {
		t.Fatalf("told %v", began)
	}
	key := began[0].key
	proxytest.InMemory(t, peers.Script(peers.OK200), note, func(t *testing.T, m *proxytest.Memory) {
		m.ApplyRateLimitPause(key, 61*time.Second)
		m.ApplyRateLimitPause(key, -time.Second)
		m.Client().Send(getWithHeaders("X-Key: a")).Want(200, "ok")
		m.ApplyRateLimitPause(key, 60*time.Second)
		m.Client().Send(getWithHeaders("X-Key: a")).Want(429, "*")
		m.Client().Send(getWithHeaders("X-Key: b")).Want(200, "ok")
	})
	if len(began) != 2 {
		t.Errorf("what was learnt was told on: %v", began)
	}
}
