package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/httpclient"
)

// holdResult is how fast all hold after one of them was told to.
type holdResult struct {
	Pauses []pauseResult `json:"pauses"`
	Median float64       `json:"median_ms"`
	Most   float64       `json:"most_ms"`
}

// pauseResult is one pause.
type pauseResult struct {
	Until  float64 `json:"ms_until_all_held"` // from the 429 to the last request within the pause
	Others int     `json:"requests_meanwhile"`
	Before float64 `json:"requests_a_second_before"`
}

// hold times how long it takes until all processes hold when one got a 429 with
// Retry-After. The upstream has no rate limit: it says 429 to a single request and
// notes what comes within the pause nevertheless. Only who was told by the others
// can know of it.
func hold(ctx context.Context, o *options, up *upstream, tell func(string)) (*holdResult, error) {
	a := &arm{name: "hold", shared: true, env: func(*options) []string { return []string{holdAll} }}
	s, err := a.setUp(ctx, o, up)
	if err != nil {
		return nil, err
	}
	defer s.end()
	s.record = newRecord()
	up.limit(unlimited{}, s.record)
	defer up.limit(unlimited{}, nil)
	run, stop := context.WithCancel(ctx)
	clients := o.crowd().call(run, s.fleet.addrs(), s.record)
	defer func() { stop(); s.fleet.end(); clients.Wait() }()
	r := &holdResult{}
	for n := range o.holds {
		p, err := s.pauseOnce(run)
		if err != nil {
			return nil, err
		}
		r.Pauses = append(r.Pauses, *p)
		tell(fmt.Sprintf("hold     pause %d of %d: all held after %.1f ms, %d requests came meanwhile (%.0f/s before)", n+1, o.holds, p.Until, p.Others, p.Before))
	}
	var all []float64
	for _, p := range r.Pauses {
		all = append(all, p.Until)
	}
	slices.Sort(all)
	r.Median, r.Most = all[len(all)/2], all[len(all)-1]
	return r, s.fleet.alive()
}

// pauseOnce waits until the load is steady again, and sets a trap.
func (s *stage) pauseOnce(ctx context.Context) (*pauseResult, error) {
	const steady = 3 * time.Second // those held come back within a second after the pause
	if !httpclient.Sleep(ctx, steady) {
		return nil, ctx.Err()
	}
	at := s.record.since()
	before := s.record.sum(at-time.Second, at)
	s.up.setTrap(s.o.pause)
	if !httpclient.Sleep(ctx, s.o.pause+500*time.Millisecond) {
		return nil, ctx.Err()
	}
	t, err := s.up.sprung()
	if err != nil {
		return nil, err
	}
	return &pauseResult{Until: float64(t.last.Sub(t.at).Microseconds()) / 1e3, Others: t.others, Before: float64(before.Sent)}, nil
}
