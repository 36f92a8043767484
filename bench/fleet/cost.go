package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	rig "github.com/retryproxy/retryproxy/bench/internal/oldrig"
)

// costResult is the CPU time that a request costs a process, with and without
// sharing.
type costResult struct {
	Name   string    `json:"name"`
	Each   []float64 `json:"microseconds_per_request"` // by rounds
	Median float64   `json:"median_microseconds"`
	To     string    `json:"compared_to"` // the same without sharing
	Ratio  float64   `json:"ratio"`       // to that, median of the ratios within the rounds
	Low    float64   `json:"ratio_lowest"`
	High   float64   `json:"ratio_highest"`
}

// costClients ask one process without a pause.
const costClients = 32

// cost loads one process after the other, as fast as it goes, and again.
func cost(ctx context.Context, o *options, up *upstream, tell func(string)) ([]*costResult, error) {
	e, err := startEngine(o.engine)
	if err != nil {
		return nil, err
	}
	defer e.end()
	plenty := *o
	plenty.rateLimit, plenty.proxies = mostRateLimit, 1
	rateLimit := rateLimitSettings(&plenty)
	env := map[string][]string{
		"alone": {holdAll}, "shared": append(sharing(e, "shared"), holdAll),
		"rate limit alone": rateLimit, "rate limit shared": append(sharing(e, "ratelimit"), rateLimit...),
	}
	processes := map[string]*rig.Process{}
	for _, name := range costNames {
		f, err := startFleet(&plenty, up, env[name]...)
		if err != nil {
			return nil, err
		}
		defer f.end()
		processes[name] = f.all[0]
	}
	if err := e.awaitChannels(ctx, 2); err != nil { // of two scopes
		return nil, err
	}
	each := map[string][]float64{}
	for round := range o.rounds + 1 {
		for i := range costNames {
			name := costNames[(i+round)%len(costNames)]
			us, err := turn(ctx, o, processes[name])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if round > 0 { // the first one is for connections and buffers
				each[name] = append(each[name], us)
			}
		}
		tell(fmt.Sprintf("cost     round %d of %d: %s µs per request", round, o.rounds, lastOf(each)))
	}
	return compare(each), nil
}

// turn is a process's CPU time per request in microseconds.
func turn(ctx context.Context, o *options, p *rig.Process) (float64, error) {
	before, err := p.CPU()
	if err != nil {
		return 0, errors.Join(err, p.Alive())
	}
	r := newRecord()
	run, stop := context.WithTimeout(ctx, o.turn)
	defer stop()
	(&crowd{n: costClients, patience: o.patience, seed: o.seed}).call(run, []string{p.Addr}, r).Wait()
	after, err := p.CPU()
	if err = firstError(ctx.Err(), err, p.Alive()); err != nil {
		return 0, err
	}
	done := r.sum(0, time.Hour)
	if done.Good == 0 || done.Good < done.requests() {
		return 0, fmt.Errorf("%d of %d requests were answered 200", done.Good, done.requests())
	}
	return float64((after - before).Microseconds()) / float64(done.Good), nil
}

// costNames are what is compared, each two with each other.
var costNames = []string{"alone", "shared", "rate limit alone", "rate limit shared"}

// compare puts each beside the same without sharing.
func compare(each map[string][]float64) []*costResult {
	var all []*costResult
	for i, name := range costNames {
		c := &costResult{Name: name, Each: each[name], Median: rig.Median(each[name]), To: costNames[i&^1]}
		var ratios []float64
		for n, v := range each[name] {
			ratios = append(ratios, v/each[c.To][n])
		}
		c.Ratio, c.Low, c.High = rig.Median(ratios), slices.Min(ratios), slices.Max(ratios)
		all = append(all, c)
	}
	return all
}

func lastOf(each map[string][]float64) string {
	var parts []string
	for _, name := range costNames {
		if v := each[name]; len(v) > 0 {
			parts = append(parts, fmt.Sprintf("%s %.1f", name, v[len(v)-1]))
		}
	}
	return strings.Join(parts, ", ")
}
