package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// result is what an attack came to.
type result struct {
	Name   string   `json:"name"`
	Conns  int      `json:"connections_at_once"`
	Made   int64    `json:"connections_made"`
	Sent   int64    `json:"sent"`
	Ended  int64    `json:"connections_ended_by_the_proxy"`
	Resets int64    `json:"streams_refused_by_the_proxy"`
	Bound  int64    `json:"bound_bytes"`
	Why    string   `json:"bound_is_for"`
	Quiet  service  `json:"others_before"`
	Under  service  `json:"others_during"`
	Before reading  `json:"before"`
	During reading  `json:"during"`
	After  reading  `json:"after"`
	Told   string   `json:"looked_for,omitempty"` // of attacks with a judge of their own, and what it found
	Found  []string `json:"found,omitempty"`

	ends bool
}

// warmUp is how long the others send requests before the process is first read.
const warmUp = time.Second

// play attacks a process of its own for so long.
func play(ctx context.Context, a *attack, path, upstream string, lasts time.Duration) (*result, error) {
	st := &stage{upstream: upstream, strike: a.strike}
	defer st.end()
	if a.prepare != nil {
		if err := a.prepare(st); err != nil {
			return nil, err
		}
	}
	p, err := startProxy(path, st)
	if err != nil {
		return nil, err
	}
	defer p.End()
	o := newOthers(st.secure)
	defer o.close()
	r := &result{Name: a.name, Conns: a.conns, Bound: a.bound, Why: a.why, ends: a.ends}
	during := func(d time.Duration) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }

	quiet, cancel := during(max(warmUp, lasts/2))
	r.Quiet = o.call(quiet, p.Addr)
	cancel()
	if st.begin != nil {
		if err := st.begin(p); err != nil {
			return nil, err
		}
	}
	if r.Before, err = p.read(); err != nil {
		return nil, err
	}
	attacked, cancel := during(lasts + patience)
	defer cancel()
	t, struck := &tally{}, make(chan struct{})
	go func() { defer close(struck); a.carryOut(attacked, st, p.Process, t) }()
	beside := make(chan struct{})
	go func() {
		defer close(beside)
		if st.beside != nil {
			st.beside(attacked, p)
		}
	}()
	go func() { // a slow machine turns attackers away later
		defer cancel()
		for began := time.Now(); attacked.Err() == nil && (time.Since(began) < lasts || a.ends && !t.turnedAway()); {
			time.Sleep(10 * time.Millisecond)
		}
	}()
	r.Under = o.call(attacked, p.Addr)
	<-struck
	<-beside
	if r.During, err = p.read(); err != nil {
		return nil, fmt.Errorf("%w; it said:\n%s", err, p.Lines())
	}
	r.Made, r.Sent, r.Ended, r.Resets = t.conns.Load(), t.sent.Load(), t.ended.Load(), t.resets.Load()
	if st.judge != nil {
		r.Told, r.Found = st.judge(p)
	}
	r.After, err = p.settle(r.Before, patience)
	return r, err
}

// grew is by how much the process's memory grew beyond what it was before.
func (r *result) grew() int64 { return max(r.During.Peak, r.After.Peak) - r.Before.RSS }

// wrong is what was not withstood.
func (r *result) wrong() []string {
	var all []string
	say := func(format string, a ...any) { all = append(all, fmt.Sprintf(format, a...)) }
	if r.Quiet.Failed+r.Under.Failed > 0 {
		say("%d requests of others failed before and %d during the attack: %s%s", r.Quiet.Failed, r.Under.Failed, r.Quiet.First, r.Under.First)
	}
	if r.Under.Requests == 0 {
		say("no request of others was served")
	}
	if r.grew() > r.Bound {
		say("memory grew by %.1f MiB, more than %.1f MiB for %s", mibOf(r.grew()), mibOf(r.Bound), r.Why)
	}
	if r.Sent == 0 {
		say("the attack sent nothing")
	}
	if r.ends && r.Ended+r.Resets == 0 {
		say("the attacker was not turned away")
	}
	if !back(r.Before, r.After) {
		say("%d goroutines and %d descriptors after it, %d and %d before", r.After.Goroutines, r.After.Descriptors, r.Before.Goroutines, r.Before.Descriptors)
	}
	return append(all, r.Found...)
}

func mibOf(n int64) float64 { return float64(n) / mib }

const columns = "| attack | connections | sent | %s | memory: before, grew by, bound (MiB) | others: requests, failed | their p99: before, during, ratio | goroutines, descriptors: before, after |\n|---|---|---|---|---|---|---|---|\n"

// met is what came of the attack itself.
func (r *result) met() string {
	if r.Told != "" {
		return r.Told
	}
	return fmt.Sprintf("%d, %d", r.Ended, r.Resets)
}

func (r *result) print(w io.Writer) {
	fmt.Fprintf(w, "| %s | %d | %d | %s | %.1f, %.1f, %.0f | %d, %d | %.1f ms, %.1f ms, %.1f | %d, %d; %d, %d |\n",
		r.Name, r.Conns, r.Sent, r.met(), mibOf(r.Before.RSS), mibOf(r.grew()), mibOf(r.Bound), r.Under.Requests, r.Under.Failed,
		ms(r.Quiet.P99), ms(r.Under.P99), float64(r.Under.P99)/float64(max(r.Quiet.P99, 1)),
		r.Before.Goroutines, r.Before.Descriptors, r.After.Goroutines, r.After.Descriptors)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
