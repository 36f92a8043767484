package proxy

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// Quota is how many attempts a route's upstream may be sent in a time. Routes
// to the same upstream with the same rate share it, hedges and retries count.
type Quota struct {
	Rate policy.QuotaRate // the zero value: no quota
	Wait time.Duration    // the longest that a request waits for its turn; 0: not at all
}

// quotaDoor is where attempts wait for a slot of a quota.
type quotaDoor struct {
	key   uint64 // the same in every process with a route of the same quota to the same upstream
	name  string
	rate  policy.QuotaRate
	since func(time.Time) time.Duration
	fleet func() // Config.QuotaWanted

	mu    sync.Mutex // guards what follows
	quota *policy.Quota
	line  *policy.Line[*waiter]
	timer *time.Timer
}

// newQuotaDoor makes the door of the quota of a route that has one.
func newQuotaDoor(s *Server, key uint64, r *Route, wanted func()) *quotaDoor {
	q := &quotaDoor{
		key: key, name: r.Upstream.String(), rate: r.Quota.Rate, since: s.since, fleet: wanted,
		quota: policy.NewQuota(r.Quota.Rate, wanted != nil, nil), line: policy.NewLine[*waiter](r.HoldMax),
	}
	q.timer = time.AfterFunc(time.Hour, q.tick)
	q.timer.Stop()
	return q
}

func quotaKey(r *Route) uint64 {
	h := sha256.Sum256([]byte("quota\x00" + r.Upstream.String() + "\x00" + r.Quota.Rate.String()))
	return binary.BigEndian.Uint64(h[:])
}

// enter takes a slot, or stands in line for one where the wait is likely to be
// shorter than room, or says after about how long a slot is free.
func (q *quotaDoor) enter(w *waiter, now, room time.Duration) (word int32, t policy.Ticket, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.quota.Arrive()
	ahead := q.line.Len()
	if ahead == 0 && q.quota.Take(now) {
		return wordGo, t, 0
	}
	wait = q.quota.Pace() * time.Duration(ahead+1)
	if ahead == 0 {
		if next := q.quota.Next(now); next != policy.Forever {
			wait = next - now
		}
	}
	if wait > room || q.line.Full() {
		return wordDropped, t, wait
	}
	w.word.Store(wordWait)
	t, _, _ = q.line.Push(w)
	q.arm(now)
	return wordWait, t, wait
}

// takeNow takes a slot for an attempt that does not wait for one.
func (q *quotaDoor) takeNow(now time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.line.Len() == 0 && q.quota.Take(now)
}

// giveBack returns a slot that was not used.
func (q *quotaDoor) giveBack(now time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.quota.GiveBack(now)
	q.arm(now)
}

// quit takes a waiter out of the line that does not want to wait any longer;
// no when it was let in meanwhile.
func (q *quotaDoor) quit(t policy.Ticket, now time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.arm(now)
	return q.line.Remove(t)
}

// tick is the timer's.
func (q *quotaDoor) tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.admit(q.since(time.Now()))
}

// admit lets in whom there are slots for, whoever came first first. Called with mu held.
func (q *quotaDoor) admit(now time.Duration) {
	for q.line.Len() > 0 && q.quota.Take(now) {
		w, _ := q.line.Oldest()
		w.tell(wordGo)
	}
	q.arm(now)
}

// arm sets the timer to the next slot, and has one asked for. Called with mu held, after every
// change of the line and of what is known of slots.
func (q *quotaDoor) arm(now time.Duration) {
	if q.line.Len() == 0 {
		q.timer.Stop()
		return
	}
	if q.fleet != nil {
		q.fleet()
	}
	if at := q.quota.Next(now); at != policy.Forever {
		q.timer.Reset(max(at-now, 0))
	}
}

// leaseTakes is how long a request waits at least where slots are leased: a
// process that sends rarely has none at hand.
const leaseTakes = 150 * time.Millisecond

// awaitSlot waits for the request's turn in the quota of its upstream, and gives
// the time that it then is.
func (x *exchange) awaitSlot(q *quotaDoor, now time.Time) (admission, time.Time) {
	room := x.route.Quota.Wait
	if q.fleet != nil {
		room = max(room, leaseTakes)
	}
	room = min(room, x.waitRoom(now))
	word, ticket, wait := q.enter(&x.waiter, q.since(now), room)
	switch word {
	case wordGo:
		x.slot = q
		return admitted, now
	case wordDropped:
		return x.outOfQuota(wait), now
	}
	x.waiter.turn = q.since(now) + wait
	end := x.c.await(now.Add(room), &x.waiter)
	later := x.tick()
	x.route.observer.Held(later.Sub(now))
	if q.quit(ticket, q.since(later)) {
		switch end {
		case callerLeft:
			return leftWaiting, later
		case drainBegan:
			x.retryAfter = wholeSeconds(max(x.waiter.turn-q.since(later), time.Second))
			return drainedWaiting, later
		}
		return x.outOfQuota(wait), later
	}
	x.slot = q
	if end == callerLeft { // it was let in at the same moment
		return leftWaiting, later
	}
	return admitted, later
}

// outOfQuota turns the request away.
func (x *exchange) outOfQuota(wait time.Duration) admission {
	x.barred, x.retryAfter = barredByQuota, min(max(wholeSeconds(wait), 1), 3600)
	return turnedAway
}

// dropSlot returns the slot of an attempt that is not sent after all.
func (x *exchange) dropSlot() {
	if q := x.slot; q != nil {
		x.slot = nil
		q.giveBack(q.since(time.Now()))
	}
}

// QuotaStats is the picture of one quota.
type QuotaStats struct {
	Upstream string
	Rate     policy.QuotaRate
	Waiting  int
	State    policy.QuotaState
}

func (q *quotaDoor) stats() QuotaStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return QuotaStats{Upstream: q.name, Rate: q.rate, Waiting: q.line.Len(), State: q.quota.State()}
}

// QuotaAsks appends the questions for slots that are due now to asks, and says when the
// next one is; policy.Forever: when Config.QuotaWanted says so, or in a while. Safe for
// concurrent use, as all that follows.
func (s *Server) QuotaAsks(asks []policy.QuotaAsk) ([]policy.QuotaAsk, time.Duration) {
	now, next := s.since(time.Now()), policy.Forever
	for _, q := range s.settings.Load().quotas {
		a, at, due := q.ask(now)
		if due {
			asks = append(asks, a)
		}
		next = min(next, at)
	}
	if next != policy.Forever {
		next -= now
	}
	return asks, next
}

func (q *quotaDoor) ask(now time.Duration) (a policy.QuotaAsk, next time.Duration, due bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.line.Len()
	at := q.quota.Due(now, waiting)
	if at > now {
		return a, at, false
	}
	a = q.quota.Ask(now, waiting)
	a.Key = q.key
	return a, q.quota.Due(now, waiting), true
}

// GrantQuota takes in the answer to a question of QuotaAsks.
func (s *Server) GrantQuota(key uint64, g policy.QuotaGrant) {
	s.withQuota(key, func(q *policy.Quota, now time.Duration) { q.Grant(now, g) })
}

// FailQuota says that a question of QuotaAsks had no answer.
func (s *Server) FailQuota(key uint64) {
	s.withQuota(key, func(q *policy.Quota, _ time.Duration) { q.Fail() })
}

// ShareQuotas says how many processes share each quota.
func (s *Server) ShareQuotas(processes int) {
	for _, q := range s.settings.Load().quotas {
		q.mu.Lock()
		q.quota.Share(processes)
		q.mu.Unlock()
	}
}

func (s *Server) withQuota(key uint64, do func(q *policy.Quota, now time.Duration)) {
	q := s.settings.Load().quotas[key]
	if q == nil {
		return // gone by a reload
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := s.since(time.Now())
	do(q.quota, now)
	q.admit(now)
}
