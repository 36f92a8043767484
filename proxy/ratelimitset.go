package proxy

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// MaxRateLimitKeys is how many values of a field have a rate limit of their own at once,
// for each rate limit of a process; about 0.5 KiB each. One that is in use, or was so lately
// that its next slot is not due yet, is not forgotten for another: values that there is
// no room for have one rate limit together.
const MaxRateLimitKeys = 4096

// rateLimitLooks is how many keys are looked at for one that can be forgotten, when a
// new value comes and there is no room: the same for each request, however many
// values somebody makes up.
const rateLimitLooks = 8

// rateLimitSet is the doors of a rate limit: one, or one for each value of a field. Safe
// for concurrent use.
type rateLimitSet struct {
	name    string
	rate    policy.RateLimit
	elapsed func() time.Duration
	wanted  func() // Config.RateLimitWanted
	holdMax int
	header  string // "": one queue for all
	seed    [sha256.Size]byte

	common *rateLimitQueue // of all requests; with a header, of those without it
	others *rateLimitQueue // of values that there is no room for; nil without a header
	most   int             // values with a queue of their own

	mu        sync.RWMutex // guards what follows; taken before a queue's
	doors     map[uint64]*rateLimitQueue
	ring      []*rateLimitQueue // the same, in the order in which they are looked at
	hand      int
	processes int
	past      policy.RateLimiterState // of doors that were forgotten

	asking sync.Mutex // held by who collects questions
	busyMu sync.Mutex // guards what follows; taken after a queue's
	busy   []*rateLimitQueue
	spare  []*rateLimitQueue
}

// rateLimitSeed is the part of a key that is the same for all of a rate limit. Routes that
// agree in it share the rate limit.
func rateLimitSeed(r *Route) [sha256.Size]byte {
	text := "rate limit\x00" + r.Upstream.String() + "\x00" + r.RateLimit.Rate.String()
	switch r.RateLimit.Kind {
	case RateLimitRoute:
		text += "\x00route\x00" + r.Name
	case RateLimitHeader:
		text += "\x00header\x00" + strings.ToLower(r.RateLimit.Header)
	}
	return sha256.Sum256([]byte(text))
}

func newRateLimitSet(s *Server, r *Route, wanted func()) *rateLimitSet {
	q := &rateLimitSet{
		name: r.Upstream.String(), rate: r.RateLimit.Rate, elapsed: s.elapsed, wanted: wanted, holdMax: r.QueueMax,
		seed: rateLimitSeed(r), most: MaxRateLimitKeys, processes: 1,
	}
	q.common = newRateLimitQueue(q, binary.BigEndian.Uint64(q.seed[:]))
	if r.RateLimit.Kind == RateLimitHeader {
		q.header = r.RateLimit.Header
		q.others = newRateLimitQueue(q, binary.BigEndian.Uint64(q.seed[8:]))
		q.doors = map[uint64]*rateLimitQueue{}
	}
	return q
}

// hashValue is a key made of a field's value. A cryptographic hash, so that no
// client can make a value that is taken for another's. It does not allocate.
func hashValue(seed [sha256.Size]byte, value []byte) uint64 {
	var buf [512]byte
	for {
		n := min(len(value), len(buf)-len(seed))
		seed = sha256.Sum256(append(append(buf[:0], seed[:]...), value[:n]...))
		if value = value[n:]; len(value) == 0 {
			return binary.BigEndian.Uint64(seed[:])
		}
	}
}

// rateLimitKey is whose rate limit the request's attempts belong to.
func (x *exchange) rateLimitKey(s *rateLimitSet) uint64 {
	if s.header != "" {
		if value, ok := x.req.Lookup(s.header); ok {
			return hashValue(s.seed, value)
		}
	}
	return s.common.key
}

// enter is quotaDoor.enter at the queue of a key, and gives that too.
func (s *rateLimitSet) enter(key uint64, w *waiter, now, room time.Duration) (*rateLimitQueue, entry) {
	for {
		q := s.queueOf(key, now)
		if e, ok := q.enter(w, now, room); ok {
			return q, e
		}
	}
}

// queueOf is that of a key, made if need be.
func (s *rateLimitSet) queueOf(key uint64, now time.Duration) *rateLimitQueue {
	if q := s.known(key); q != nil {
		return q
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.doors[key]; q != nil {
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
			delete(s.doors, old.key)
			s.past = s.past.Plus(state)
			return s.put(s.hand, key)
		}
	}
	return s.others
}

// known is the queue of a key that has one, nil for one that has not.
func (s *rateLimitSet) known(key uint64) *rateLimitQueue {
	switch {
	case key == s.common.key:
		return s.common
	case s.others == nil:
		return nil
	case key == s.others.key:
		return s.others
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.doors[key]
}

// put makes the queue of a key at a place of the ring. Called with mu held.
func (s *rateLimitSet) put(i int, key uint64) *rateLimitQueue {
	q := newRateLimitQueue(s, key)
	q.rateLimit.Share(s.processes)
	s.ring[i], s.doors[key] = q, q
	return q
}

// retire makes a queue unused for good, when nothing would be lost by it: a new
// one grants no slot earlier.
func (q *rateLimitQueue) retire(now time.Duration) (counted policy.RateLimiterState, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.listed || q.line.Len() > 0 || !q.rateLimit.Idle(now) {
		return counted, false
	}
	q.retired = true
	return q.rateLimit.State(), true
}

// each calls do for every queue, which it has locked. Called with mu held.
func (s *rateLimitSet) each(do func(q *rateLimitQueue)) {
	locked := func(q *rateLimitQueue) {
		q.mu.Lock()
		defer q.mu.Unlock()
		do(q)
	}
	locked(s.common)
	if s.others != nil {
		locked(s.others)
	}
	for _, q := range s.ring {
		locked(q)
	}
}

// RateLimitStats is the picture of the rate limits of one rate to one upstream, of all
// keys together.
type RateLimitStats struct {
	Upstream string
	Rate     policy.RateLimit
	Waiting  int
	Keys     int // values of a field that are remembered, each with a rate limit of its own
	State    policy.RateLimiterState
}

// rateLimitStats is the picture of all rate limits.
func (n *settings) rateLimitStats() []RateLimitStats {
	var all []RateLimitStats
	permit := map[[2]string]int{}
	for _, s := range n.rateLimits {
		one := s.stats()
		id := [2]string{one.Upstream, one.Rate.String()}
		i, known := permit[id]
		if !known {
			permit[id] = len(all)
			all = append(all, one)
			continue
		}
		all[i].Waiting += one.Waiting
		all[i].Keys += one.Keys
		all[i].State = all[i].State.Plus(one.State)
	}
	return all
}

func (s *rateLimitSet) stats() RateLimitStats {
	s.mu.RLock() // over all of it: a queue that is retired meanwhile would count twice
	defer s.mu.RUnlock()
	one := RateLimitStats{Upstream: s.name, Rate: s.rate, Keys: len(s.ring), State: s.past}
	s.each(func(q *rateLimitQueue) {
		one.Waiting += q.line.Len()
		one.State = one.State.Plus(q.rateLimit.State())
	})
	return one
}
