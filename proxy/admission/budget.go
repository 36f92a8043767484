package admission

import (
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/queue"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
)

// BudgetQueue is the queue of retries that wait for a token of a retry budget. Tokens go to them in
// order of arrival, and a retry that does not wait gets none before them. It is safe for concurrent
// use.
type BudgetQueue struct {
	budget  *budget.Budget
	elapsed func() time.Duration

	mu      sync.Mutex // guards all below
	waiters *queue.Queue[*Waiter]
	timer   *time.Timer
}

// The first waiter asks for its token when that is likely to be there. It asks at least every
// maxTokenPoll, because requests that come meanwhile add tokens and an engine may grant some.
const (
	minTokenPoll = time.Millisecond
	maxTokenPoll = 100 * time.Millisecond
)

// NewBudgetQueue returns an empty queue for at most n retries.
func NewBudgetQueue(b *budget.Budget, n int, c *clock.Clock) *BudgetQueue {
	q := &BudgetQueue{budget: b, elapsed: c.Elapsed, waiters: queue.New[*Waiter](n)}
	q.timer = time.AfterFunc(time.Hour, q.tick)
	q.timer.Stop()
	return q
}

// Enter takes a token and returns Admit, or queues w and returns Wait. If the queue is full, it returns
// Dropped. A queued w gets Admit with its token, or Dropped as soon as none is likely to come before
// until, a time since the server's start.
func (q *BudgetQueue) Enter(w *Waiter, until time.Duration) (decision int32, t queue.Ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.elapsed()
	switch {
	case q.waiters.Len() == 0 && q.budget.TryQueued(now):
		return Admit, t
	case q.waiters.Full():
		return Dropped, t
	}
	w.Decision.Store(Wait)
	w.until = until
	t, _, _ = q.waiters.Push(w)
	q.budget.Join()
	if q.waiters.Len() == 1 { // otherwise the timer runs, and is not put off
		q.setTimer(now)
	}
	return Wait, t
}

// Quit ends the wait of w and returns its decision, which is Dropped if it had none.
func (q *BudgetQueue) Quit(w *Waiter, t queue.Ticket) (decision int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.waiters.Remove(t) {
		return w.Decision.Load()
	}
	q.budget.Leave()
	if q.waiters.Len() == 0 {
		q.timer.Stop()
	}
	return Dropped
}

// tick is called by the timer. It passes on the tokens that are there, and drops the last waiters while
// their tokens would come too late.
func (q *BudgetQueue) tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.elapsed()
	for q.waiters.Len() > 0 && q.budget.TryQueued(now) {
		w, _ := q.waiters.Oldest()
		q.notify(w, Admit)
	}
	for {
		w, ok := q.waiters.Last()
		if !ok || q.budget.LastDelay(now) < w.until-now {
			break
		}
		q.waiters.Newest()
		q.notify(w, Dropped)
	}
	if q.waiters.Len() > 0 {
		q.setTimer(now)
	}
}

// notify ends the wait of w, which was removed from the queue. It is called with mu held.
func (q *BudgetQueue) notify(w *Waiter, decision int32) {
	q.budget.Leave()
	w.Notify(decision)
}

// setTimer sets the timer to the next token. It is called with mu held.
func (q *BudgetQueue) setTimer(now time.Duration) {
	q.timer.Reset(min(max(q.budget.FirstDelay(now), minTokenPoll), maxTokenPoll))
}
