// Package account remembers which accounts at upstreams are used up, or are refused, so that other
// requests are not sent in vain: begin with Accounts. What is sent in their place is not its question.
package account

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// How long an account is left out if its response does not say when it is renewed: MinPause, and twice
// as long after each trial that fails, up to MaxPause. Somebody who pays waits a minute at first, and a
// key that nobody replaces costs one request in an hour.
const (
	MinPause = time.Minute
	MaxPause = time.Hour
)

// MaxReset bounds the time that a response may ask for. An account may be renewed earlier than it said,
// by somebody who pays.
const MaxReset = 24 * time.Hour

// trialTime is how long the others stay away while one request tries the account again. If that has no
// result, because its client left, another one tries.
const trialTime = 30 * time.Second

// maxAccounts bounds the memory. Further accounts are tried by each request, as before.
const maxAccounts = 4096

// Accounts are accounts that are left out. Keys come from the user of the package. All methods are safe
// for concurrent use. now is monotonic time of any origin not below 0, the same for all calls. The zero
// value is empty and ready to use.
type Accounts struct {
	n atomic.Int64 // len(out)

	mu  sync.Mutex // guards out
	out map[uint64]state
}

// state is one account that is left out. After until, one request may try it.
type state struct {
	until time.Duration
	pause time.Duration // the last one without a known end; 0: there was none
	tried bool          // a trial is under way, or ended without a result
}

// Any reports whether an account is left out. It costs one atomic load.
func (a *Accounts) Any() bool { return a.n.Load() > 0 }

// Left returns how much longer the account is left out; 0 if it may be used. After its time, the first
// who asks gets 0 and tries it, while the others stay away.
func (a *Accounts) Left(key uint64, now time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, is := a.out[key]
	if !is {
		return 0
	}
	if left := s.until - now; left > 0 {
		return left
	}
	s.until, s.tried = now+trialTime, true
	a.out[key] = s
	return 0
}

// UsedUp leaves the account out for reset, or for a growing pause if reset is 0 or less. The responses
// to requests that were sent before count as one. It reports whether the account was in use until now.
func (a *Accounts) UsedUp(key uint64, now, reset time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, is := a.out[key]
	if !is && len(a.out) >= maxAccounts && !a.forget(now) {
		return false
	}
	until := now + min(reset, MaxReset, backoff.Forever-now)
	if reset <= 0 {
		if !is || s.tried {
			s.pause = min(max(2*s.pause, MinPause), MaxPause)
		}
		until = now + s.pause
	}
	if is && !s.tried {
		until = max(until, s.until)
	}
	s.until, s.tried = until, false
	if a.out == nil {
		a.out = map[uint64]state{}
	}
	a.out[key] = s
	a.n.Store(int64(len(a.out)))
	return !is
}

// Works ends the pause of an account, because it served a request. It reports whether there was one.
func (a *Accounts) Works(key uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, is := a.out[key]
	delete(a.out, key)
	a.n.Store(int64(len(a.out)))
	return is
}

// forget forgets accounts that nobody has tried since their time was over. It reports whether there
// were any. It requires mu.
func (a *Accounts) forget(now time.Duration) bool {
	before := len(a.out)
	maps.DeleteFunc(a.out, func(_ uint64, s state) bool { return s.until <= now })
	return len(a.out) < before
}
