package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/httpclient"
)

// arm is a fleet with some settings under the same load as all others.
type arm struct {
	name   string
	says   string
	shared bool
	env    func(o *options) []string // besides those of sharing
	acts   []act                     // on the engine, in order
}

// act is something that happens to the engine.
type act struct {
	at   float64 // as a part of the counted time of the arm
	name string  // of the time that it begins
	do   func(ctx context.Context, e *engine) error
}

var arms = []arm{
	{name: "alone", says: "default settings, nothing shared"},
	{name: "pause", says: "each process holds all of its own requests after a 429, nothing shared",
		env: func(*options) []string { return []string{holdAll} }},
	{name: "shared", says: "rate-limit pauses are shared", shared: true,
		env: func(*options) []string { return []string{holdAll} }},
	{name: "ratelimit", says: "rate-limit pauses are shared, and the rate limit is kept together", shared: true, env: rateLimitSettings},
	{name: "engine", says: "the same, and the engine is flushed, paused, killed and started again", shared: true, env: rateLimitSettings, acts: []act{
		{0.12, "flushed", func(ctx context.Context, e *engine) error { return e.flush(ctx) }},
		{0.24, "paused", func(_ context.Context, e *engine) error { return e.pause() }},
		{0.44, "goes on", func(_ context.Context, e *engine) error { return e.goOn() }},
		{0.56, "killed", func(_ context.Context, e *engine) error { e.kill(); return nil }},
		{0.76, "started again, empty", func(_ context.Context, e *engine) error { return e.start() }},
	}},
}

const holdAll = "RETRYPROXY_RATE_LIMIT_PAUSE_KEY=route"

func rateLimitSettings(o *options) []string {
	return []string{holdAll, fmt.Sprintf("RETRYPROXY_RATE_LIMIT=%d/s", o.rateLimit)}
}

func sharing(e *engine, scope string) []string {
	return []string{"RETRYPROXY_SHARED=redis://" + e.addr + "/0?scope=" + scope}
}

// stage is an arm in flight.
type stage struct {
	*arm
	o      *options
	up     *upstream
	engine *engine // nil: nothing is shared
	fleet  *fleet
	record *record
	times  []period
}

// setUp starts what an arm needs.
func (a *arm) setUp(ctx context.Context, o *options, up *upstream) (*stage, error) {
	s := &stage{arm: a, o: o, up: up}
	if err := s.start(ctx); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

func (s *stage) start(ctx context.Context) (err error) {
	var env []string
	if s.env != nil {
		env = s.env(s.o)
	}
	if s.shared {
		if s.engine, err = startEngine(s.o.engine); err != nil {
			return err
		}
		env = append(env, sharing(s.engine, s.name)...)
	}
	if s.fleet, err = startFleet(s.o, s.up, env...); err != nil {
		return err
	}
	if s.shared {
		err = s.engine.awaitListeners(ctx, s.o.proxies)
	}
	return firstError(err, s.warm(ctx))
}

// warm has every process forward a request, so that none is at its first when
// the clients begin.
func (s *stage) warm(ctx context.Context) error {
	for _, addr := range s.fleet.addrs() {
		c := httpclient.Client{Addr: addr, Request: request}
		status, err := c.Exchange(ctx, time.Now().Add(s.o.patience))
		c.HangUp()
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("the first request through %s: status %d, %w", addr, status, err)
		}
	}
	return nil
}

func (s *stage) end() {
	if s.fleet != nil {
		s.fleet.end()
	}
	if s.engine != nil {
		s.engine.end()
	}
}

// play plays an arm.
func (a *arm) play(ctx context.Context, o *options, up *upstream, tell func(*stage)) (*armResult, error) {
	s, err := a.setUp(ctx, o, up)
	if err != nil {
		return nil, err
	}
	defer s.end()
	s.record = newRecord()
	up.limit(o.newRateLimit(time.Now()), s.record)
	defer up.limit(unlimited{}, nil)
	run, stop := context.WithTimeout(ctx, s.length())
	defer stop()
	clients := o.crowd().call(run, s.fleet.addrs(), s.record)
	defer func() { stop(); s.fleet.end(); clients.Wait() }()
	go s.follow(run, tell)
	if s.engine != nil {
		go s.engine.count(run, s.record)
	}
	return s.measure(run, ctx)
}

// length is that of the arm; one in which things happen takes twice as long.
func (s *stage) length() time.Duration {
	if len(s.acts) == 0 {
		return s.o.length
	}
	return s.o.settle + 2*(s.o.length-s.o.settle) + longer(s.o)
}

// longer makes room for what happens in a short arm.
func longer(o *options) time.Duration {
	if o.short {
		return 6 * time.Second
	}
	return 0
}

// measure waits for the settled part, makes what is to happen in it, and sums up.
func (s *stage) measure(run, ctx context.Context) (*armResult, error) {
	if !s.until(run, s.o.settle) {
		return nil, ctx.Err()
	}
	before, err := s.fleet.cpu()
	if err != nil {
		return nil, err
	}
	from := s.record.since()
	if err := s.happen(run); err != nil {
		return nil, err
	}
	var kept *stock
	if s.engine != nil && s.until(run, s.length()-300*time.Millisecond) {
		if kept, err = s.engine.stock(ctx); err != nil {
			return nil, fmt.Errorf("what the engine keeps: %w", err)
		}
	}
	<-run.Done()
	to := min(s.record.since(), s.length())
	after, err := s.fleet.cpu()
	if err = firstError(ctx.Err(), err, s.fleet.alive()); err != nil {
		return nil, err
	}
	r := newArmResult(s, from, to)
	r.Stock, r.CPU = kept, after-before
	return r, nil
}

func firstError(errs ...error) error {
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return nil
	}
	return errs[i]
}

// until waits for a time since the beginning; no when ctx ended before.
func (s *stage) until(ctx context.Context, at time.Duration) bool {
	return httpclient.Sleep(ctx, at-s.record.since())
}

// period is a part of an arm in which the engine was in one state.
type period struct {
	name string
	from time.Duration
}

// happen makes the arm's acts, each at its time.
func (s *stage) happen(ctx context.Context) error {
	s.times = append(s.times, period{"calm", s.o.settle})
	for _, a := range s.acts {
		at := s.o.settle + time.Duration(a.at*float64(s.length()-s.o.settle))
		if !s.until(ctx, at) {
			return ctx.Err()
		}
		if err := a.do(ctx, s.engine); err != nil {
			return fmt.Errorf("the engine is %s: %w", a.name, err)
		}
		s.times = append(s.times, period{a.name, at})
	}
	return nil
}

// follow tells each second until ctx ends.
func (s *stage) follow(ctx context.Context, tell func(*stage)) {
	for n := 1; s.until(ctx, time.Duration(n)*time.Second); n++ {
		tell(s)
	}
}

// line is what happened in the last second.
func (s *stage) line() string {
	at := s.record.since().Truncate(time.Second)
	t := s.record.sum(at-time.Second, at)
	return fmt.Sprintf("%-8s %3.0fs of %.0f  good %4d/s  429 at the upstream %4d/s (%4.1f %%)  failed %d  engine %4d commands/s",
		s.name, at.Seconds(), s.length().Seconds(), t.Good, t.Limited, 100*t.limitedShare(), t.Failed, t.Commands)
}
