package page

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
)

// A page takes no steps while nothing happens, and its history is as if it had.
func TestThePageSleepsWhileNothingHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		began := time.Now()
		s.history.begin(began)
		var looks atomic.Int64
		up := metrics.Upstream{Name: "u", Guard: breaker.GuardState{ConcurrencyLimit: 7}}
		s.options.Upstreams = func() []metrics.Upstream {
			looks.Add(1)
			return []metrics.Upstream{up}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		ask := func() Route {
			s.now = time.Now()
			return s.route(t, "a")
		}

		pass(2 * time.Second)
		s.request("a", policy.OutcomeSuccess, time.Millisecond)
		pass(Step)
		s.request("a", policy.OutcomeSuccess, time.Millisecond)
		pass(3 * Step)
		before := looks.Load()
		pass(20*Step + time.Second) // 24 steps and 3 seconds since the beginning
		if now := looks.Load(); now != before {
			t.Errorf("the page looked %d times while nothing happened", now-before)
		}
		r := ask()
		if first := r.History.FirstAttempt; len(first) != Points || first[Points-24] != 1 || first[Points-23] != 1 {
			t.Errorf("while it sleeps, the history is %v", first)
		}
		if r.Now.Seconds != 8 || r.Now.Requests != 0 || r.Last.Requests != 2 {
			t.Errorf("while it sleeps, now %+v, last %+v", r.Now, r.Last)
		}

		s.request("a", policy.OutcomeSuccess, time.Millisecond)
		pass(Step)
		r = ask()
		if first := r.History.FirstAttempt; first[Points-1] != 1 || first[Points-25] != 1 || first[Points-24] != 1 {
			t.Errorf("awake again, the history is %v", first)
		}
		if limits := s.State(s.now).Upstreams[0].History.Limit; slices.Contains(limits[Points-25:], 0) {
			t.Errorf("the upstream's limit was %v", limits)
		}

		pass(1000 * time.Hour)
		s.request("a", policy.OutcomeSuccess, time.Millisecond)
		pass(Step)
		if r := ask(); r.Last.Requests != 1 || r.Last.Seconds < Window.Seconds() || r.Last.Seconds > (Window+2*Step).Seconds() {
			t.Errorf("after weeks, last %+v", r.Last)
		}
	})
}

// What could change something without a request keeps the page awake.
func TestThePageStaysAwake(t *testing.T) {
	for name, begin := range map[string]func(s *stage, u *metrics.Upstream){
		"a request in flight":                    func(s *stage, _ *metrics.Upstream) { s.metrics.Route("a").Near().RequestBegan() },
		"an upstream is probed":                  func(_ *stage, u *metrics.Upstream) { u.HasProbe = true },
		"an abandoned attempt that expires":      func(_ *stage, u *metrics.Upstream) { u.Guard.Abandoned = 1 },
		"an upstream is probed by connecting":    func(_ *stage, u *metrics.Upstream) { u.Guard.Breaker = breaker.Open },
		"a retry budget that becomes full again": func(_ *stage, u *metrics.Upstream) { u.HasBudget = true },
		"a retry budget that others use, too":    func(s *stage, _ *metrics.Upstream) { s.options.Shares = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage()
				var looks atomic.Int64
				up := metrics.Upstream{Name: "u"}
				begin(s, &up)
				s.options.Upstreams = func() []metrics.Upstream {
					if looks.Add(1); up.HasBudget {
						up.BudgetTokens++
					}
					return []metrics.Upstream{up}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go s.Run(ctx)
				time.Sleep(10*Step + time.Second)
				synctest.Wait()
				if n := looks.Load(); n != 10 {
					t.Errorf("%d looks in ten steps", n)
				}
			})
		})
	}
}

// A reload may add an upstream that is probed, whose state changes without a request.
func TestAReloadWakesThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		var looks atomic.Int64
		var probed atomic.Bool
		s.options.Upstreams = func() []metrics.Upstream {
			looks.Add(1)
			return []metrics.Upstream{{Name: "u", HasProbe: probed.Load()}}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		time.Sleep(10*Step + time.Second)
		synctest.Wait()
		before := looks.Load()
		probed.Store(true)
		s.metrics.ConfigLoaded(false, time.Now()) // one that is refused changes nothing
		time.Sleep(10 * Step)
		synctest.Wait()
		asleep := looks.Load()
		s.metrics.ConfigLoaded(true, time.Now())
		time.Sleep(10 * Step)
		synctest.Wait()
		if n := looks.Load() - asleep; asleep != before || n != 10 {
			t.Errorf("%d looks while it slept, %d in ten steps after the reload", asleep-before, n)
		}
	})
}
