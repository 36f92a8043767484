package admission

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/queue"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
)

// retryWaiter is a retry in a BudgetQueue.
type retryWaiter struct {
	Waiter
	ticket queue.Ticket
	wokeAt atomic.Int64 // since the server's start; 0: it waits
	now    func() time.Duration
}

// woke returns when w was woken; 0: it waits.
func (w *retryWaiter) woke() time.Duration { return time.Duration(w.wokeAt.Load()) }

func (w *retryWaiter) WakeQueued() { w.wokeAt.Store(int64(w.now())) }

// budgetQueue calls test with an empty budget of one token a second and its queue, in fake time.
func budgetQueue(t *testing.T, size int, test func(t *testing.T, q *BudgetQueue, enter func(until time.Duration) *retryWaiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(budget.Config{MinPerSecond: 1, Burst: 1})
		c := clock.New()
		q := NewBudgetQueue(b, size, c)
		b.TryRetry(c.Elapsed())
		test(t, q, func(until time.Duration) *retryWaiter {
			w := &retryWaiter{now: c.Elapsed}
			w.Owner = w
			_, w.ticket = q.Enter(&w.Waiter, until)
			return w
		})
	})
}

func TestTokensGoToRetriesInOrder(t *testing.T) {
	budgetQueue(t, 10, func(t *testing.T, q *BudgetQueue, enter func(time.Duration) *retryWaiter) {
		all := []*retryWaiter{enter(time.Minute), enter(time.Minute), enter(time.Minute), enter(time.Minute)}
		if d := q.Quit(&all[1].Waiter, all[1].ticket); d != Dropped {
			t.Errorf("one that leaves without a token has the decision %d", d)
		}
		time.Sleep(10 * time.Second)
		var woke []time.Duration
		for i, w := range all {
			if i != 1 {
				woke = append(woke, w.woke().Round(10*time.Millisecond))
			}
			if d := q.Quit(&w.Waiter, w.ticket); i != 1 && d != Admit {
				t.Errorf("retry %d has the decision %d after it was admitted", i, d)
			}
		}
		if want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}; !slices.Equal(woke, want) {
			t.Errorf("tokens at %v, want %v", woke, want)
		}
		if all[1].woke() != 0 {
			t.Error("one that left got a token")
		}
		var w Waiter
		if d, _ := q.Enter(&w, 0); d != Admit {
			t.Error("no token at once, though one is there and nobody waits")
		}
	})
}

// Retries that join more often than the timer is due do not put it off.
func TestJoiningDoesNotDelayTokens(t *testing.T) {
	budgetQueue(t, 100_000, func(t *testing.T, q *BudgetQueue, enter func(time.Duration) *retryWaiter) {
		first := enter(time.Hour)
		for range 2500 {
			time.Sleep(500 * time.Microsecond)
			enter(100 * time.Hour)
		}
		if first.woke() == 0 || first.woke() > 1100*time.Millisecond {
			t.Errorf("the first token came after %v, want 1s", first.woke())
		}
	})
}

func TestABudgetQueueIsBounded(t *testing.T) {
	budgetQueue(t, 2, func(t *testing.T, q *BudgetQueue, enter func(time.Duration) *retryWaiter) {
		enter(time.Minute)
		enter(time.Minute)
		var w Waiter
		if d, _ := q.Enter(&w, time.Minute); d != Dropped {
			t.Errorf("the third of two has the decision %d", d)
		}
	})
}

// A token that is given back, or that comes sooner because of new requests, is passed on soon.
func TestATokenThatComesEarlyIsPassedOn(t *testing.T) {
	budgetQueue(t, 2, func(t *testing.T, q *BudgetQueue, enter func(time.Duration) *retryWaiter) {
		w := enter(time.Minute)
		time.Sleep(150 * time.Millisecond)
		q.budget.GiveBack()
		time.Sleep(maxTokenPoll)
		if w.woke() == 0 {
			t.Error("the token that was given back is not passed on")
		}
	})
}

// If tokens come more slowly than expected, those who cannot get one in time know it at once. The last
// ones give up.
func TestWhoCannotGetATokenInTimeIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New()
		b := budget.New(budget.Config{MinPerSecond: 1, Ratio: 0.2, Burst: 1})
		for range 100 { // they promise two tokens a second, for ten seconds
			b.Request(c.Elapsed())
		}
		for b.TryRetry(c.Elapsed()) {
		}
		q := NewBudgetQueue(b, 100, c)
		var all []*retryWaiter
		for range 60 {
			w := &retryWaiter{now: c.Elapsed}
			w.Owner = w
			_, w.ticket = q.Enter(&w.Waiter, 30*time.Second)
			all = append(all, w)
		}
		time.Sleep(29500 * time.Millisecond)
		admitted := 0
		for i, w := range all {
			switch {
			case w.Decision.Load() == Admit:
				admitted++
			case w.woke() == 0 || w.woke() > 12*time.Second:
				t.Errorf("retry %d knows after %v that there is no token for it, want 10 to 11 s", i, w.woke())
			}
		}
		if admitted != 29 {
			t.Errorf("%d got tokens, want 29, one each second", admitted)
		}
	})
}
