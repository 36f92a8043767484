package admission

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// MaxRateLimitKeys is how many values of a header have their own rate limit at once, for each rate
// limit of a process. Each takes about 0.5 KiB. A value keeps its rate limit while it is in use or
// its next slot is not due yet. Values without room share one rate limit.
const MaxRateLimitKeys = 4096

// rateLimitLooks is how many keys are examined to forget one if a new value arrives and there is
// no room. So the cost of a request does not grow with the number of invented values.
const rateLimitLooks = 8

// RateLimits has the queues of a rate limit: one, or one for each value of a header. It is safe
// for concurrent use.
type RateLimits struct {
	name     string
	limit    RateLimit
	elapsed  func() time.Duration
	wanted   func() // Config.RateLimitWanted
	queueMax int
	seed     [sha256.Size]byte

	Common *RateLimitQueue // for all requests; with a header, for those without it
	others *RateLimitQueue // for values without room; nil without a header
	most   int             // how many values may have their own queue

	mu        sync.RWMutex // guards all fields below; taken before a queue's
	queues    map[uint64]*RateLimitQueue
	ring      []*RateLimitQueue // the queues in the order in which they are examined
	hand      int
	processes int             // 0: not known yet
	past      ratelimit.State // counts of forgotten queues

	busyMu sync.Mutex        // guards busy; taken after a queue's
	busy   []*RateLimitQueue // those with lease requests to make
}

// RateLimitSeed returns the part of a key that all requests of a rate limit share. Routes with the
// same seed share the rate limit.
func RateLimitSeed(upstream, route string, l RateLimit) [sha256.Size]byte {
	text := "rate limit\x00" + upstream + "\x00" + l.String()
	switch by := l.SharedBy; {
	case by.Route:
		text += "\x00route\x00" + route
	case by.ByValue():
		text += "\x00header\x00" + strings.ToLower(by.Header)
		if by.Model {
			text += "\x00model"
		}
	}
	return sha256.Sum256([]byte(text))
}

// NewRateLimits returns the queues of the rate limit l of a route to an upstream. At most max
// requests wait for each. elapsed is the clock. wanted is called if a request waits for a leased
// slot; nil means that slots are not leased.
func NewRateLimits(upstream, route string, l RateLimit, max int, elapsed func() time.Duration, wanted func()) *RateLimits {
	q := &RateLimits{
		name: upstream, limit: l, elapsed: elapsed, wanted: wanted, queueMax: max,
		seed: RateLimitSeed(upstream, route, l), most: MaxRateLimitKeys,
	}
	q.Common = newRateLimitQueue(q, binary.BigEndian.Uint64(q.seed[:]))
	if l.SharedBy.ByValue() {
		q.others = newRateLimitQueue(q, binary.BigEndian.Uint64(q.seed[8:]))
		q.queues = map[uint64]*RateLimitQueue{}
	}
	return q
}

// KeyOf returns the key of the rate limit that a request's attempts belong to. model is the one in its
// body, nil if that does not say.
func (s *RateLimits) KeyOf(r *http1.Request, model []byte) uint64 {
	key, _ := s.limit.SharedBy.Key(s.seed, r, model) // without any value: that of Common
	return key
}

// CountsTokens reports whether an attempt needs a Use to enter.
func (s *RateLimits) CountsTokens() bool { return s.limit.CountsTokens() }

// Enter takes a slot of the key, or queues w for it: see RateLimitQueue.enter.
func (s *RateLimits) Enter(key uint64, w *Waiter, now, room time.Duration) (*RateLimitQueue, entry) {
	for {
		q := s.QueueOf(key, now)
		if e, ok := q.enter(w, now, room); ok {
			return q, e
		}
	}
}

// QueueOf returns the queue of a key and creates it if there is none.
func (s *RateLimits) QueueOf(key uint64, now time.Duration) *RateLimitQueue {
	if q := s.Known(key); q != nil {
		return q
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[key]; q != nil {
		return q
	}
	if len(s.ring) < s.most {
		s.ring = append(s.ring, nil)
		return s.put(len(s.ring)-1, key)
	}
	for range min(rateLimitLooks, s.most) {
		s.hand = (s.hand + 1) % s.most
		old := s.ring[s.hand]
		if state, ok := old.retire(now); ok {
			delete(s.queues, old.Key)
			s.past = s.past.Plus(state)
			return s.put(s.hand, key)
		}
	}
	return s.others
}

// Known returns the queue of a key, or nil if it has none.
func (s *RateLimits) Known(key uint64) *RateLimitQueue {
	switch {
	case key == s.Common.Key:
		return s.Common
	case s.others == nil:
		return nil
	case key == s.others.Key:
		return s.others
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.queues[key]
}

// put creates the queue of a key at position i of the ring. It is called with mu held.
func (s *RateLimits) put(i int, key uint64) *RateLimitQueue {
	q := newRateLimitQueue(s, key)
	q.share(s.processes)
	s.ring[i], s.queues[key] = q, q
	return q
}

// retire marks a queue as forgotten if nothing is lost by it: a new queue would grant no slot
// earlier.
func (q *RateLimitQueue) retire(now time.Duration) (counted ratelimit.State, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.listed || q.waiters.Len() > 0 || q.rateLimit != nil && !q.rateLimit.Idle(now) || q.tokens != nil && !q.tokens.idle(now) {
		return counted, false
	}
	q.retired = true
	if q.rateLimit == nil {
		return counted, true
	}
	return q.rateLimit.State(), true
}

// each calls do for every queue, with the queue locked. It is called with mu held.
func (s *RateLimits) each(do func(q *RateLimitQueue)) {
	locked := func(q *RateLimitQueue) {
		q.mu.Lock()
		defer q.mu.Unlock()
		do(q)
	}
	locked(s.Common)
	if s.others != nil {
		locked(s.others)
	}
	for _, q := range s.ring {
		locked(q)
	}
}

// RateLimitStats is a snapshot of the rate limits of one rate at one upstream, over all keys.
type RateLimitStats struct {
	Upstream string
	Rate     string // as in settings
	Waiting  int
	Longest  time.Duration // longest wait so far of the queued requests
	Keys     int           // values with their own rate limit
	State    ratelimit.State

	Tokens     int64   // used in the last minute
	TokenLimit float64 // a minute; 0: not known
}

// Stats returns a snapshot of the rate limit over all keys.
func (s *RateLimits) Stats() RateLimitStats {
	s.mu.RLock() // held throughout: a queue that is retired in between would count twice
	defer s.mu.RUnlock()
	now := s.elapsed()
	one := RateLimitStats{Upstream: s.name, Rate: s.limit.String(), Keys: len(s.ring), State: s.past}
	s.each(func(q *RateLimitQueue) {
		one.Waiting += q.waiters.Len()
		one.Longest = max(one.Longest, longestWait(q.waiters, now))
		if q.rateLimit != nil {
			one.State = one.State.Plus(q.rateLimit.State())
		}
		if q.tokens != nil {
			one.Tokens += q.tokens.used.lastMinute(now)
			one.TokenLimit += q.tokens.buckets.TokensPerMinute()
		}
	})
	return one
}

// leaseTakes is the least wait of a request if slots are leased: a process that rarely sends holds
// none.
const leaseTakes = 150 * time.Millisecond

// MinWait returns the least wait of a request for a slot that is not free.
func (s *RateLimits) MinWait() time.Duration {
	if s.wanted == nil || !s.limit.Rate.Limited() {
		return 0
	}
	return leaseTakes
}
