package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// result is what an attack came to.
type result struct {
	Name   string  `json:"name"`
	Conns  int     `json:"connections_at_once"`
	Made   int64   `json:"connections_made"`
	Sent   int64   `json:"sent"`
	Ended  int64   `json:"connections_ended_by_the_proxy"`
	Resets int64   `json:"streams_refused_by_the_proxy"`
	Bound  int64   `json:"bound_bytes"`
	Why    string  `json:"bound_is_for"`
	Quiet  service `json:"others_before"`
	Under  service `json:"others_during"`
	Before reading `json:"before"`
	During reading `json:"during"`
	After  reading `json:"after"`

	ends bool
}

// warmUp is how long the others send requests before the process is first read.
const warmUp = time.Second

// play attacks a process of its own for so long.
func play(ctx context.Context, a *attack, path, upstream string, lasts time.Duration) (*result, error) {
	p, err := startProxy(path, upstream)
	if err != nil {
		return nil, err
	}
	defer p.End()
	o := newOthers()
	defer o.close()
	r := &result{Name: a.name, Conns: a.conns, Bound: a.bound, Why: a.why, ends: a.ends}
	during := func(d time.Duration) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }

	quiet, cancel := during(max(warmUp, lasts/2))
	r.Quiet = o.call(quiet, p.addr)
	cancel()
	if r.Before, err = p.read(); err != nil {
		return nil, err
	}
	attacked, cancel := during(lasts + patience)
	defer cancel()
	t, struck := &tally{}, make(chan struct{})
	go func() { defer close(struck); a.carryOut(attacked, p.addr, t) }()
	go func() { // a slow machine turns attackers away later
		defer cancel()
		for began := time.Now(); attacked.Err() == nil && (time.Since(began) < lasts || a.ends && !t.turnedAway()); {
			time.Sleep(10 * time.Millisecond)
		}
	}()
	r.Under = o.call(attacked, p.addr)
	<-struck
	if r.During, err = p.read(); err != nil {
		return nil, fmt.Errorf("%w; it said:\n%s", err, p.Lines())
	}
	r.Made, r.Sent, r.Ended, r.Resets = t.conns.Load(), t.sent.Load(), t.ended.Load(), t.resets.Load()
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
	return all
}

func mibOf(n int64) float64 { return float64(n) / mib }

const header = "| attack | connections | sent | connections ended, streams refused | memory: before, grew by, bound (MiB) | others: requests, failed | their p99: before, during, ratio | goroutines, descriptors: before, after |\n|---|---|---|---|---|---|---|---|\n"

func (r *result) print(w io.Writer) {
	fmt.Fprintf(w, "| %s | %d | %d | %d, %d | %.1f, %.1f, %.0f | %d, %d | %.1f ms, %.1f ms, %.1f | %d, %d; %d, %d |\n",
		r.Name, r.Conns, r.Sent, r.Ended, r.Resets, mibOf(r.Before.RSS), mibOf(r.grew()), mibOf(r.Bound), r.Under.Requests, r.Under.Failed,
		ms(r.Quiet.P99), ms(r.Under.P99), float64(r.Under.P99)/float64(max(r.Quiet.P99, 1)),
		r.Before.Goroutines, r.Before.Descriptors, r.After.Goroutines, r.After.Descriptors)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
