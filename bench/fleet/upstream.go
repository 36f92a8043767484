package main

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// upstream is the rate-limited service. It lives in this process, so that it needs to tell nobody
// what it sees and when. It is safe for concurrent use.
type upstream struct {
	addr   string
	answer time.Duration // time of a good response
	line   *rig.Timeline

	mu    sync.Mutex // guards what follows
	limit limit
	trap  *arrivals // nil: no pause is awaited
}

// arrivals are what came after the one request that had to wait.
type arrivals struct {
	pause  time.Duration // its Retry-After, whole seconds
	at     time.Time     // when it was; zero: not yet
	last   time.Time     // the last other request within the pause
	others int           // how many there were
}

// set sets the rate limit.
func (u *upstream) set(l limit) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.limit = l
}

// ServeHTTP answers 200 within the rate limit, else 429 with Retry-After at once.
func (u *upstream) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if pause := u.admit(time.Now()); pause > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(pause))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	time.Sleep(u.answer)
	_, _ = io.WriteString(w, "ok\n")
}

// admit returns 0 for a request that is served, else the seconds of its Retry-After.
func (u *upstream) admit(now time.Time) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if t := u.trap; t != nil {
		if t.at.IsZero() {
			t.at, t.last = now, now
			return int(t.pause / time.Second)
		}
		if now.Before(t.at.Add(t.pause)) {
			t.last = now
			t.others++
		}
	}
	u.line.Count(sent, 1)
	wait := u.limit.take(now)
	if wait == 0 {
		return 0
	}
	u.line.Count(turnedAway, 1)
	return retryAfter(wait)
}

// setTrap has the next request wait for pause, all others not at all, and counts which come nevertheless.
func (u *upstream) setTrap(pause time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.trap = &arrivals{pause: pause}
}

// sprung takes the trap away and returns what it caught.
func (u *upstream) sprung() (arrivals, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.trap
	if u.trap = nil; t == nil || t.at.IsZero() {
		return arrivals{}, errors.New("no request came that could have been made to wait")
	}
	return *t, nil
}

// limit is what the upstream allows to all together. It is not safe for concurrent use.
type limit interface {
	// take takes one more request if that is within the limit at a time, which never goes back. Else it
	// returns how long the request must wait.
	take(now time.Time) time.Duration
}

// newLimit returns the upstream's, with all of it left.
func (o *options) newLimit(now time.Time) limit {
	if o.window == "second" {
		return &seconds{most: o.rateLimit}
	}
	return newBucket(float64(o.rateLimit), float64(o.burst), now)
}

// bucket gets tokens evenly: within any time t, it allows at most capacity + t x rate requests.
type bucket struct{ *rig.Bucket }

func newBucket(rate, capacity float64, now time.Time) bucket {
	return bucket{rig.NewBucket(rate, capacity, now)}
}

func (b bucket) take(now time.Time) time.Duration {
	b.Fill(now)
	if wait := b.Until(1); wait > 0 {
		return wait
	}
	b.Level--
	return 0
}

// seconds counts anew in every second of the clock.
type seconds struct {
	most, taken int
	of          time.Time // the second that is counted
}

func (s *seconds) take(now time.Time) time.Duration {
	if of := now.Truncate(time.Second); !of.Equal(s.of) {
		s.of, s.taken = of, 0
	}
	if s.taken == s.most {
		return s.of.Add(time.Second).Sub(now)
	}
	s.taken++
	return 0
}

// unlimited allows everything.
type unlimited struct{}

func (unlimited) take(time.Time) time.Duration { return 0 }

// retryAfter is a wait in whole seconds, one at least.
func retryAfter(wait time.Duration) int { return max(1, int(math.Ceil(wait.Seconds()))) }
