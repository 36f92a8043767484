package ratelimit

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// Pauses remembers which keys an upstream asked to pause, and until when. Requests that
// share a pause have the same key. Here a key is a number, a hash chosen by the caller, so
// nothing of the original key is kept.
//
// There is room for MaxPauses keys, in sets of eight. If a ninth key of a set must pause,
// the pause that ends first is dropped, and requests of its key are sent again. So with too
// many keys Pauses remembers too little, never too much.
//
// All methods are safe for concurrent use. They do not allocate, except the first Begin,
// which allocates the table (64 KiB). Only Begin takes a lock. now is monotonic time of any
// origin not below 0, with the same origin for all calls. The zero value is empty and ready
// to use.
type Pauses struct {
	latest    atomic.Int64 // when the last pause ends
	sets      atomic.Pointer[[pauseSets]pauseSet]
	begun     atomic.Uint64
	displaced atomic.Uint64

	mu sync.Mutex // held while a pause is recorded
}

// MaxPauses is the maximum number of keys that pause at the same time.
const MaxPauses = pauseSets * pauseWays

// Eight keys of two words fill two cache lines. If half of the table is in use, one set in
// fifty is full (Poisson, mean 4).
const (
	pauseSets = 512
	pauseWays = 8
)

type pauseSet [pauseWays]pauseSlot

// pauseSlot is read without a lock. If it changes between the two loads, they yield a
// different key (the lock-free hash table of chess programs, by Hyatt and Mann). A read
// during a change may miss the pause.
type pauseSlot struct {
	mixed atomic.Uint64 // key xor until
	until atomic.Int64
}

func (s *pauseSlot) get() (key uint64, until time.Duration) {
	u := s.until.Load()
	return s.mixed.Load() ^ uint64(u), time.Duration(u)
}

// set requires Pauses.mu.
func (s *pauseSlot) set(key uint64, until time.Duration) {
	s.until.Store(int64(until))
	s.mixed.Store(key ^ uint64(until))
}

// pauseGrain is the minimum by which a pause grows. A burst of responses that all ask for
// five seconds is one pause, not one per response.
const pauseGrain = 100 * time.Millisecond

// AnyActive reports whether any key may be paused. It costs one atomic load.
func (c *Pauses) AnyActive(now time.Duration) bool { return int64(now) < c.latest.Load() }

// Remaining returns how much longer the key has to pause; 0 if it is not paused.
func (c *Pauses) Remaining(key uint64, now time.Duration) time.Duration {
	sets := c.sets.Load()
	if sets == nil {
		return 0
	}
	key = max(key, 1)
	set := &sets[key%pauseSets]
	for i := range set {
		if k, until := set[i].get(); k == key {
			return max(until-now, 0)
		}
	}
	return 0
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
	if c.sets.Load() == nil {
		c.sets.Store(new([pauseSets]pauseSet))
	}
	key = max(key, 1)
	set := &c.sets.Load()[key%pauseSets]
	if !c.put(set.slotFor(key), key, until, now) {
		return false
	}
	c.latest.Store(max(c.latest.Load(), int64(until)))
	return true
}

// slotFor returns the key's own slot, or else the one whose pause ends first.
func (s *pauseSet) slotFor(key uint64) *pauseSlot {
	first := &s[0]
	for i := range s {
		k, until := s[i].get()
		if k == key {
			return &s[i]
		}
		if _, earliest := first.get(); until < earliest {
			first = &s[i]
		}
	}
	return first
}

// put records the pause in its slot and reports whether it did. It requires mu.
func (c *Pauses) put(slot *pauseSlot, key uint64, until, now time.Duration) bool {
	k, old := slot.get()
	switch {
	case old <= now: // free, or ended
		c.begun.Add(1)
	case k == key:
		if until < old+pauseGrain {
			return false
		}
	case until <= old:
		c.displaced.Add(1) // the new pause itself: it ends first
		return false
	default:
		c.displaced.Add(1)
		c.begun.Add(1)
	}
	slot.set(key, until)
	return true
}

// PauseState holds the counters of Pauses.
type PauseState struct {
	Begun     uint64 // pauses begun
	Displaced uint64 // pauses dropped or not recorded because a set was full
}

// State returns the counters.
func (c *Pauses) State() PauseState {
	return PauseState{Begun: c.begun.Load(), Displaced: c.displaced.Load()}
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
