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

// idleStage is a Page that runs, and counts how often it looks.
func idleStage(t *testing.T, g breaker.GuardState, do func(s *stage, looks func() int)) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{metrics: metrics.New(metrics.Options{})}
		var looks atomic.Int64
		s.upstreams = []metrics.Upstream{{Name: "u", Guard: g}}
		s.Page = New(Options{
			Metrics: s.metrics, Process: func() Process { return Process{} }, Route: func(string) Rule { return Rule{} },
			Upstreams: func() []metrics.Upstream { looks.Add(1); return s.upstreams },
		})
		ctx, cancel := context.WithCancel(t.Context())
		go s.Run(ctx)
		do(s, func() int {
			synctest.Wait()
			return int(looks.Swap(0))
		})
		cancel()
	})
}

func (s *stage) arrives(o policy.Outcome) {
	s.Wake()
	s.request("a", o, time.Millisecond)
}

func TestDoesNotLookWhileNothingHappens(t *testing.T) {
	idleStage(t, breaker.GuardState{}, func(s *stage, looks func() int) {
		for range 3 {
			time.Sleep(time.Minute)
			looks()
			time.Sleep(time.Hour)
			if n := looks(); n != 0 {
				t.Fatalf("%d looks in an idle hour", n)
			}
			s.arrives(policy.OutcomeSuccess)
		}
	})
}

// Each of these may change without a request that begins or ends.
func TestLooksOnWhileSomethingIsGoingOn(t *testing.T) {
	for what, g := range map[string]breaker.GuardState{"in flight": {InFlight: 1}, "queued": {Queued: 1}, "breaker": {Breaker: breaker.Open}} {
		idleStage(t, g, func(s *stage, looks func() int) {
			time.Sleep(time.Hour)
			if n := looks(); n != int(time.Hour/Step) {
				t.Errorf("%s: %d looks", what, n)
			}
		})
	}
	idleStage(t, breaker.GuardState{}, func(s *stage, looks func() int) {
		s.metrics.Route("a").Near().RequestBegan()
		time.Sleep(time.Hour)
		if n := looks(); n != int(time.Hour/Step) {
			t.Errorf("a request: %d looks", n)
		}
	})
}

// What the page shows is the same as if it had looked all the time.
func TestSkippedStepsAreInTheHistory(t *testing.T) {
	for _, gap := range []time.Duration{3 * Step, 20 * Step, 59 * Step, 75 * Step, time.Hour} {
		idleStage(t, breaker.GuardState{}, func(s *stage, looks func() int) {
			s.arrives(policy.OutcomeRecovered)
			time.Sleep(Step + time.Second)
			s.arrives(policy.OutcomeFailFast)
			time.Sleep(gap)
			check := func(when string, recovered, failed int) {
				t.Helper()
				r := s.route(t, "a")
				if got := slices.Index(r.History.Recovered, 1); got != recovered {
					t.Errorf("%v, %s: recovered at %d, expected %d: %v", gap, when, got, recovered, r.History.Recovered)
				}
				if got := slices.Index(r.History.Failed, 1); got != failed {
					t.Errorf("%v, %s: failed at %d, expected %d: %v", gap, when, got, failed, r.History.Failed)
				}
			}
			at := func(ago int) int { return max(Points-1-ago, -1) }
			s.now = time.Now()
			ago := int(gap / Step)
			check("looked at", at(ago), at(ago-1))
			if l, want := s.route(t, "a").Last.Requests, map[bool]uint32{true: 0, false: 2}[gap > Window+marksEvery*Step]; l != want {
				t.Errorf("%v: %d requests in the last minutes, expected %d", gap, l, want)
			}
			s.arrives(policy.OutcomeSuccess)
			synctest.Wait()
			check("woken", at(ago), at(ago-1))
			time.Sleep(Step)
			synctest.Wait()
			s.now = time.Now()
			check("a step later", at(ago+1), at(ago))
			r := s.route(t, "a")
			if n := r.History.FirstTry[Points-1]; n != 1 || r.Now.Requests != 1 || r.Now.Seconds > 2*Step.Seconds() {
				t.Errorf("%v: %d requests in the last step, %+v", gap, n, r.Now)
			}
		})
	}
}
