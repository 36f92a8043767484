package main

import (
	"context"
	"fmt"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/httpclient"
)

// rateResult is what the engine is asked at one request rate.
type rateResult struct {
	RateLimit int                `json:"rate_limit_per_second"` // 0: nothing is shared
	Requests  float64            `json:"requests_per_second"`   // of clients, answered
	Commands  float64            `json:"commands_per_second"`
	By        map[string]float64 `json:"commands_per_second_by_name"`
	CPU       float64            `json:"engine_cpu_share"`  // of one core
	Proxies   float64            `json:"proxies_cpu_share"` // of one core, all together
}

// clientsOfRate are how many clients ask in each step, as a part of all.
var clientsOfRate = []float64{0, 0.1, 1, 2}

// rates counts the engine's commands at several request rates: with a rate limit
// that there is always enough of, and with one that is used up. Before that it
// measures what the processes need when they share nothing.
func rates(ctx context.Context, o *options, up *upstream, tell func(string)) ([]rateResult, error) {
	var all []rateResult
	for _, rateLimit := range []int{0, mostRateLimit, o.rateLimit} {
		with := *o
		with.rateLimit = rateLimit
		a := &arm{name: "rates", shared: true, env: rateLimitSettings}
		if rateLimit == 0 {
			a = &arm{name: "rates"}
		}
		one, err := a.rates(ctx, &with, up, tell)
		if err != nil {
			return nil, fmt.Errorf("with a rate limit of %d/s: %w", rateLimit, err)
		}
		all = append(all, one...)
	}
	return all, nil
}

func (a *arm) rates(ctx context.Context, o *options, up *upstream, tell func(string)) ([]rateResult, error) {
	s, err := a.setUp(ctx, o, up)
	if err != nil {
		return nil, err
	}
	defer s.end()
	var all []rateResult
	for _, part := range clientsOfRate {
		c := o.crowd()
		c.n = int(part * float64(c.n))
		r, err := s.rate(ctx, c)
		if err != nil {
			return nil, err
		}
		all = append(all, *r)
		tell(fmt.Sprintf("rates    rate limit %d/s, %.0f requests/s: %.0f commands/s at the engine", o.rateLimit, r.Requests, r.Commands))
	}
	return all, s.fleet.alive()
}

// rate measures one step.
func (s *stage) rate(ctx context.Context, c *crowd) (*rateResult, error) {
	run, stop := context.WithCancel(ctx)
	r := newRecord()
	clients := c.call(run, s.fleet.addrs(), r)
	defer func() { stop(); clients.Wait() }()
	if !httpclient.Sleep(run, s.o.settle) {
		return nil, ctx.Err()
	}
	before, err := s.usage(run)
	if err != nil {
		return nil, err
	}
	from := r.since()
	if !httpclient.Sleep(run, s.o.step) {
		return nil, ctx.Err()
	}
	after, err := s.usage(run)
	if err != nil {
		return nil, err
	}
	took := r.since() - from
	done := r.sum(from, from+took)
	if done.Failed > 0 {
		return nil, fmt.Errorf("%d of %d requests failed: %v", done.Failed, done.requests(), r.failures())
	}
	all := after.since(before, float64(done.requests()), took)
	all.RateLimit = s.o.rateLimit
	return all, nil
}

// usage is what was used since the start.
type usage struct {
	commands        map[string]int
	engine, proxies time.Duration
}

func (s *stage) usage(ctx context.Context) (*usage, error) {
	proxies, err := s.fleet.cpu()
	u := &usage{proxies: proxies}
	if err != nil || s.engine == nil {
		return u, err
	}
	if u.commands, err = s.engine.info(ctx, "commandstats"); err != nil {
		return nil, err
	}
	u.engine, err = s.engine.cpu()
	return u, err
}

// since is what was used after before. Looking costs one INFO, which is left out.
func (u *usage) since(before *usage, requests float64, took time.Duration) *rateResult {
	r := &rateResult{Requests: requests / took.Seconds(), By: map[string]float64{},
		CPU: (u.engine - before.engine).Seconds() / took.Seconds(), Proxies: (u.proxies - before.proxies).Seconds() / took.Seconds()}
	for name, n := range u.commands {
		if n -= before.commands[name]; name == "cmdstat_info" {
			n--
		}
		if n > 0 {
			r.By[name[len("cmdstat_"):]] = float64(n) / took.Seconds()
			r.Commands += float64(n) / took.Seconds()
		}
	}
	return r
}
