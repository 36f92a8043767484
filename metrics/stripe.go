package metrics

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// A counter that all cores add to costs each of them the cache line, some
// 100 ns when it has to come from another core. So a route has several copies
// of its counts, called stripes, and a core keeps to one of them.
//
// Go does not tell which core a goroutine runs on, but sync.Pool keeps its
// items per core: a stripe that was put back is what the same core gets next.
// Two cores that have the same stripe still count right, as all counts are
// atomic; they are just slower. The collector empties pools, but a stripe
// belongs to its route, and is handed out again.
//
// Asking the pool takes longer than to count, so a request asks once and keeps
// the stripe to its end, on whatever cores that is.

// maxStripes bounds the memory of a route: a stripe takes about 2 KiB, and
// about 1 KiB more per method and hundred of codes seen.
const maxStripes = 16

// stripesFor is how many stripes a route gets on so many cores (>= 1): a power
// of two, at least one per core, at most maxStripes.
func stripesFor(cores int) int {
	return min(1<<bits.Len(uint(cores-1)), maxStripes)
}

// Stripe counts what becomes of the requests of one route that began on one
// core. It satisfies the observer interface of package proxy. All methods are
// safe for concurrent use and neither block nor allocate, but for the first use
// of a hundred of codes. A method given a value outside its closed set (none of
// our code does that) counts nothing.
type Stripe struct {
	began atomic.Uint64 // requests
	waits atomic.Uint64 // begun

	fallbackFailures atomic.Uint64
	hedges           atomic.Uint64
	hedgesWon        atomic.Uint64

	faultInjections    [policy.NumFaultKinds]atomic.Uint64
	outcomes           [policy.NumOutcomes]atomic.Uint64
	retries            [policy.NumReasons]atomic.Uint64
	dryRunRetries      [policy.NumReasons]atomic.Uint64 // retries, in a route that observes
	attemptsPerRequest attemptCounts
	request            histogram // durationLadder
	attempt            histogram // durationLadder
	added              histogram // durationLadder
	backoff            histogram // backoffLadder
	queue              histogram // backoffLadder
	byMethod           [numMethods]codeTable
	byClass            [policy.NumClasses]codeTable
}

// RequestBegan counts a request as in flight until RequestDone.
func (s *Stripe) RequestBegan() { s.began.Add(1) }

// AttemptDone counts an attempt that took d. A code outside 100..599, such as 0
// for an attempt that brought no response header section, is labelled other.
func (s *Stripe) AttemptDone(class policy.Class, code int, d time.Duration) {
	if int(class) >= policy.NumClasses {
		return
	}
	s.byClass[class].inc(code)
	s.attempt.observe(durationLadder, d)
}

// Retry counts a retry by what it is for.
func (s *Stripe) Retry(reason policy.Reason) {
	if reason.ForRetry() {
		s.retries[reason].Add(1)
	}
}

// WouldRetry counts a retry that would have been made, by what it would be for.
func (s *Stripe) WouldRetry(reason policy.Reason) {
	if reason.ForRetry() {
		s.dryRunRetries[reason].Add(1)
	}
}

// WaitBegan counts a request as waiting until WaitEnded.
func (s *Stripe) WaitBegan() { s.waits.Add(1) }

// WaitEnded ends the wait begun last; waited is how long it really was.
func (s *Stripe) WaitEnded(waited time.Duration) {
	s.backoff.observe(backoffLadder, waited)
}

// Queued counts a wait at the upstream's door.
func (s *Stripe) Queued(waited time.Duration) {
	s.queue.observe(backoffLadder, waited)
}

// FallbackFailed counts a fallback upstream that had no better response.
func (s *Stripe) FallbackFailed() { s.fallbackFailures.Add(1) }

// FaultInjected counts a fault made up for an attempt.
func (s *Stripe) FaultInjected(kind policy.FaultKind) {
	if int(kind) < policy.NumFaultKinds {
		s.faultInjections[kind].Add(1)
	}
}

// Hedged counts a hedge that was sent, HedgeWon one whose answer was relayed.
func (s *Stripe) Hedged() { s.hedges.Add(1) }

// HedgeWon is told after Hedged.
func (s *Stripe) HedgeWon() { s.hedgesWon.Add(1) }

// RequestDone counts a request with all that became of it. Once per
// RequestBegan. method is read, not kept; code is what the client got, 0 when
// nothing; d is the whole time; added, which counts only when there was more
// than one attempt and one failed (else it is 0), the time from the first attempt's end to the last one's.
func (s *Stripe) RequestDone(method []byte, code int, o policy.Outcome, d, added time.Duration, attempts int) {
	if int(o) >= policy.NumOutcomes {
		return
	}
	s.byMethod[methodIndex(method)].inc(code)
	s.request.observe(durationLadder, d)
	s.attemptsPerRequest.observe(attempts)
	if attempts > 1 && added > 0 {
		s.added.observe(durationLadder, added)
	}
	s.outcomes[o].Add(1)
}

// add adds all of o but what began.
func (s *Stripe) add(o *Stripe) {
	addAll(s.outcomes[:], o.outcomes[:])
	addAll(s.retries[:], o.retries[:])
	addAll(s.dryRunRetries[:], o.dryRunRetries[:])
	addAll(s.faultInjections[:], o.faultInjections[:])
	s.fallbackFailures.Add(o.fallbackFailures.Load())
	s.hedges.Add(o.hedges.Load())
	s.hedgesWon.Add(o.hedgesWon.Load())
	s.attemptsPerRequest.add(&o.attemptsPerRequest)
	s.request.add(&o.request)
	s.attempt.add(&o.attempt)
	s.added.add(&o.added)
	s.backoff.add(&o.backoff)
	s.queue.add(&o.queue)
	for i := range s.byMethod {
		s.byMethod[i].add(&o.byMethod[i])
	}
	for i := range s.byClass {
		s.byClass[i].add(&o.byClass[i])
	}
}

func addAll(to, from []atomic.Uint64) {
	for i := range to {
		to[i].Add(from[i].Load())
	}
}

// done is how many requests are done.
func (s *Stripe) done() (n uint64) {
	for i := range s.outcomes {
		n += s.outcomes[i].Load()
	}
	return n
}
