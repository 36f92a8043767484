package admission

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// Use is what an attempt takes of limits that are learnt or count tokens.
type Use struct {
	Cost  ratelimit.Cost  // expected
	Stamp ratelimit.Stamp // of when it was taken
	Taken bool            // and not given back
}

// tokenAccount is what is known of such limits for one key. It belongs to a RateLimitQueue, which
// locks it.
type tokenAccount struct {
	buckets ratelimit.Buckets
	queued  ratelimit.Cost // of those who wait
	used    usedTokens
}

func newTokenAccount(r ratelimit.TokenRate, now time.Duration) *tokenAccount {
	a := &tokenAccount{}
	if r.Limited() {
		a.buckets.Limit(r, now)
	}
	return a
}

func (a *tokenAccount) ready(now time.Duration, c ratelimit.Cost) bool {
	return a.buckets.Ready(now, c)
}

func (a *tokenAccount) next(now time.Duration, c ratelimit.Cost) time.Duration {
	return a.buckets.Next(now, c)
}

func (a *tokenAccount) take(now time.Duration, u *Use) {
	u.Stamp, u.Taken = a.buckets.Take(now, u.Cost), true
}

func (a *tokenAccount) giveBack(now time.Duration, u *Use) {
	if u.Taken {
		u.Taken = false
		a.buckets.GiveBack(now, u.Cost)
	}
}

// wait returns how long an attempt waits behind those that are queued.
func (a *tokenAccount) wait(now time.Duration, c ratelimit.Cost, attempts int) time.Duration {
	return a.buckets.Wait(now, a.queued.Plus(c), attempts)
}

// TypicalOutput returns the output of requests that do not bound theirs.
func (q *RateLimitQueue) TypicalOutput() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tokens.buckets.TypicalOutput()
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
		q.tokens.buckets.Learn(now, &u.Stamp, r, rejected)
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
		u.Taken = false
		q.tokens.buckets.Settle(now, u.Cost, used)
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
