package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// users send requests at regular times, whatever becomes of the earlier ones.
type users struct {
	rate     float64 // requests a second
	burst    int     // instead: so many, spread evenly over the span
	when     []span
	patience time.Duration // for each try
	tries    int           // of a request, again apart; 0 means 1
	path     func(n int) string
	method   string // "" means GET; only others have another one
	body     int    // its bytes
	sent     int    // the bytes of the body that are sent, if it is not finished; 0: all
}

// again is the pause before a request is tried again.
const again = 100 * time.Millisecond

// What is counted for a request when it came, beside its tries when they end.
const (
	served   = "requests good"
	unserved = "requests lost"
)

// clientsEach is the number of clients that users are.
const clientsEach = 20

// last returns when the last request may come.
func (u *users) last() (last time.Duration) {
	for _, w := range u.when {
		last = max(last, w.to)
	}
	return last
}

// each calls send for each request at its time, in a new goroutine.
func (u *users) each(ctx context.Context, line *rig.Timeline, send func(n int, at time.Duration)) {
	var all sync.WaitGroup
	defer all.Wait()
	number := 0
	for _, w := range u.when {
		between := time.Duration(float64(time.Second) / u.rate)
		if u.burst > 0 {
			between = (w.to - w.from) / time.Duration(u.burst)
		}
		for at := w.from; at < w.to && line.Until(ctx, at); at += between {
			n := number
			number++
			all.Go(func() { send(n, at) })
		}
	}
}

// run sends all requests and returns when each has its result. They are counted in line.
func (u *users) run(ctx context.Context, addrs []string, line *rig.Timeline) {
	clients := make([]*http.Client, clientsEach)
	for i := range clients {
		clients[i] = rig.Client(20 * i)
		defer clients[i].CloseIdleConnections()
	}
	c := rig.Crowd{Patience: u.patience}
	u.each(ctx, line, func(n int, at time.Duration) {
		for try := range max(u.tries, 1) {
			url := "http://" + addrs[(n+try)%len(addrs)] + u.path(n)
			if c.Try(ctx, clients[n/len(addrs)%clientsEach], url, line) {
				line.CountAt(at, served, 1)
				return
			}
			if try < u.tries-1 && !rig.Sleep(ctx, again) {
				break
			}
		}
		line.CountAt(at, unserved, 1)
	})
}

// disturb sends all requests on new connections, and waits for nobody. The connections end after the
// patience.
func (u *users) disturb(ctx context.Context, addrs []string, line *rig.Timeline) {
	u.each(ctx, line, func(n int, _ time.Duration) {
		c, err := net.Dial("tcp", addrs[n%len(addrs)])
		if err != nil {
			return
		}
		defer c.Close()
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		defer stop()
		_ = c.SetDeadline(time.Now().Add(u.patience))
		_, _ = io.WriteString(c, u.request(n))
		_, _ = io.Copy(io.Discard, c)
	})
}

// request returns the bytes of a request.
func (u *users) request(n int) string {
	if u.method == "" {
		return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: scorecard.test\r\nConnection: close\r\n\r\n", u.path(n))
	}
	sent := u.body
	if u.sent > 0 {
		sent = u.sent
	}
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: scorecard.test\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", u.method, u.path(n), u.body, strings.Repeat("x", sent))
}
