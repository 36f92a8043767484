// Package budget limits how many retries all requests to an upstream may cost together, in
// one process (Budget) and in a fleet (Ledger).
package budget

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy/internal/ranges"
)

// Config configures a Budget. The zero value allows no retries; see Default.
type Config struct {
	Ratio        float64 // retries earned per request; 0 to 10, in steps of 0.0001
	MinPerSecond float64 // retries earned per second; 0 to 10 000, in steps of 0.0001
	Burst        int     // retries that can accumulate without requests; 0 to 1 000 000
}

// Default returns 20 % of the requests, at least one retry per second, ten at once.
func Default() Config {
	return Config{Ratio: defaultRatio, MinPerSecond: defaultMinPerSecond, Burst: defaultBurst}
}

// With a ratio of 0.2 a failing upstream gets at most 1.2 times its usual load. Source: the
// retry budgets of Finagle and linkerd, which have the same form. The minimum per second
// allows a quiet route to retry at all.
const (
	defaultRatio        = 0.2
	defaultMinPerSecond = 1
	defaultBurst        = 10

	maxRatio        = 10
	maxMinPerSecond = 10_000
	maxBurst        = 1_000_000
)

// Validate returns an error that names every field out of range.
func (c Config) Validate() error {
	return errors.Join(
		ranges.Check("budget ratio", c.Ratio, unit, maxRatio),
		ranges.Check("budget minimum per second", c.MinPerSecond, unit, maxMinPerSecond),
		ranges.Check("budget burst", c.Burst, 1, maxBurst),
	)
}

// Tokens are counted in units of 1/10 000, so that all arithmetic uses integers. The
// largest sum, from ten years of 100 000 requests per second at the largest ratio, is 3e18
// and fits an int64.
const (
	perToken = 10_000
	unit     = 1.0 / perToken
)

// The window is the current second and the nine before it. The ring is a larger power of
// two, so that a slot is reused 16 s after its second.
const (
	windowSeconds = 10
	ringSeconds   = 16
)

// Budget limits how many retries all requests to one upstream may cost together. It is a token bucket:
//
//   - each request adds Ratio tokens and each second MinPerSecond;
//   - it holds at most Burst + Ratio x (requests of the last 10 s). Tokens above that are lost, so
//     unused tokens of a request are lost after 9 to 10 s;
//   - each retry takes one token. Without a whole token there is no retry, unless it can wait for the
//     next one; see Join. A retry that is not sent returns its token;
//   - it starts full, with Burst tokens.
//
// So in any t seconds with n requests there are at most
// Burst + Ratio x (n + requests of the 10 s before) + MinPerSecond x t retries,
// and an idle bucket is back at Burst after Burst/MinPerSecond seconds.
//
// Request is called for every request and costs one atomic addition. All methods are safe for
// concurrent use and do not allocate. Only MakeReport takes a lock. now is monotonic time of any
// origin not below 0, with the same origin for all calls. Calls may come slightly out of order.
type Budget struct {
	ratio, perSecond, burst int64 // in units

	// A slot holds its second (high 32 bits) and the requests of that second (low 32).
	// older holds the requests of seconds whose slot was reused. The sum of both only
	// grows.
	slots [ringSeconds]atomic.Uint64
	older atomic.Int64

	// used is the number of units taken or lost so far. The units added so far follow from
	// the requests and the clock (see deposited), so a retry changes only this word.
	used atomic.Int64

	queued atomic.Int64 // retries that wait for a token; see Join

	// Fields of a budget shared by a fleet; see Share.
	requestReport     func()       // nil: not shared
	allowed           atomic.Int64 // retries until the next response
	unreportedRetries atomic.Int64 // retries not reported yet
	freshTo           atomic.Int64 // until when the last response is valid; 0: there is none
	waitingSince      atomic.Int64 // since when a response is awaited; 0: none is

	reportMu     sync.Mutex    // guards the fields below
	lastReportAt time.Duration // when the last report was made
	reported     int64         // requests reported in total
}

// New returns a full Budget. Values out of range are moved to the nearest end of their
// range; see Config.Validate.
func New(c Config) *Budget {
	b := &Budget{
		ratio:     toUnits(c.Ratio, maxRatio),
		perSecond: toUnits(c.MinPerSecond, maxMinPerSecond),
		burst:     toUnits(float64(c.Burst), maxBurst),
	}
	b.used.Store(math.MinInt64 / 2) // far more than full was added, so it is full
	return b
}

// toUnits returns v in units, limited to [0, limit]; NaN counts as 0.
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
	b.reuseSlot(slot, second)
}

// secondOf returns the whole seconds of now. It fits 32 bits for 136 years.
func secondOf(now time.Duration) uint64 { return uint64(uint32(max(now, 0) / time.Second)) }

// reuseSlot reuses a slot for a new second, with one request in it.
func (b *Budget) reuseSlot(slot *atomic.Uint64, second uint64) {
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

// requests returns the number of requests in total and within the window. It reads older
// first: a slot that is reused in between is then missed, never counted twice.
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

// deposited returns the units added so far, and the most that the bucket holds now.
func (b *Budget) deposited(now time.Duration) (sum, full int64) {
	all, recent := b.requests(now)
	now = max(now, 0)
	seconds, rest := int64(now/time.Second), int64(now%time.Second)
	earned := seconds*b.perSecond + rest*b.perSecond/int64(time.Second)
	return all*b.ratio + earned, b.burst + recent*b.ratio
}

// TryRetry takes a token for one retry, or reports that there is none, or that other retries wait for
// it.
func (b *Budget) TryRetry(now time.Duration) bool { return b.queued.Load() <= 0 && b.take(now) }

// take takes a token.
func (b *Budget) take(now time.Duration) bool {
	if b.requestReport != nil {
		return b.tryShared(now)
	}
	return b.tryOwn(now)
}

// tryOwn is take for this process alone.
func (b *Budget) tryOwn(now time.Duration) bool {
	sum, full := b.deposited(now)
	for {
		old := b.used.Load()
		used := max(old, sum-full) // tokens above full are lost
		if sum-used < perToken {
			return false
		}
		if b.used.CompareAndSwap(old, used+perToken) {
			return true
		}
	}
}

// GiveBack returns the token of a retry that was not sent: its client left while it waited,
// or the circuit breaker was open. Call it at most once per TryRetry that returned true.
func (b *Budget) GiveBack() {
	b.used.Add(-perToken)
	if b.requestReport != nil {
		b.unreportedRetries.Add(-1)
	}
}

// Tokens returns how many retries the bucket holds now, fractions included; never negative.
// In a fleet it returns those that this process may make until the next response.
func (b *Budget) Tokens(now time.Duration) float64 {
	if b.requestReport != nil && !b.alone(now) {
		return float64(b.allowed.Load())
	}
	sum, full := b.deposited(now)
	return float64(max(sum-max(b.used.Load(), sum-full), 0)) / perToken
}

// Amplification returns how many times its own load an upstream gets in the long run if
// every request fails: attempts per request, as policy.Worst.Attempts, limited by the
// budget. perSecond is the rate of original requests, for MinPerSecond; 0 or less ignores
// MinPerSecond. The burst comes on top once.
func (c Config) Amplification(attempts int, perSecond float64) float64 {
	retries := min(max(c.Ratio, 0), maxRatio)
	if perSecond > 0 {
		retries += min(max(c.MinPerSecond, 0), maxMinPerSecond) / perSecond
	}
	return 1 + min(retries, float64(max(attempts, 1)-1))
}
