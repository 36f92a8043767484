package retry

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
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

// waitsForBudget sets the default route up as outbound, with the rules of the profile batch.
func waitsForBudget(t *testing.T) func(c *proxy.Config) {
	return func(c *proxy.Config) {
		on, err := policy.ParseRetryOn(peers.UsualRetryOn)
		if err != nil {
			t.Fatal(err)
		}
		p := policy.Policy{RetryOn: on, MaxRetries: 8, QueueForBudget: true}
		if p.Backoff, err = backoff.New("additive", backoff.Options{}); err != nil {
			t.Fatal(err)
		}
		c.Default.Policy, c.Default.RequestTimeout = p, 3*time.Minute
		c.Default.NoBudget, c.Default.Budget = false, budget.Default()
	}
}

// moody is an upstream whose response depends on the time since it began.
type moody struct {
	mu    sync.Mutex
	began time.Time
	sent  int
	says  func(since time.Duration) string
}

func (s *moody) handle(c *peers.Conn) {
	for headers := c.Head(); headers != ""; headers = c.Head() {
		peers.DiscardBody(c, headers)
		s.mu.Lock()
		if s.began.IsZero() {
			s.began = time.Now()
		}
		s.sent++
		response := s.says(time.Since(s.began))
		s.mu.Unlock()
		c.Say("%s", response)
	}
}

// rateLimited returns what an upstream says that takes ten requests a second, ten at once.
func rateLimited() func(time.Duration) string {
	level, last := 10.0, time.Duration(0)
	return func(now time.Duration) string {
		level, last = min(10, level+10*(now-last).Seconds()), now
		if level < 1 {
			return peers.RawResponse(429, "Retry-After: 1")
		}
		level--
		return peers.OK200
	}
}

// burst sends n requests at once and returns their statuses and reasons, when all have ended.
func burst(m *proxytest.Memory, n int) map[string]int {
	var all []func() string
	for range n {
		end := m.Client().Send(peers.Get("/")).Later()
		all = append(all, func() string {
			res, _ := end()
			return fmt.Sprint(res.StatusCode, " ", res.Header.Get("X-Retryproxy-Reason"))
		})
	}
	seen := map[string]int{}
	for _, end := range all {
		seen[end()]++
	}
	return seen
}

// Whoever can wait waits for the retry budget: none of twenty requests is lost to an upstream that
// fails for 20 s, and none of a hundred to one that takes ten a second.
func TestNobodyWhoCanWaitIsLostToTheBudget(t *testing.T) {
	failing := func(since time.Duration) string {
		if since < 20*time.Second {
			return peers.RawResponse(500)
		}
		return peers.OK200
	}
	for name, tc := range map[string]struct {
		says func(time.Duration) string
		n    int
	}{"an upstream that fails": {failing, 20}, "an upstream with a rate limit": {rateLimited(), 100}} {
		t.Run(name, func(t *testing.T) {
			up := &moody{says: tc.says}
			proxytest.InMemory(t, up.handle, waitsForBudget(t), func(t *testing.T, m *proxytest.Memory) {
				began := time.Now()
				if seen := burst(m, tc.n); seen["200 "] != tc.n {
					t.Errorf("%v, want %d times 200", seen, tc.n)
				}
				if took := time.Since(began); took > 90*time.Second {
					t.Errorf("all had their responses after %v, want at most 90s", took)
				}
			})
		})
	}
}

// The same with the circuit breaker, which opens in such an outage: the profile waits there for as
// long as a request may take.
func TestNobodyWhoCanWaitIsLostToTheBreaker(t *testing.T) {
	up := &moody{says: func(since time.Duration) string {
		if since < 20*time.Second {
			return peers.RawResponse(503)
		}
		return peers.OK200
	}}
	proxytest.InMemory(t, up.handle, func(c *proxy.Config) {
		waitsForBudget(t)(c)
		c.Default.Guard, c.Default.QueueTimeout = breaker.Options{}, 3*time.Minute
	}, func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		if seen := burst(m, 20); seen["200 "] != 20 {
			t.Errorf("%v, want 20 times 200", seen)
		}
		if g := m.Stats().Upstreams[0].Guard; g.Opened[breaker.OpenedByFailing] == 0 {
			t.Errorf("the breaker did not open: %+v", g)
		}
		if took := time.Since(began); took > 60*time.Second {
			t.Errorf("all had their responses after %v, want at most 60s", took)
		}
	})
}

// The budget holds as before: what an upstream gets that refuses everything.
func TestAnUpstreamThatAlwaysRefusesGetsNoMoreThanTheBudget(t *testing.T) {
	for asked, most := range map[string]float64{"0": 1.2, "1": 2.2} {
		t.Run("Retry-After "+asked, func(t *testing.T) {
			up := &moody{says: func(time.Duration) string { return peers.RawResponse(429, "Retry-After: "+asked) }}
			proxytest.InMemory(t, up.handle, waitsForBudget(t), func(t *testing.T, m *proxytest.Memory) {
				const n, perSecond = 1000, 20
				began := time.Now()
				var ends []func() (*http.Response, time.Time)
				for range n {
					ends = append(ends, m.Client().Send(peers.Get("/")).Later())
					time.Sleep(time.Second / perSecond)
				}
				for _, end := range ends {
					end()
				}
				c := budget.Default()
				if limit := most*n + float64(c.Burst) + c.MinPerSecond*time.Since(began).Seconds(); float64(up.sent) > limit {
					t.Errorf("%d attempts for %d requests, want at most %.0f", up.sent, n, limit)
				}
			})
		})
	}
}

// In front of an application, load matters more: nothing waits for the budget.
func TestInboundRetriesDoNotWaitForTheBudget(t *testing.T) {
	up := &moody{says: func(time.Duration) string { return peers.RawResponse(429, "Retry-After: 1") }}
	proxytest.InMemory(t, up.handle, func(c *proxy.Config) {
		waitsForBudget(t)(c)
		c.Default.Policy.QueueForBudget = false
		c.Default.Budget = budget.Config{Burst: 1}
	}, func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		if seen := burst(m, 5); seen["429 budget_exhausted"] != 5 || up.sent != 6 {
			t.Errorf("%v after %d attempts, want 5 times 429 after 6", seen, up.sent)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("responses after %v", took)
		}
	})
}

// spent spends the budget of the default route, which is one token, on a request to /spend. Its upstream fails
// its first attempt and no other.
func spent(m *proxytest.Memory) {
	m.T.Helper()
	m.Client().Send(peers.Get("/spend")).Later()
	synctest.Wait()
	if n := m.Stats().Upstreams[0].BudgetTokens; n != 0 {
		m.T.Fatalf("%v tokens are left", n)
	}
}

// firstOfSpend fails the first attempt of a request to /spend. It reports false for others.
func firstOfSpend(c *peers.Conn, headers string) bool {
	if !strings.HasPrefix(headers, "GET /spend ") {
		return false
	}
	if peers.FieldOf(headers, "X-Retryproxy-Attempt") == "1" {
		c.Say(peers.Bad503)
	} else {
		c.Say(peers.OK200)
	}
	return true
}

func TestAWaitForTheBudgetEnds(t *testing.T) {
	handle := func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			if !firstOfSpend(c, headers) {
				c.Say(peers.Bad503)
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(c *proxy.Config)
		end    func(m *proxytest.Memory, c *peers.Client)
		after  time.Duration
		want   string // "": the client left
	}{
		"when the client leaves": {end: func(_ *proxytest.Memory, c *peers.Client) { c.Close() }, after: time.Second},
		"when a drain begins":    {end: func(m *proxytest.Memory, _ *peers.Client) { go m.Drain(context.Background()) }, after: time.Second, want: "draining"},
		"when the deadline leaves no room": {
			change: func(c *proxy.Config) { c.Default.RequestTimeout = 10 * time.Second },
			want:   "budget_exhausted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemory(t, handle, func(c *proxy.Config) {
				waitsForBudget(t)(c)
				c.Default.Budget = budget.Config{MinPerSecond: 0.05, Burst: 1} // a token in 20 s
				if tc.change != nil {
					tc.change(c)
				}
			}, func(t *testing.T, m *proxytest.Memory) {
				spent(m)
				time.Sleep(3 * time.Second) // its retry is answered
				began := time.Now()
				c := m.Client().Send(peers.Get("/"))
				ended := c.Later()
				time.Sleep(time.Second)
				if tc.end != nil {
					tc.end(m, c)
				}
				if res, at := ended(); tc.want != "" && (res.Header.Get("X-Retryproxy-Reason") != tc.want || at.Sub(began) != tc.after) {
					t.Errorf("%v after %v, want %s after %v", res.Header, at.Sub(began), tc.want, tc.after)
				}
				time.Sleep(40 * time.Second)
				if n := m.Up.Sends() - 2; n != 1 { // two of the request that spent the budget
					t.Errorf("%d attempts, want 1", n)
				}
				if got := m.Stats().Upstreams[0].BudgetTokens; got != 1 {
					t.Errorf("%v tokens are left, want the one that was earned", got)
				}
				if tc.want == "draining" {
					return
				}
				again := time.Now()
				m.Client().Send(peers.Get("/spend")).Want(200, "ok")
				if d := time.Since(again); d > 10*time.Second {
					t.Errorf("retried after %v: a retry that is gone still waits for a token", d)
				}
			})
		})
	}
}

// The backoff runs while the retry waits for its token.
func TestBackoffAndTheWaitForATokenOverlap(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{
		200 * time.Millisecond: time.Second,
		3 * time.Second:        3 * time.Second,
	} {
		up := &peers.Timed{First: []string{peers.RawResponse(503)}}
		handle := func(c *peers.Conn) {
			for headers := c.Head(); headers != ""; headers = c.Head() {
				if !firstOfSpend(c, headers) {
					up.Answer(c)
				}
			}
		}
		proxytest.InMemory(t, handle, func(c *proxy.Config) {
			waitsForBudget(t)(c)
			c.Default.Policy.Backoff = peers.FixedWait(t, wait)
			c.Default.Budget = budget.Config{MinPerSecond: 1, Burst: 1}
		}, func(t *testing.T, m *proxytest.Memory) {
			spent(m)
			m.Client().Send(peers.Get("/")).Want(200, "ok")
			if got := up.At[1].Sub(up.At[0]); got < want || got > want+maxPoll {
				t.Errorf("a backoff of %v: the retry came after %v, want %v", wait, got, want)
			}
		})
	}
}

// maxPoll is how late a token may be passed on.
const maxPoll = 100 * time.Millisecond
