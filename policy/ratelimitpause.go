package policy

import (
	"sync"
	"sync/atomic"
	"time"
)

// RateLimitPauses remembers which keys an upstream asked to pause, and until when. A
// key is what those have in common who share a pause; here it is a number, a
// hash of what the user takes for it, so that nothing of the key itself is
// kept.
//
// There is room for MaxRateLimitPauses keys, in sets of eight. Where a ninth key of
// one set is told to pause, the pause that ends first is forgotten, and the
// requests of its key are sent again: with too many keys a RateLimitPauses remembers
// too little and never too much.
//
// All methods are safe for concurrent use and do not allocate, except for the
// first Begin, which makes the room (64 KiB). Only Begin takes a lock. now is
// monotonic time of any origin not below 0, the same origin for all calls. The
// zero value is ready and empty.
type RateLimitPauses struct {
	latest    atomic.Int64 // when the last pause ends
	sets      atomic.Pointer[[pauseSets]pauseSet]
	begun     atomic.Uint64
	displaced atomic.Uint64

	mu sync.Mutex // held while a pause is noted
}

// MaxRateLimitPauses is how many keys can be pausing at once.
const MaxRateLimitPauses = pauseSets * pauseWays

// Eight keys of two words fill two cache lines. With half of the room in use,
// one set in fifty is full (Poisson, mean 4).
const (
	pauseSets = 512
	pauseWays = 8
)

type pauseSet [pauseWays]pauseSlot

// pauseSlot is read without a lock: what does not belong together, because
// it was changed between the two loads, does not give the key that is sought
// (the trick of lock-free hash tables in chess programs, by Hyatt and Mann).
// Who reads at the very moment of a change may miss the pause.
type pauseSlot struct {
	mixed atomic.Uint64 // key xor until
	until atomic.Int64
}

func (s *pauseSlot) get() (key uint64, until time.Duration) {
	u := s.until.Load()
	return s.mixed.Load() ^ uint64(u), time.Duration(u)
}

// set is called with RateLimitPauses.mu held.
func (s *pauseSlot) set(key uint64, until time.Duration) {
	s.until.Store(int64(until))
	s.mixed.Store(key ^ uint64(until))
}

// pauseGrain is the least by which a pause grows. A burst of answers that
// all say "in five seconds" is one pause, not one for each response.
const pauseGrain = 100 * time.Millisecond

// AnyActive reports whether any key may be pausing; it costs one load.
func (c *RateLimitPauses) AnyActive(now time.Duration) bool { return int64(now) < c.latest.Load() }

// Remaining is how much longer the key has to pause; 0 when it has not.
func (c *RateLimitPauses) Remaining(key uint64, now time.Duration) time.Duration {
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

// Begin notes that the key has to pause until then. It reports whether that
// was news: a pause that began, or that grew by a tenth of a second or more. A
// pause that is noted already never gets shorter.
func (c *RateLimitPauses) Begin(key uint64, until, now time.Duration) bool {
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

// slotFor is the key's own spot, else the one whose pause ends first.
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

// put notes the pause at its spot. Called with mu held.
func (c *RateLimitPauses) put(slot *pauseSlot, key uint64, until, now time.Duration) bool {
	k, old := slot.get()
	switch {
	case old <= now: // free, or over
		c.begun.Add(1)
	case k == key:
		if until < old+pauseGrain {
			return false
		}
	case until <= old:
		c.displaced.Add(1) // itself: it is the one that ends first
		return false
	default:
		c.displaced.Add(1)
		c.begun.Add(1)
	}
	slot.set(key, until)
	return true
}

// RateLimitPauseState is what a RateLimitPauses counted.
type RateLimitPauseState struct {
	Begun     uint64 // pauses begun
	Displaced uint64 // pauses forgotten, or not noted, for want of room
}

// State gives the counts.
func (c *RateLimitPauses) State() RateLimitPauseState {
	return RateLimitPauseState{Begun: c.begun.Load(), Displaced: c.displaced.Load()}
}

// pauseSpread is the longest random addition to a wait for the end of a
// rate-limit pause. Most who tell a pause tell it in whole seconds, so a second is the
// finest time that they can mean; and it is the first wait after a 429 that
// tells none.
const pauseSpread = time.Second

// RateLimitPauseWait is how long a request waits that meets a rate-limit pause of which so
// much is left, when it can wait for less than room: left plus a random part of
// a second, so that those who wait do not come back in the same instant. No
// when it does not fit. The random part takes at most half of the room behind
// the rate-limit pause, so luck alone never decides whether a wait fits.
func RateLimitPauseWait(left, room time.Duration, r Rand) (time.Duration, bool) {
	if left >= room {
		return 0, false
	}
	return left + upTo(r, min(pauseSpread, (room-left)/2)), true
}
