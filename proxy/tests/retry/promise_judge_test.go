package retry

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/downstream"
)

// judge names every promise that the world saw broken.
func (w *promiseWorld) judge(t *testing.T) {
	t.Helper()
	for _, q := range w.requests {
		w.judgeRequest(q)
	}
	if w.route.Guard.NoBreaker && !w.route.NoBudget {
		w.judgeBudget()
	}
	w.judgeBooks()
	for i, b := range w.broken {
		if i == 5 {
			break
		}
		t.Errorf("world %d: %s", w.seed, b)
	}
	if len(w.broken) > 0 {
		t.Logf("its policy: %+v; budget %+v, none: %v; timeouts %v and %v; replay %d of %d; hold %d; breaker %v",
			w.route.Policy, w.route.Budget, w.route.NoBudget, w.route.RequestTimeout, w.route.AttemptTimeout, w.route.RetryBufferBytes, w.config.RetryBufferTotalBytes, w.route.ResponseBufferBytes, !w.route.Guard.NoBreaker)
	}
}

func (w *promiseWorld) breaks(q *promiseRequest, format string, a ...any) {
	w.broken = append(w.broken, fmt.Sprintf("request %d %s of %d bytes: ", q.id, q.method, q.body)+fmt.Sprintf(format, a...)+fmt.Sprintf("; it ended as %+v, arrived as %v", q.ended, q.arrivals))
}

// freeRepeats is how many of a request's retries were free: those after an idle close, and
// those after failures that were seen while the upstream was known to be down.
func freeRepeats(e *proxy.Ended) int { return max(e.Attempts-1, 0) - e.Retries }

// idleCloses is how many of them may have been after an idle close.
func idleCloses(e *proxy.Ended) (n int) {
	for _, s := range e.Steps[:max(len(e.Steps)-1, 0)] {
		if s.Cause == policy.CauseIdleClose {
			n++
		}
	}
	return min(n, 10)
}

func (w *promiseWorld) judgeRequest(q *promiseRequest) {
	e := q.ended
	if e == nil {
		if len(q.arrivals) > 0 || q.status != 0 && w.drained.IsZero() {
			w.breaks(q, "was sent or answered and never ended")
		}
		return
	}
	if retries := max(e.Attempts-1, 0) - freeRepeats(e); retries > w.route.Policy.MaxRetries {
		w.breaks(q, "%d retries, allowed are %d", retries, w.route.Policy.MaxRetries)
	}
	if free := freeRepeats(e); free > idleCloses(e) && w.route.FailFast {
		w.breaks(q, "%d free retries without a breaker", free)
	}
	if len(q.arrivals) > e.Attempts {
		w.breaks(q, "reached the upstream %d times with %d attempts", len(q.arrivals), e.Attempts)
	}
	if w.unsafe(q) && w.repeatedAfterWork(q, e) {
		w.breaks(q, "must not be retried once it was sent")
	}
	if q.left.IsZero() && q.status != 0 && q.status != e.Code {
		w.breaks(q, "the client got %d", q.status)
	}
	w.judgeTimes(q, e)
	w.judgeOutcome(q, e)
}

// repeatedAfterWork reports whether an attempt followed one of which the upstream
// did not say that it did no work.
func (w *promiseWorld) repeatedAfterWork(q *promiseRequest, e *proxy.Ended) bool {
	for _, a := range q.arrivals[:max(len(q.arrivals)-1, 0)] {
		if a.number > len(e.Steps) || !w.route.Policy.Rejected.Has(e.Steps[a.number-1].Status) {
			return true
		}
	}
	return false
}

// judgeTimes: nothing is begun too late, nor too early. That a client left may
// be known watchAfter later, where the attempt before ended sooner: a connection in
// memory cannot be looked at as a socket can.
func (w *promiseWorld) judgeTimes(q *promiseRequest, e *proxy.Ended) {
	deadline := w.deadline(q, e)
	for i, s := range e.Steps {
		began := e.Began.Add(s.Began)
		retry := i > 0 && e.Steps[i-1].Cause != policy.CauseIdleClose
		switch {
		case !q.left.IsZero() && began.After(q.left.Add(downstream.PollEvery)):
			w.breaks(q, "attempt %d began %v after the client had left", i+1, began.Sub(q.left))
		case !deadline.IsZero() && i > 0 && (began.After(deadline) || began.Equal(deadline) && w.route.Guard.NoBreaker): // the breaker may let in at the very instant
			w.breaks(q, "attempt %d began %v after the deadline", i+1, began.Sub(deadline))
		case retry && w.route.Guard.NoBreaker && !w.drained.IsZero() && began.After(w.drained):
			w.breaks(q, "retry %d began %v after the drain", i, began.Sub(w.drained))
		}
	}
	if ended := e.Began.Add(e.Took); !deadline.IsZero() && q.pause == 0 && ended.After(deadline) {
		w.breaks(q, "it ended %v after its deadline", ended.Sub(deadline))
	}
	for i, a := range q.arrivals {
		if !q.left.IsZero() && a.at.After(q.left.Add(downstream.PollEvery)) {
			w.breaks(q, "it arrived %v after the client had left", a.at.Sub(q.left))
		}
		if i > 0 && a.at.Before(q.arrivals[i-1].until) && !w.gaveUpOn(e, q.arrivals[i-1]) {
			w.breaks(q, "arrival %d came %v before the Retry-After was over", i+1, q.arrivals[i-1].until.Sub(a.at))
		}
		if i > 0 && a.number <= q.arrivals[i-1].number {
			w.breaks(q, "arrival %d bears number %d", i+1, a.number)
		}
	}
}

// gaveUpOn: the attempt's answer was not waited for any more, or never read.
func (w *promiseWorld) gaveUpOn(e *proxy.Ended, a promiseArrival) bool {
	return a.number > len(e.Steps) || e.Steps[a.number-1].Status == 0 || !w.route.Policy.RetryOn.Code(e.Steps[a.number-1].Status)
}

// deadline is the latest that the request's may be: counted from its begin, or, as
// it has a body, from the end of its first attempt, before which it was sent whole
// or had failed. Zero: it has none.
func (w *promiseWorld) deadline(q *promiseRequest, e *proxy.Ended) time.Time {
	switch {
	case w.route.RequestTimeout == 0:
		return time.Time{}
	case q.body == 0:
		return e.Began.Add(w.route.RequestTimeout)
	case len(e.Steps) == 0:
		return time.Time{}
	}
	const cut = 2 * time.Microsecond // a step's begin and length are whole microseconds, rounded down
	return e.Began.Add(e.Steps[0].Began + e.Steps[0].Took + cut + w.route.RequestTimeout)
}

func (w *promiseWorld) judgeOutcome(q *promiseRequest, e *proxy.Ended) {
	failed := e.Attempts > 1
	switch {
	case e.Outcome == policy.OutcomeSuccess && failed, e.Outcome == policy.OutcomeRecovered && !failed:
		w.breaks(q, "an outcome that cannot be with %d attempts", e.Attempts)
	case e.Outcome == policy.OutcomeClientGone && q.left.IsZero():
		w.breaks(q, "the client did not leave")
	case q.left.IsZero() && q.status == 0 && e.Outcome != policy.OutcomeResponseBroken && e.Outcome != policy.OutcomeStreamCut && e.Outcome != policy.OutcomeRequestTimeout && e.Code != 0:
		w.breaks(q, "the client stayed and got nothing")
	}
}

// judgeBudget: over any stretch no more retries than the burst, what its
// requests and those of the ten seconds before earned, and the floor.
func (w *promiseWorld) judgeBudget() {
	var requests, retries []time.Time
	for _, e := range w.ended {
		requests = append(requests, e.Began)
		free := freeRepeats(&e)
		for i, s := range e.Steps[:max(min(len(e.Steps), e.Attempts)-1, 0)] {
			if s.Cause == policy.CauseIdleClose && free > 0 {
				free--
				continue
			}
			if i+1 < e.Attempts {
				retries = append(retries, e.Began.Add(s.Began+s.Took)) // when it was decided
			}
		}
	}
	slices.SortFunc(retries, time.Time.Compare)
	c := w.route.Budget
	for i, from := range retries {
		for j := i; j < len(retries); j++ {
			earned := 0
			for _, at := range requests {
				if !at.Before(from.Add(-10*time.Second)) && !at.After(retries[j]) {
					earned++
				}
			}
			limit := float64(c.Burst) + c.Ratio*float64(earned) + c.MinPerSecond*retries[j].Sub(from).Seconds()
			if spent := float64(j - i + 1); spent > limit+1e-4 { // it counts in steps of a ten-thousandth
				w.broken = append(w.broken, fmt.Sprintf("%v retries from %v on within %v, the budget allows %v", spent, from, retries[j].Sub(from), limit))
				return
			}
		}
	}
}

// judgeBooks: outcomes add up to requests, and what is counted to what was.
func (w *promiseWorld) judgeBooks() {
	defer w.seen.Lock()()
	attempts, retries := 0, 0
	for i := range w.ended {
		attempts += w.ended[i].Attempts
		retries += max(w.ended[i].Attempts-1, 0)
	}
	if n := len(w.ended); w.seen.Began != n || len(w.seen.Outcomes) != n {
		w.broken = append(w.broken, fmt.Sprintf("%d requests began, %d outcomes were counted, %d ended", w.seen.Began, len(w.seen.Outcomes), n))
	}
	if len(w.seen.Classes) != attempts || len(w.seen.Retries) != retries || w.seen.Waiting != 0 {
		w.broken = append(w.broken, fmt.Sprintf("%d attempts and %d retries were counted of %d and %d; %d wait still", len(w.seen.Classes), len(w.seen.Retries), attempts, retries, w.seen.Waiting))
	}
}
