package admission

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// sharedTokens is what a tokenAccount shares with the other processes. The first in the queue asks
// for its attempt, unless the last answer left plenty. If no answer comes, each process uses its part
// of the limits.
type sharedTokens struct {
	processes int               // 0: not known yet
	account   ratelimit.Account // to be told
	told      ratelimit.Charge  // sent without asking, and told with the question that has no answer
	answered  time.Duration     // when the last answer came; 0: never
	askedAt   time.Duration     // when the question was asked that has no answer; 0: none
	askAt     time.Duration     // when to ask next
	waitsFrom time.Duration     // since when the first in the queue waits for an answer; 0: it does not
	cost      ratelimit.Cost    // that was asked for
	failed    bool              // the last question got no answer
}

const (
	// answerWithin is how long an answer is awaited before the process uses its part of the limits.
	answerWithin = 100 * time.Millisecond
	// reportEvery is the time between two reports while nobody waits.
	reportEvery = 50 * time.Millisecond
	// maxObservations is how many observations are told at once. The newest ones count.
	maxObservations = 16
)

// answerKeeps returns how long an answer that left plenty is relied on; longer if nobody knows of any
// limit.
func answerKeeps(b *ratelimit.Buckets) time.Duration {
	if b.Known() {
		return time.Second
	}
	return 10 * time.Second
}

// alone reports whether the process uses its part of the limits, as there is no answer.
func (s *sharedTokens) alone(now time.Duration) bool {
	return s.failed || s.waitsFrom > 0 && now-s.waitsFrom >= answerWithin
}

// next returns when an attempt may be sent without another answer.
func (s *sharedTokens) next(now time.Duration, b *ratelimit.Buckets, c ratelimit.Cost) time.Duration {
	switch {
	case s.alone(now):
		return b.NextShare(now, c, s.processes)
	case s.processes > 0 && s.answered > 0 && now-s.answered < answerKeeps(b) && b.Plenty(now, c, s.told.Plus(s.account.Sent), s.processes):
		return now
	case s.waitsFrom > 0:
		return s.waitsFrom + answerWithin
	}
	return backoff.Forever
}

// take takes an attempt for which next is now.
func (s *sharedTokens) take(now time.Duration, b *ratelimit.Buckets, c ratelimit.Cost) ratelimit.Stamp {
	s.account.Sent.Add(1, c)
	if s.alone(now) {
		return b.TakeShare(now, c, s.processes)
	}
	return b.Take(now, c)
}

// giveBack undoes take for an attempt that used nothing.
func (s *sharedTokens) giveBack(c ratelimit.Cost) { s.account.Sent.Add(-1, c) }

// settle replaces what an attempt was expected to use by what it used.
func (s *sharedTokens) settle(expected, used ratelimit.Cost) {
	s.account.Settled = s.account.Settled.Plus(used).Minus(expected)
}

// observe notes what a response said.
func (s *sharedTokens) observe(o ratelimit.Observation) {
	if len(s.account.Learnt) == maxObservations {
		s.account.Learnt = append(s.account.Learnt[:0], s.account.Learnt[1:]...)
	}
	s.account.Learnt = append(s.account.Learnt, o)
}

// due returns when to ask or tell next.
func (s *sharedTokens) due(now time.Duration, first *Waiter) time.Duration {
	nothing := first == nil && s.account.Sent == ratelimit.Charge{} && s.account.Settled == ratelimit.Cost{} && len(s.account.Learnt) == 0
	switch {
	case nothing || s.askedAt > 0:
		return backoff.Forever
	case first == nil:
		return max(now, s.askAt, s.answered+reportEvery)
	}
	return max(now, s.askAt)
}

// ask returns what to tell and to ask for the first in the queue, which may be nil.
func (s *sharedTokens) ask(now time.Duration, b *ratelimit.Buckets, first *Waiter) *ratelimit.Account {
	a := s.account
	a.Counting = ratelimit.Counting{Usage: b.TakeNews(), Soon: b.Soon()}
	s.account = ratelimit.Account{Fixed: a.Fixed, Probe: a.Probe}
	s.askedAt, s.told = max(now, 1), s.told.Plus(a.Sent)
	if first != nil {
		cost := b.Expect(first.Use.Estimate)
		s.cost, a.Next, first.Use.asked = cost, &cost, true
		if s.waitsFrom == 0 {
			s.waitsFrom = s.askedAt
		}
	}
	return &a
}

// answer takes the answer. It reports whether the first in the queue is admitted.
func (s *sharedTokens) answer(now time.Duration, b *ratelimit.Buckets, balance *ratelimit.Balance, first *Waiter) bool {
	s.askedAt, s.waitsFrom, s.failed, s.answered, s.told = 0, 0, false, max(now, 1), ratelimit.Charge{}
	b.Import(now, balance)
	s.askAt = now
	if !balance.Granted {
		s.askAt = now + min(max(balance.Wait, time.Millisecond), answerWithin)
		return false
	}
	if first == nil || !first.Use.asked {
		s.giveBack(s.cost) // it has left
		return false
	}
	if u := first.Use; !u.corrected && exceeds(b.Expect(u.Estimate), s.cost) {
		u.corrected = true
		s.giveBack(s.cost) // and is asked for again
		return false
	}
	return true
}

// exceeds reports whether an attempt is expected to use clearly more than was asked for: the answer brought
// what the other processes have learned meanwhile of how the upstream counts.
func exceeds(c, asked ratelimit.Cost) bool {
	sum := asked.Input + asked.Output
	return c.Input+c.Output > sum+sum/10
}

// fail notes that there is no answer. What was learned of how the upstream counts is told again; the rest is
// outdated by then.
func (s *sharedTokens) fail(now time.Duration, b *ratelimit.Buckets) {
	b.RestoreNews()
	s.askedAt, s.failed, s.askAt, s.told = 0, true, now+answerWithin, ratelimit.Charge{}
}

// askAccount appends the account that is due, and returns when the next one is. Called with mu held.
func (q *RateLimitQueue) askAccount(asks []ratelimit.LeaseRequest, now time.Duration) ([]ratelimit.LeaseRequest, time.Duration) {
	s := q.tokens.shared
	first, _ := q.waiters.First()
	next := s.due(now, first)
	if next <= now {
		asks = append(asks, ratelimit.LeaseRequest{Key: q.Key, Account: s.ask(now, &q.tokens.buckets, first)})
		next = backoff.Forever // until the answer
	}
	return asks, next
}

// applyBalance takes the answer to an account.
func (q *RateLimitQueue) applyBalance(now time.Duration, b *ratelimit.Balance) {
	first, _ := q.waiters.First()
	if q.tokens.shared.answer(now, &q.tokens.buckets, b, first) {
		u := first.Use
		u.Stamp, u.Taken, u.Cost, u.queue = q.tokens.buckets.Granted(now), true, q.tokens.shared.cost, q
		q.admitOldest()
	}
	q.enlist()
}

// ApplyGrant takes the response to a lease request.
func (q *RateLimitQueue) ApplyGrant(now time.Duration, g ratelimit.LeaseGrant) {
	q.update(now, func() {
		switch {
		case g.Balance != nil && q.tokens != nil && q.tokens.shared != nil:
			q.applyBalance(now, g.Balance)
		case q.rateLimit != nil:
			q.rateLimit.ApplyGrant(now, g)
		}
	})
}

// FailRequest notes that a lease request got no response.
func (q *RateLimitQueue) FailRequest(now time.Duration) {
	q.update(now, func() {
		if q.tokens != nil && q.tokens.shared != nil {
			q.tokens.shared.fail(now, &q.tokens.buckets)
			q.enlist()
		}
		if q.rateLimit != nil {
			q.rateLimit.RequestFailed()
		}
	})
}
