package admission

import (
	"math/rand"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// sleeper is the owner of a waiter. It is woken by its decision.
type sleeper struct{ woken int }

func (s *sleeper) WakeQueued() { s.woken++ }

// Of those who wait for a permit, the newest is first, or, if the route wants that, the one whose request began
// first. A full queue drops the oldest.
func TestTheOrderOfTheQueue(t *testing.T) {
	for _, c := range []struct {
		oldest  bool
		order   []int // in which the waiters are admitted; their requests began in the order 1, 0, 2, 3
		dropped int
	}{
		{false, []int{3, 2, 1}, 0},
		{true, []int{0, 2, 3}, 1},
	} {
		clk := clock.New()
		h := house{clock: clk}
		q := New(Options{
			Guard: breaker.Options{NoBreaker: true, ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1},
			Pool:  upstream.NewGroup(upstream.Target{Host: "127.0.0.1:1"}, upstream.Options{Start: clk.Epoch()}), Max: 3, Oldest: c.oldest, Clock: clk, Draining: &h.draining,
			Failures: NewDialFailures(zap.NewNop(), "a"),
		})
		permit, ok := q.AcquireNow(q.elapsed())
		if !ok {
			t.Fatal("no permit")
		}
		began := []time.Duration{2, 1, 3, 4}
		var waiters [4]Waiter
		var owners [4]sleeper
		for i := range waiters {
			waiters[i].Owner = &owners[i]
			patient := func(breaker.Verdict) bool { return true }
			if decision, v, _ := q.Acquire(&waiters[i], q.elapsed(), began[i], patient); decision != Wait || v != breaker.VerdictAtLimit {
				t.Fatalf("%d: %v %v", i, decision, v)
			}
		}
		if got := waiters[c.dropped].Decision.Load(); got != Dropped {
			t.Errorf("oldest %v: the decision on %d is %d", c.oldest, c.dropped, got)
		}
		if s := q.Stats(); s.Guard.Queued != 3 || s.Guard.InFlight != 1 {
			t.Errorf("%d queued, %d in flight", s.Guard.Queued, s.Guard.InFlight)
		}
		for n, next := range c.order {
			q.HandleSignal(q.Guard.Release(permit, q.elapsed(), breaker.AttemptEnd{Kind: breaker.Responded, Status: 200}))
			for i := range waiters {
				if admitted := i == next; admitted != (waiters[i].Decision.Load() == Admit && waiters[i].Permit.Taken()) {
					t.Errorf("oldest %v: admission %d is not of %d: %d", c.oldest, n, next, i)
				}
			}
			permit = waiters[next].Permit
			waiters[next].Permit = breaker.Permit{}
			if owners[next].woken != 1 {
				t.Errorf("%d was woken %d times", next, owners[next].woken)
			}
		}
		q.HandleSignal(q.Guard.Release(permit, q.elapsed(), breaker.AttemptEnd{Kind: breaker.Responded, Status: 200}))
		if s := q.Stats(); s.Guard.Queued != 0 || s.Guard.InFlight != 0 || s.LongestWait != 0 {
			t.Errorf("in the end: %+v", s)
		}
		q.Close()
	}
}

func TestRateLimitsAsInSettings(t *testing.T) {
	rate := ratelimit.Rate{Count: 5, Per: time.Second}
	for _, c := range []struct {
		limit          RateLimit
		limited, count bool
	}{
		{RateLimit{}, false, false},
		{RateLimit{Rate: rate}, true, false},
		{RateLimit{Tokens: rate}, true, true},
		{RateLimit{Learn: true}, true, true},
		{RateLimit{Rate: rate, Tokens: rate}, true, true},
	} {
		if c.limit.Limited() != c.limited || c.limit.CountsTokens() != c.count {
			t.Errorf("%+v: limited %v, counts tokens %v", c.limit, c.limit.Limited(), c.limit.CountsTokens())
		}
	}
	if got := (&RateLimit{Learn: true, Tokens: rate}).String(); got != "auto and "+rate.String()+" tokens" {
		t.Error(got)
	}
	if got := (&RateLimit{Rate: rate}).String(); got != rate.String() {
		t.Error(got)
	}
}

// The tokens of the last minute are those of its parts, however long nothing was used.
func TestTokensOfTheLastMinute(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 200 {
		var u usedTokens
		var at []time.Duration
		var n []int64
		now := time.Duration(0)
		for range 50 {
			now += time.Duration(r.Int63n(int64(usedPart * []time.Duration{1, 3, 20}[r.Intn(3)])))
			k := r.Int63n(1000)
			u.add(now, k)
			at, n = append(at, now), append(n, k)
			want := int64(0)
			for i := range at {
				if now/usedPart-at[i]/usedPart < usedParts {
					want += n[i]
				}
			}
			if got := u.lastMinute(now); got != want {
				t.Fatalf("at %v: %d, want %d", now, got, want)
			}
		}
	}
}
