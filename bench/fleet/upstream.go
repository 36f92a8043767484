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

	mu    sync.Mutex  // guards what follows
	limit *rig.Bucket // nil: there is none
	trap  *arrivals   // nil: no pause is awaited
}

// arrivals are what came after the one request that had to wait.
type arrivals struct {
	pause  time.Duration // its Retry-After, whole seconds
	at     time.Time     // when it was; zero: not yet
	last   time.Time     // the last other request within the pause
	others int           // how many there were
}

// set sets the rate limit.
func (u *upstream) set(l *rig.Bucket) {
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
	if u.limit == nil {
		return 0
	}
	wait := u.limit.Take(1, now)
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

// retryAfter is a wait in whole seconds, one at least.
func retryAfter(wait time.Duration) int { return max(1, int(math.Ceil(wait.Seconds()))) }
