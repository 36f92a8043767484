package ratelimit

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// Pauses remembers which keys an upstream asked to pause, and until when. Requests that
// share a pause have the same key. Here a key is a number, a hash chosen by the caller, so
// nothing of the original key is kept.
//
// It remembers at most MaxPauses keys. A pause beyond that is not recorded, and requests of
// its key are sent. So with too many keys Pauses remembers too little, never too much.
//
// All methods are safe for concurrent use. now is monotonic time of any origin not below 0,
// with the same origin for all calls. The zero value is empty and ready to use.
type Pauses struct {
	latest atomic.Int64 // when the last pause ends

	mu      sync.RWMutex // guards what follows
	ends    map[uint64]time.Duration
	sweepAt time.Duration // when ended pauses may be forgotten again
	state   PauseState
}

// MaxPauses is the maximum number of keys that pause at the same time.
const MaxPauses = 4096

// pauseGrain is the minimum by which a pause grows. A burst of responses that all ask for
// five seconds is one pause, not one per response.
const pauseGrain = 100 * time.Millisecond

// pauseSweep is the minimum time between two searches for pauses that have ended.
const pauseSweep = 100 * time.Millisecond

// AnyActive reports whether any key may be paused. It costs one atomic load.
func (c *Pauses) AnyActive(now time.Duration) bool { return int64(now) < c.latest.Load() }

// Remaining returns how much longer the key has to pause; 0 if it is not paused.
func (c *Pauses) Remaining(key uint64, now time.Duration) time.Duration {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return max(c.ends[key]-now, 0)
}

// Begin records that the key has to pause until the given time. It reports whether that is
// new: a pause that began, or that grew by a tenth of a second or more. A recorded pause
// never gets shorter.
func (c *Pauses) Begin(key uint64, until, now time.Duration) bool {
	if until <= now {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.ends[key]
	active := old > now
	if active && until < old+pauseGrain || old == 0 && !c.makeRoom(now) {
		return false
	}
	if !active {
		c.state.Begun++
	}
	if c.ends == nil {
		c.ends = make(map[uint64]time.Duration)
	}
	c.ends[key] = until
	c.latest.Store(max(c.latest.Load(), int64(until)))
	return true
}

// makeRoom reports whether another pause can be recorded. If not, it forgets those that have
// ended, at most once per pauseSweep. It requires mu.
func (c *Pauses) makeRoom(now time.Duration) bool {
	if len(c.ends) >= MaxPauses && now >= c.sweepAt {
		c.sweepAt = now + pauseSweep
		maps.DeleteFunc(c.ends, func(_ uint64, end time.Duration) bool { return end <= now })
	}
	if len(c.ends) < MaxPauses {
		return true
	}
	c.state.Dropped++
	return false
}

// PauseState holds the counters of Pauses.
type PauseState struct {
	Begun   uint64 // pauses begun
	Dropped uint64 // pauses not recorded because MaxPauses others were
}

// State returns the counters.
func (c *Pauses) State() PauseState {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state
}

// pauseSpread is the maximum random addition to a wait for the end of a rate-limit pause.
// Most upstreams send whole seconds, so a second is their resolution. It is also the first
// wait after a 429 without Retry-After.
const pauseSpread = time.Second

// PauseWait returns how long a request waits for a rate-limit pause with left remaining, if
// it can wait for less than room: left plus a random part of a second, so that waiting
// requests do not return at the same instant. It returns false if left does not fit. The
// random part takes at most half of room-left, so chance alone never decides whether a wait
// fits.
func PauseWait(left, room time.Duration, r backoff.Rand) (time.Duration, bool) {
	if left >= room {
		return 0, false
	}
	return left + backoff.UpTo(r, min(pauseSpread, (room-left)/2)), true
}
