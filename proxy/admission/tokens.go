package admission

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// Use is what an attempt takes of limits that are learnt or count tokens.
type Use struct {
	Estimate ratelimit.Estimate
	Cost     ratelimit.Cost  // expected, by the Estimate and what is known when it is taken
	Stamp    ratelimit.Stamp // of when it was taken
	Taken    bool            // and not given back

	queue  *RateLimitQueue // that it was taken from; nil: none
	queued ratelimit.Cost  // expected when it was queued
	asked  bool            // the other processes are asked for Cost

	corrected bool // it is asked for again, as the first question asked for too little
}

// Learn takes what the response to the attempt says about its rate limits. rejected means that one of
// them rejected it, or that no upstream got it.
func (u *Use) Learn(said []ratelimit.Reading, rejected bool) {
	if u.queue != nil {
		u.queue.Learn(u.queue.set.elapsed(), u, said, rejected)
	}
}

// Settle replaces the expected use of the attempt by what its response said.
func (u *Use) Settle(used ratelimit.Cost) {
	if u.queue != nil {
		u.queue.Settle(u.queue.set.elapsed(), u, used)
	}
}

// Learns reports whether the rate limit that it was taken from is learnt from responses.
func (u *Use) Learns() bool { return u.queue != nil && u.queue.set.limit.Learn }

// IsCounted reports whether the use was taken from a rate limit.
func (u *Use) IsCounted() bool { return u.queue != nil }

// tokenAccount is what is known of such limits for one key. It belongs to a RateLimitQueue, which
// locks it.
type tokenAccount struct {
	buckets ratelimit.Buckets
	shared  *sharedTokens  // nil: with nobody
	queued  ratelimit.Cost // of those who wait
	used    usedTokens
}

func newTokenAccount(l *RateLimit, now time.Duration, shared bool) *tokenAccount {
	a := &tokenAccount{buckets: ratelimit.Buckets{Probe: l.Probe}}
	if shared {
		a.shared = &sharedTokens{account: ratelimit.Account{Fixed: l.Tokens, Probe: l.Probe}}
	}
	if l.Tokens.Limited() {
		a.buckets.Limit(l.Tokens, now)
	}
	return a
}

// next returns when an attempt may be sent, without any other event.
func (a *tokenAccount) next(now time.Duration, u *Use) time.Duration {
	c := a.buckets.Expect(u.Estimate)
	if a.shared != nil {
		return a.shared.next(now, &a.buckets, c)
	}
	return a.buckets.Next(now, c)
}

func (a *tokenAccount) ready(now time.Duration, u *Use) bool { return a.next(now, u) <= now }

// enqueue counts an attempt that is queued, and dequeue one that is not any more.
func (a *tokenAccount) enqueue(u *Use) {
	u.queued = a.buckets.Expect(u.Estimate)
	a.queued = a.queued.Plus(u.queued)
}

func (a *tokenAccount) dequeue(u *Use) { a.queued = a.queued.Minus(u.queued) }

// take takes an attempt that is ready.
func (a *tokenAccount) take(now time.Duration, u *Use) {
	u.Taken, u.Cost = true, a.buckets.Expect(u.Estimate)
	if a.shared != nil {
		u.Stamp = a.shared.take(now, &a.buckets, u.Cost)
		return
	}
	u.Stamp = a.buckets.Take(now, u.Cost)
}

func (a *tokenAccount) giveBack(now time.Duration, u *Use) {
	if !u.Taken {
		return
	}
	u.Taken = false
	a.buckets.GiveBack(now, u.Cost)
	if a.shared != nil {
		a.shared.giveBack(u.Cost)
	}
}

// learn takes what the response to an attempt said.
func (a *tokenAccount) learn(now time.Duration, u *Use, r ratelimit.Reading, rejected bool) {
	a.buckets.Calibrate(now, &u.Stamp, u.Estimate, r, rejected)
	a.buckets.Learn(now, &u.Stamp, r, rejected)
	if a.shared != nil {
		a.shared.observe(ratelimit.Observation{Reading: r, Stamp: u.Stamp, Took: u.Stamp.Since(now), Rejected: rejected})
	}
}

// settle replaces the expected use of an attempt by what it used.
func (a *tokenAccount) settle(now time.Duration, u *Use, used ratelimit.Cost) {
	u.Taken = false
	a.buckets.Settle(now, u.Cost, u.Estimate, used)
	if a.shared != nil {
		a.shared.settle(u.Cost, used)
	}
}

// wait returns how long an attempt waits behind those that are queued.
func (a *tokenAccount) wait(now time.Duration, u *Use, attempts int) time.Duration {
	return a.buckets.Wait(now, a.queued.Plus(a.buckets.Expect(u.Estimate)), attempts)
}

// idle reports whether nothing is lost if the account is forgotten.
func (a *tokenAccount) idle(now time.Duration) bool {
	return a.buckets.Idle(now) && (a.shared == nil || a.shared.askedAt == 0)
}

// Learn takes what the response to an attempt says about its rate limits. rejected means that one of
// them rejected it.
func (q *RateLimitQueue) Learn(now time.Duration, u *Use, said []ratelimit.Reading, rejected bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.retired || q.tokens == nil {
		return
	}
	q.enlist()
	if rejected {
		q.tokens.giveBack(now, u)
	}
	for _, r := range said {
		q.tokens.learn(now, u, r, rejected)
	}
	if q.tokens.shared != nil {
		q.set.wanted()
	}
	q.admit(now)
}

// Settle replaces the expected use of an attempt by what its response said.
func (q *RateLimitQueue) Settle(now time.Duration, u *Use, used ratelimit.Cost) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.retired || q.tokens == nil {
		return
	}
	q.enlist()
	q.tokens.used.add(now, used.Input+used.Output)
	if u.Taken {
		q.tokens.settle(now, u, used)
		q.admit(now)
	}
}

// usedTokens counts the tokens of the last minute, in parts of it.
type usedTokens struct {
	parts [usedParts]int64
	at    int64 // the part that counts now, since the start
}

const (
	usedParts = 12
	usedPart  = time.Minute / usedParts
)

func (u *usedTokens) add(now time.Duration, n int64) {
	u.advance(now)
	u.parts[u.at%usedParts] += n
}

func (u *usedTokens) advance(now time.Duration) {
	at := int64(now / usedPart)
	for ; u.at < at; u.at++ {
		if at-u.at > usedParts {
			u.at = at - usedParts
		}
		u.parts[(u.at+1)%usedParts] = 0
	}
}

// lastMinute returns the tokens of about the last minute.
func (u *usedTokens) lastMinute(now time.Duration) (sum int64) {
	u.advance(now)
	for _, n := range u.parts {
		sum += n
	}
	return sum
}
