package policy

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// BudgetConfig sets up a Budget. The zero value allows no retry at all; see
// DefaultBudget.
type BudgetConfig struct {
	Ratio        float64 // retries earned by one request; 0 to 10, in steps of 0.0001
	MinPerSecond float64 // retries earned by one second; 0 to 10 000, in steps of 0.0001
	Burst        int     // retries that may be saved up without requests; 0 to 1 000 000
}

// DefaultBudget is 20 % of the requests, at least one a second, ten at once.
func DefaultBudget() BudgetConfig {
	return BudgetConfig{Ratio: defaultRatio, MinPerSecond: defaultMinPerSecond, Burst: defaultBurst}
}

// With a ratio of 0.2 a dead upstream gets at most 1.2 times its usual load.
// Source of the numbers: Finagle's and linkerd's retry budgets, which have the
// same shape; the floor lets a quiet route repeat at all.
const (
	defaultRatio        = 0.2
	defaultMinPerSecond = 1
	defaultBurst        = 10

	maxRatio        = 10
	maxMinPerSecond = 10_000
	maxBurst        = 1_000_000
)

// Validate names every field that is out of range.
func (c BudgetConfig) Validate() error {
	return errors.Join(
		inRange("budget ratio", c.Ratio, unit, maxRatio),
		inRange("budget minimum per second", c.MinPerSecond, unit, maxMinPerSecond),
		inRange("budget burst", c.Burst, 1, maxBurst),
	)
}

// Tokens are counted in whole steps of 1/10 000 (unit), so that all arithmetic
// is on integers. The largest sum, from ten years of 100 000 requests a second
// at the largest ratio, is 3e18 and fits an int64.
const (
	perToken = 10_000
	unit     = 1.0 / perToken
)

// The window is the current second and the nine before it. The ring is a power
// of two with room to spare, so that a slot is reused 16 s after its second.
const (
	windowSeconds = 10
	ringSeconds   = 16
)

// Budget is how many retries all requests to one upstream may cost together.
// It is a token bucket:
//
//   - each request puts in Ratio tokens and each second MinPerSecond;
//   - it holds at most Burst + Ratio x (requests of the last 10 s): what is
//     above that is lost, so what a request put in and nobody used is lost
//     after 9 to 10 s;
//   - each retry takes one token, and where there is not a whole one there is
//     no retry; one that is not sent after all gives it back;
//   - it begins full, so with Burst tokens.
//
// So over any time of t seconds with n requests there are at most
// Burst + Ratio x (n + requests of the 10 s before) + MinPerSecond x t retries,
// and an idle bucket is back at Burst after Burst/MinPerSecond seconds.
//
// Request is on the path of every request: one atomic addition. All methods are
// safe for concurrent use, take no lock and do not allocate. now is monotonic
// time of any origin not below 0, the same origin for all calls; calls may
// come slightly out of order.
type Budget struct {
	ratio, perSecond, burst int64 // in units

	// A slot is the second it counts for (high 32 bits) and the requests of
	// that second (low 32). Requests of seconds whose slot was reused are in
	// older; the sum of both only ever grows.
	slots [ringSeconds]atomic.Uint64
	older atomic.Int64

	// used is what was taken or lost so far, in units. What was put in so far
	// follows from the requests and the clock (see deposited), so this one
	// word is all that a retry has to change.
	used atomic.Int64

	// Of a budget that a fleet shares; see Share.
	requestReport     func()       // nil: nobody shares it
	allowed           atomic.Int64 // retries until the next answer
	unreportedRetries atomic.Int64 // retries not told yet
	freshTo           atomic.Int64 // until when the last response is believed; 0: there is none
	waitingSince      atomic.Int64 // since when a response has been waited for; 0: none is

	reportMu     sync.Mutex    // guards what follows
	lastReportAt time.Duration // the last question
	reported     int64         // requests told in all
}

// NewBudget makes a full bucket. Values out of range are moved to the nearest
// end of their range; see BudgetConfig.Validate.
func NewBudget(c BudgetConfig) *Budget {
	b := &Budget{
		ratio:     toUnits(c.Ratio, maxRatio),
		perSecond: toUnits(c.MinPerSecond, maxMinPerSecond),
		burst:     toUnits(float64(c.Burst), maxBurst),
	}
	b.used.Store(math.MinInt64 / 2) // far more was put in than fits, so it is full
	return b
}

// toUnits is v held within [0, limit], in units; NaN counts as 0.
func toUnits(v, limit float64) int64 {
	if !(v > 0) {
		return 0
	}
	return int64(math.Round(min(v, limit) * perToken))
}

// Request counts an original request (not a retry).
func (b *Budget) Request(now time.Duration) {
	second := secondOf(now)
	slot := &b.slots[second%ringSeconds]
	if slot.Load()>>32 >= second {
		slot.Add(1)
		return
	}
	b.turn(slot, second)
}

// secondOf is the whole seconds of now. It fits 32 bits for 136 years.
func secondOf(now time.Duration) uint64 { return uint64(uint32(max(now, 0) / time.Second)) }

// turn takes a slot over for a new second, with one request in it.
func (b *Budget) turn(slot *atomic.Uint64, second uint64) {
	for {
		old := slot.Load()
		if old>>32 >= second { // another goroutine was first
			slot.Add(1)
			return
		}
		if slot.CompareAndSwap(old, second<<32|1) {
			b.older.Add(int64(uint32(old)))
			return
		}
	}
}

// requests is how many there were, in all and within the window. Older is read
// first: a slot that is taken over in between is then missed, never counted
// twice.
func (b *Budget) requests(now time.Duration) (all, recent int64) {
	all = b.older.Load()
	second := secondOf(now)
	for i := range b.slots {
		v := b.slots[i].Load()
		n := int64(uint32(v))
		all += n
		if v>>32+windowSeconds > second {
			recent += n
		}
	}
	return all, recent
}

// deposited is what was put in so far, in units, and full how much the bucket
// holds at most now.
func (b *Budget) deposited(now time.Duration) (sum, full int64) {
	all, recent := b.requests(now)
	now = max(now, 0)
	seconds, rest := int64(now/time.Second), int64(now%time.Second)
	earned := seconds*b.perSecond + rest*b.perSecond/int64(time.Second)
	return all*b.ratio + earned, b.burst + recent*b.ratio
}

// TryRetry takes a token for one retry, or reports that there is none.
func (b *Budget) TryRetry(now time.Duration) bool {
	if b.requestReport != nil {
		return b.tryShared(now)
	}
	return b.tryOwn(now)
}

// tryOwn is TryRetry of this process alone.
func (b *Budget) tryOwn(now time.Duration) bool {
	sum, full := b.deposited(now)
	for {
		old := b.used.Load()
		used := max(old, sum-full) // what did not fit is lost
		if sum-used < perToken {
			return false
		}
		if b.used.CompareAndSwap(old, used+perToken) {
			return true
		}
	}
}

// GiveBack returns the token of a retry that was not sent after all: its client
// left while it waited, or it found the upstream's door closed. Once per
// TryRetry that said yes.
func (b *Budget) GiveBack() {
	b.used.Add(-perToken)
	if b.requestReport != nil {
		b.unreportedRetries.Add(-1)
	}
}

// Tokens is how many retries the bucket holds now, fractions included; never
// negative. In a fleet it is those that this process may make until the next answer.
func (b *Budget) Tokens(now time.Duration) float64 {
	if b.requestReport != nil && !b.alone(now) {
		return float64(b.allowed.Load())
	}
	sum, full := b.deposited(now)
	return float64(max(sum-max(b.used.Load(), sum-full), 0)) / perToken
}
