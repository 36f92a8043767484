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
	rate     ratelimit.Rate
	elapsed  func() time.Duration
	wanted   func() // Config.RateLimitWanted
	queueMax int
	header   string // "": one queue for all
	seed     [sha256.Size]byte

	Common *RateLimitQueue // for all requests; with a header, for those without it
	others *RateLimitQueue // for values without room; nil without a header
	most   int             // how many values may have their own queue

	mu        sync.RWMutex // guards all fields below; taken before a queue's
	queues    map[uint64]*RateLimitQueue
	ring      []*RateLimitQueue // the queues in the order in which they are examined
	hand      int
	processes int
	past      ratelimit.State // counts of forgotten queues

	asking sync.Mutex // held while lease requests are collected
	busyMu sync.Mutex // guards all fields below; taken after a queue's
	busy   []*RateLimitQueue
	spare  []*RateLimitQueue
}

// RateLimitSeed returns the part of a key that all requests of a rate limit share. Routes with the
// same seed share the rate limit.
func RateLimitSeed(upstream, route string, l RateLimit) [sha256.Size]byte {
	text := "rate limit\x00" + upstream + "\x00" + l.Rate.String()
	switch l.Kind {
	case RateLimitRoute:
		text += "\x00route\x00" + route
	case RateLimitHeader:
		text += "\x00header\x00" + strings.ToLower(l.Header)
	}
	return sha256.Sum256([]byte(text))
}

// NewRateLimits returns the queues of the rate limit l of a route to an upstream. At most max
// requests wait for each. elapsed is the clock. wanted is called if a request waits for a leased
// slot; nil means that slots are not leased.
func NewRateLimits(upstream, route string, l RateLimit, max int, elapsed func() time.Duration, wanted func()) *RateLimits {
	q := &RateLimits{
		name: upstream, rate: l.Rate, elapsed: elapsed, wanted: wanted, queueMax: max,
		seed: RateLimitSeed(upstream, route, l), most: MaxRateLimitKeys, processes: 1,
	}
	q.Common = newRateLimitQueue(q, binary.BigEndian.Uint64(q.seed[:]))
	if l.Kind == RateLimitHeader {
		q.header = l.Header
		q.others = newRateLimitQueue(q, binary.BigEndian.Uint64(q.seed[8:]))
		q.queues = map[uint64]*RateLimitQueue{}
	}
	return q
}

// HashValue returns the key of a header value. The hash is cryptographic, so that no client can
// find a value that collides with another. It does not allocate.
func HashValue(seed [sha256.Size]byte, value []byte) uint64 {
	var buf [512]byte
	for {
		n := min(len(value), len(buf)-len(seed))
		seed = sha256.Sum256(append(append(buf[:0], seed[:]...), value[:n]...))
		if value = value[n:]; len(value) == 0 {
			return binary.BigEndian.Uint64(seed[:])
		}
	}
}

// KeyOf returns the key of the rate limit that a request's attempts belong to.
func (s *RateLimits) KeyOf(r *http1.Request) uint64 {
	if s.header != "" {
		if value, ok := r.Lookup(s.header); ok {
			return HashValue(s.seed, value)
		}
	}
	return s.Common.Key
}

// Enter takes a slot of the key, or queues w for it. See RateLimitQueue.enter.
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
	q.rateLimit.Share(s.processes)
	s.ring[i], s.queues[key] = q, q
	return q
}

// retire marks a queue as forgotten if nothing is lost by it: a new queue would grant no slot
// earlier.
func (q *RateLimitQueue) retire(now time.Duration) (counted ratelimit.State, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.listed || q.waiters.Len() > 0 || !q.rateLimit.Idle(now) {
		return counted, false
	}
	q.retired = true
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
	Rate     ratelimit.Rate
	Waiting  int
	Longest  time.Duration // longest wait so far of the queued requests
	Keys     int           // values with their own rate limit
	State    ratelimit.State
}

// Stats returns a snapshot of the rate limit over all keys.
func (s *RateLimits) Stats() RateLimitStats {
	s.mu.RLock() // held throughout: a queue that is retired in between would count twice
	defer s.mu.RUnlock()
	now := s.elapsed()
	one := RateLimitStats{Upstream: s.name, Rate: s.rate, Keys: len(s.ring), State: s.past}
	s.each(func(q *RateLimitQueue) {
		one.Waiting += q.waiters.Len()
		one.Longest = max(one.Longest, longestWait(q.waiters, now))
		one.State = one.State.Plus(q.rateLimit.State())
	})
	return one
}

// leaseTakes is the least wait of a request if slots are leased: a process that rarely sends holds
// none.
const leaseTakes = 150 * time.Millisecond

// MinWait returns the least wait of a request for a slot that is not free.
func (s *RateLimits) MinWait() time.Duration {
	if s.wanted == nil {
		return 0
	}
	return leaseTakes
}
