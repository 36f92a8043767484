package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// upstream is the rate-limited service. It lives in this process, so that what
// it sees and when needs no telling. Safe for concurrent use.
type upstream struct {
	addr   string
	server *http.Server
	answer time.Duration // time of a good response

	mu        sync.Mutex // guards what follows
	rateLimit rateLimit
	seen      *record   // nil: nobody looks
	trap      *arrivals // nil: no pause is awaited
}

// arrivals are what came after the one request that was told to wait.
type arrivals struct {
	pause  time.Duration // what it is told, whole seconds
	at     time.Time     // when it was; zero: not yet
	last   time.Time     // the last other request within the pause
	others int           // how many there were
}

// startUpstream listens on loopback.
func startUpstream(answer time.Duration) (*upstream, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &upstream{addr: l.Addr().String(), answer: answer, rateLimit: unlimited{}}
	u.server = &http.Server{Handler: u}
	go func() { _ = u.server.Serve(l) }() // it ends by close
	return u, nil
}

func (u *upstream) close() { _ = u.server.Close() }

// limit sets the rate limit, and where requests are noted from now on.
func (u *upstream) limit(q rateLimit, seen *record) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.rateLimit, u.seen = q, seen
}

// ServeHTTP answers 200 within the rate limit, else 429 with Retry-After at once.
func (u *upstream) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if pause := u.admit(time.Now()); pause > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(pause))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	time.Sleep(u.answer)
	_, _ = io.WriteString(w, "ok\n") // a client that left is its own affair
}

// admit decides about a request: 0 when it is served, else the seconds of its
// Retry-After.
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
	ok := u.rateLimit.take(now)
	if u.seen != nil {
		u.seen.sent(ok)
	}
	if !ok {
		return retryAfter(u.rateLimit.wait(now))
	}
	return 0
}

// setTrap tells the next request to wait for pause, all others none, and notes
// which come nevertheless.
func (u *upstream) setTrap(pause time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.trap = &arrivals{pause: pause}
}

// sprung takes the trap away and gives what it caught.
func (u *upstream) sprung() (arrivals, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.trap
	u.trap = nil
	if t == nil || t.at.IsZero() {
		return arrivals{}, fmt.Errorf("no request came that could have been told to wait")
	}
	return *t, nil
}
