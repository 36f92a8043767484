package retry

import (
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

var (
	promiseRequests = flag.Int("promises", 3000, "requests that TestNeverMoreThanPromised sends")
	promiseSeed     = flag.Uint64("promise-seed", 1, "the first world of TestNeverMoreThanPromised")
)

// Whatever the policy, the clock, the failures and the clients do: no request gets more than its
// policy promises. The test runs worlds of a few clients, in virtual time, over the real loop and
// connections in memory. A world follows from its seed, except for the jitter and for the order
// within one instant.
func TestNeverMoreThanPromised(t *testing.T) {
	var all promiseTally
	seed := *promiseSeed
	for ; all.requests < *promiseRequests && !t.Failed(); seed++ {
		w := newPromiseWorld(seed)
		proxytest.InMemory(t, w.handle, w.configure, w.run)
		w.judge(t)
		all.add(w)
		if seed%1000 == 0 {
			t.Logf("%d requests so far", all.requests)
		}
	}
	t.Logf("%d worlds, %+v", seed-*promiseSeed, all)
	all.wantAll(t)
}

// promiseTally is what happened, so that promises that nothing put to the
// test are noticed.
type promiseTally struct {
	requests, attempts, retries, free int
	unsafe                            int // requests that must not be retried once sent
	left, drained                     int // requests whose client left, worlds that drained
	outcomes                          [policy.NumOutcomes]int
}

func (a *promiseTally) add(w *promiseWorld) {
	for _, e := range w.ended {
		a.requests++
		a.attempts += e.Attempts
		a.outcomes[e.Outcome]++
		free := freeRepeats(&e)
		a.free += free
		a.retries += max(e.Attempts-1, 0) - free
	}
	for _, q := range w.requests {
		if w.unsafe(q) {
			a.unsafe++
		}
		if !q.left.IsZero() {
			a.left++
		}
	}
	if w.drainAfter > 0 {
		a.drained++
	}
}

func (a *promiseTally) wantAll(t *testing.T) {
	t.Helper()
	for _, o := range []policy.Outcome{
		policy.OutcomeSuccess, policy.OutcomeRecovered, policy.OutcomeClientGone, policy.OutcomeGaveUpNotIdempotent, policy.OutcomeGaveUpRetriesExhausted,
		policy.OutcomeGaveUpBudgetExhausted, policy.OutcomeGaveUpDeadline, policy.OutcomeGaveUpRetryAfterTooLong, policy.OutcomeGaveUpBodyTooLarge,
		policy.OutcomeGaveUpResponseTooLarge, policy.OutcomeGaveUpDraining, policy.OutcomeGaveUpNotInRetryOn, policy.OutcomeGaveUpRetriesOff,
	} {
		if a.outcomes[o] == 0 && !t.Failed() {
			t.Errorf("not one request ended with %v", o)
		}
	}
	if a.free == 0 || a.unsafe == 0 || a.left == 0 || a.drained == 0 {
		t.Errorf("something never happened: %+v", *a)
	}
}

// promiseJournal keeps every request of a world.
type promiseJournal struct{ w *promiseWorld }

func (promiseJournal) Wants(int64, time.Duration, policy.Outcome) bool { return true }

func (j promiseJournal) Keep(e *proxy.Ended) {
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	kept := *e
	kept.Steps = append([]proxy.Step(nil), e.Steps...)
	var id int
	if _, err := fmt.Sscanf(string(e.Path), "/p/%d", &id); err != nil || id >= len(j.w.requests) {
		j.w.broken = append(j.w.broken, fmt.Sprintf("a request for %q, which nobody sent, ended", e.Path))
		return
	}
	kept.Path, kept.Method, kept.RequestID = nil, nil, nil
	if q := j.w.requests[id]; q.ended != nil {
		j.w.broken = append(j.w.broken, fmt.Sprintf("request %d ended twice: %+v and %+v", id, *q.ended, kept))
	} else {
		q.ended = &kept
	}
	j.w.ended = append(j.w.ended, kept)
}

// promiseRequest is one request of a world, what is done with it and what
// became of it.
type promiseRequest struct {
	id     int
	method string
	key    bool
	body   int
	pause  time.Duration // in the middle of sending it
	leaves time.Duration // after it began; 0: never

	// Guarded by the world's mu.
	began    time.Time
	left     time.Time // zero: it stayed
	status   int       // that its client got; 0: none
	answered time.Time
	arrivals []promiseArrival
	ended    *proxy.Ended
}

// promiseArrival is an attempt as the upstream saw it.
type promiseArrival struct {
	at     time.Time
	number int       // that it bore
	until  time.Time // when a response asked not to be asked again before; zero: it did not
}

// promiseWorld is a proxy, its upstream and its clients.
type promiseWorld struct {
	seed       uint64
	route      proxy.Route
	config     *proxy.Config
	clients    [][]*promiseRequest
	requests   []*promiseRequest
	drainAfter time.Duration // 0: never
	troubled   int           // of a hundred attempts, how many fail
	refusing   int           // of a hundred dials
	seen       *peers.Recorder

	mu      sync.Mutex // guards all below
	dials   uint64
	drained time.Time
	ended   []proxy.Ended
	broken  []string
}

func (w *promiseWorld) unsafe(q *promiseRequest) bool {
	return !w.route.Policy.Retryable([]byte(q.method), q.key)
}
