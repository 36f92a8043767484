package metrics

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/tokens"
)

// A counter that all cores increment costs each of them the cache line: some 100 ns if it
// has to come from another core. So a route has several copies of its counts, called
// stripes, and a core keeps to one of them.
//
// Go does not expose on which core a goroutine runs, but sync.Pool keeps its items per
// core: a stripe that was put back is what the same core gets next. If two cores get the
// same stripe, the counts are still right, since they are atomic, but slower. The garbage
// collector empties pools, but a stripe belongs to its route, and is used again.
//
// Asking the pool takes longer than counting, so a request asks once and keeps the stripe
// to its end, on whatever core it runs.

// maxStripes limits the memory of a route: a stripe takes about 2 KiB, and about 1 KiB more
// per method and hundred of codes, and 400 B per hundred for its durations.
const maxStripes = 16

// stripesFor returns the number of stripes of a route for a number of cores (>= 1): a power
// of two, at least one per core, at most maxStripes.
func stripesFor(cores int) int {
	return min(1<<bits.Len(uint(cores-1)), maxStripes)
}

// Stripe counts the requests of one route that began on one core. It implements the
// observer interface of package proxy. All methods are safe for concurrent use. They
// neither block nor allocate, except at the first use of a hundred of codes. A method
// ignores a value outside its closed set (which our code never passes).
type Stripe struct {
	began atomic.Uint64 // requests
	waits atomic.Uint64 // waits begun

	fallbackFailures atomic.Uint64
	hedges           atomic.Uint64
	hedgesWon        atomic.Uint64
	tokens           [tokens.NumParts][tokens.NumFates]atomic.Uint64

	outcomes           [policy.NumOutcomes]atomic.Uint64
	retries            [policy.NumReasons]atomic.Uint64
	dryRunRetries      [policy.NumReasons]atomic.Uint64 // retries of a route in dry run
	attemptsPerRequest histogram                        // attemptsLadder
	request            codeHistograms
	attempt            codeHistograms
	added              histogram // durationLadder
	backoff            histogram // backoffLadder
	queue              histogram // backoffLadder
	byMethod           [numMethods]codeTable
	byClass            [policy.NumClasses]codeTable

	exemplars *atomic.Pointer[exemplars] // of the route
	beginning *beginning                 // of requests of all routes
}

// RequestBegan counts a request as in flight until RequestDone.
func (s *Stripe) RequestBegan() {
	s.began.Add(1)
	s.beginning.happened()
}

// AttemptDone counts an attempt that took d. A code outside 100..599, such as 0 for an
// attempt without response headers, is labelled other.
func (s *Stripe) AttemptDone(class policy.Class, code int, d time.Duration) {
	if int(class) >= policy.NumClasses {
		return
	}
	s.byClass[class].inc(code)
	s.attempt.observe(code, d)
}

// Retry counts a retry by its reason.
func (s *Stripe) Retry(reason policy.Reason) {
	if reason.ForRetry() {
		s.retries[reason].Add(1)
	}
}

// WouldRetry counts a retry that would have been made, by its reason.
func (s *Stripe) WouldRetry(reason policy.Reason) {
	if reason.ForRetry() {
		s.dryRunRetries[reason].Add(1)
	}
}

// WaitBegan counts a request as waiting until WaitEnded.
func (s *Stripe) WaitBegan() { s.waits.Add(1) }

// WaitEnded ends a wait; waited is its actual duration.
func (s *Stripe) WaitEnded(waited time.Duration) {
	s.backoff.observe(&backoffLadder, int64(waited))
}

// Queued counts a wait for the circuit breaker, a permit or a rate-limit pause.
func (s *Stripe) Queued(waited time.Duration) {
	s.queue.observe(&backoffLadder, int64(waited))
}

// FallbackFailed counts a fallback that had no better response.
func (s *Stripe) FallbackFailed() { s.fallbackFailures.Add(1) }

// Hedged counts a hedge that was sent.
func (s *Stripe) Hedged() { s.hedges.Add(1) }

// HedgeWon counts a hedge whose response was relayed. It is called after Hedged.
func (s *Stripe) HedgeWon() { s.hedgesWon.Add(1) }

// TokensUsed counts what a response used.
func (s *Stripe) TokensUsed(c tokens.Count, f tokens.Fate) {
	if f >= tokens.NumFates {
		return
	}
	for p := range s.tokens {
		s.tokens[p][f].Add(uint64(max(c.Of(tokens.Part(p)), 0)))
	}
}

// RequestDone counts a completed request. Call it once per RequestBegan. method is not
// kept. code is the status that the client got, 0 if none. d is the total duration. added
// is the time from the end of the first attempt to the end of the last; it is 0 unless
// there was more than one attempt and one failed.
func (s *Stripe) RequestDone(method []byte, code int, o policy.Outcome, d, added time.Duration, attempts int) {
	if int(o) >= policy.NumOutcomes {
		return
	}
	s.byMethod[methodIndex(method)].inc(code)
	s.request.observe(code, d)
	s.attemptsPerRequest.observe(&attemptsLadder, int64(attempts))
	if attempts > 1 && added > 0 {
		s.added.observe(&durationLadder, int64(added))
	}
	s.outcomes[o].Add(1)
}

// done returns the number of completed requests.
func (s *Stripe) done() (n uint64) {
	for i := range s.outcomes {
		n += s.outcomes[i].Load()
	}
	return n
}
