package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// patience bounds a job, generously.
const patience = time.Minute

// defaultRetries is how often the vendors' clients retry by default.
const defaultRetries = 2

// play is a row in progress: a provider, what is in front of it, and clients.
type play struct {
	row
	o        *options
	provider *provider
	tee      *tee
	through  vendor // by the way of the row
	direct   vendor // beside it, to compare latency
	proxied  bool

	mu sync.Mutex // guards all in row
}

// setUp starts what a row needs on b.
func setUp(ctx context.Context, b *rig.Bed, o *options, client int, retries int, w way) (*play, error) {
	v := vendors[client]
	p := &play{o: o, proxied: w.start != nil}
	p.row = row{Client: v.name, Through: w.name, Retries: retries > 0, judged: w.judge, paced: w.paced, short: o.short}
	p.provider = newProvider(v.wire, &o.schedule, o.requestLimit, o.tokenLimit)
	upstream := b.Serve(p.provider)
	addrs := []string{upstream}
	if p.proxied {
		var err error
		if addrs, err = w.start(ctx, b, upstream); err != nil {
			return nil, err
		}
	}
	p.tee = newTee(addrs...)
	p.through, p.direct = v.make(p.tee, retries), v.make(newTee(upstream), retries)
	return p, nil
}

// compareLatency measures pairs of calm streams, one by the way of the row and one direct.
func (p *play) compareLatency(ctx context.Context) error {
	if !p.proxied {
		return nil
	}
	var differences []float64
	warm := warmUps * len(p.tee.addrs)
	for n := range p.o.pairs + warm {
		var first [2]time.Duration
		for k := range 2 {
			which := (n + k) % 2
			r := do(ctx, []vendor{p.direct, p.through}[which], job{number: n, tokens: 10, stream: true}, true)
			if r.err != nil {
				return fmt.Errorf("%s: a calm stream fails: %w", p.title(), r.err)
			}
			first[which] = r.first
		}
		if n >= warm {
			differences = append(differences, float64(first[1]-first[0])/float64(time.Microsecond))
		}
	}
	median := rig.Median(differences)
	p.AddedLatency = &median
	return nil
}

// warmUps is how many pairs open the connections of each proxy.
const warmUps = 4

// arrivals returns when jobs come: at random, at twice the rate for two seconds of five, else at a third of it.
func (o *options) arrivals() (all []time.Duration) {
	r := rand.New(rand.NewPCG(o.seed, 1<<40))
	for at := time.Duration(0); ; {
		rate := o.rate * 2
		if at%(5*time.Second) >= 2*time.Second {
			rate = o.rate / 3
		}
		at += time.Duration(r.ExpFloat64() / rate * float64(time.Second))
		if at >= o.load {
			return all
		}
		all = append(all, at)
	}
}

// load sends the jobs and waits for all.
func (p *play) load(ctx context.Context) {
	var wait sync.WaitGroup
	start := time.Now()
	for n, at := range p.o.arrivals() {
		if !rig.Sleep(ctx, time.Until(start.Add(at))) {
			break
		}
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			j := p.o.schedule.jobOf(n)
			p.take(j, do(ctx, p.through, j, false))
		})
	}
	rig.Sleep(ctx, time.Until(start.Add(p.o.load)))
	p.provider.ledger.enter(func(e *entries) { e.ended = true })
	wait.Wait()
	p.Seconds = time.Since(start).Seconds()
}

// take counts the result of a job.
func (p *play) take(j job, a response) {
	var r record
	p.provider.ledger.note(j.number, func(known *record) { r = *known })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Jobs++
	switch {
	case a.err == nil:
		p.Good++
	case a.first > 0 && r.cut:
		p.CutAfter++
	case r.spent:
		p.Refused++
	case r.lost && a.first == 0:
		p.Lost++
	default:
		p.Failed++
		if len(p.Failures) < mostExamples {
			p.Failures = append(p.Failures, fmt.Sprintf("job %d after %d attempts: %v", j.number, r.attempts, a.err))
		}
	}
}

const mostExamples = 5

// conclude reads the provider's ledger. Call it when the clients are done.
func (p *play) conclude() *row {
	p.provider.open.Wait()
	r, got := &p.row, p.tee.got
	r.Compared = len(got)
	p.provider.ledger.enter(func(e *entries) {
		r.Requests, r.Limited, r.Early, r.Futile = e.requests, e.limited, e.early, e.futile
		r.Twice, r.Changed = e.twice(), e.changed(got)
		r.TokenShare = float64(e.tokens) / (p.o.tokenLimit * (1 + p.o.load.Seconds()))
		r.Faults = map[string]int{}
		for f := noFault + 1; f < faults; f++ {
			r.Faults[faultNames[f]] = e.faults[f]
		}
	})
	return r
}

// way is what stands between clients and the provider.
type way struct {
	name  string
	judge bool // its rows must keep the promises
	paced bool // it must use the rate limits and meet no 429s
	once  bool // it has a row only for clients with their retries on
	start func(ctx context.Context, b *rig.Bed, provider string) (addrs []string, err error)
}

const (
	direct     = "direct"
	haproxy    = "haproxy"
	retryproxy = "retryproxy"
	fleet      = "fleet"
)

// ways returns the ways of --through. direct has no start.
func (o *options) ways() (all []way) {
	for _, name := range o.through {
		all = append(all, map[string]way{
			direct:     {name: name},
			haproxy:    {name: name, start: startHAProxy},
			retryproxy: {name: name, judge: true, paced: true, start: o.startRetryproxy},
			fleet:      {name: name, judge: true, paced: true, once: true, start: o.startFleet},
		}[name])
	}
	return all
}

// spec has the settings that docs/how-to/llm.md recommends.
func (o *options) spec(provider string, more ...string) rig.Spec {
	env := append([]string{"RETRYPROXY_PROFILE=llm", "RETRYPROXY_RATE_LIMIT=auto", "RETRYPROXY_RATE_LIMIT_KEY=json:model"}, o.set...)
	return rig.Spec{Program: o.proxy, Upstream: "http://" + provider, Env: append(env, more...)}
}

// startRetryproxy starts one process.
func (o *options) startRetryproxy(ctx context.Context, b *rig.Bed, provider string) ([]string, error) {
	p, err := b.Start(ctx, o.spec(provider))
	if err != nil {
		return nil, err
	}
	return []string{p.Addr}, nil
}

// startFleet starts many processes that share through a Redis of their own.
func (o *options) startFleet(ctx context.Context, b *rig.Bed, provider string) ([]string, error) {
	redis, err := b.StartPeer(rig.Redis("redis-server"), "", nil)
	if err != nil {
		return nil, err
	}
	all, err := b.StartMany(ctx, o.spec(provider, "RETRYPROXY_POSITION=outbound", "RETRYPROXY_SHARED=redis://"+redis.Addr+"/0"), o.processes)
	if err != nil {
		return nil, err
	}
	return rig.Addrs(all), nil
}

// haproxyConfig retries what HAProxy can retry without the risk of a second bill. HAProxy cannot retry a 429,
// and it does not wait before it retries a 503.
const haproxyConfig = `global
  maxconn 4000
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  option forwardfor
  retries 3
  retry-on conn-failure 503
  http-reuse safe
listen llm
  bind {listen}
  server s1 {upstream}
`

func startHAProxy(_ context.Context, b *rig.Bed, provider string) ([]string, error) {
	p, err := b.StartPeer(rig.Peer{Program: haproxy, Args: []string{"-db", "-q", "-f"}, Config: haproxyConfig}, provider, nil)
	if err != nil {
		return nil, err
	}
	return []string{p.Addr}, nil
}
