package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// arm runs the load and the steps of an arm, and sums up the time after the first seconds.
func (s *stage) arm(ctx context.Context) error {
	length := s.o.length
	if len(s.steps) > 0 { // takes twice as long, and longer if it is short
		if length = s.o.settle + 2*(s.o.length-s.o.settle); s.o.short {
			length += 6 * time.Second
		}
	}
	s.line.Begin()
	s.up.set(rig.NewBucket(float64(s.o.rateLimit), float64(s.o.burst), time.Now()))
	run, stop := context.WithTimeout(ctx, length)
	clients := s.o.crowd().Run(run, rig.Addrs(s.all), s.line)
	defer func() { stop(); clients.Wait() }()
	go func() {
		for n := time.Second; s.line.Until(run, n); n += time.Second {
			s.progress.Printf("%s", s.lastSecond(length))
		}
	}()
	if s.engine != nil {
		go s.engine.count(run, s.line)
	}
	if !s.line.Until(run, s.o.settle) {
		return ctx.Err()
	}
	before, err := s.cpu()
	if err != nil {
		return err
	}
	from := s.line.Since()
	r := &armResult{Name: s.name, About: s.about}
	if err := s.runSteps(run, length, r); err != nil {
		return err
	}
	if s.engine != nil && s.line.Until(run, length-300*time.Millisecond) {
		if r.Stock, err = s.engine.stock(ctx); err != nil {
			return fmt.Errorf("what the engine keeps: %w", err)
		}
	}
	<-run.Done()
	to := min(s.line.Since(), length)
	after, err := s.cpu()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.CPU = after - before
	r.sumUp(s, from, to)
	s.d.Arms = append(s.d.Arms, r)
	return err
}

// runSteps performs the steps of the arm, each at its time.
func (s *stage) runSteps(ctx context.Context, length time.Duration, r *armResult) error {
	for i, a := range s.steps {
		at := s.o.settle + time.Duration(a.at*float64(length-s.o.settle))
		if i == 0 {
			r.Periods = append(r.Periods, period{Name: "calm", From: s.o.settle.Seconds()})
		}
		if !s.line.Until(ctx, at) {
			return ctx.Err()
		}
		if err := a.do(ctx, s.engine); err != nil {
			return fmt.Errorf("the engine is %s: %w", a.name, err)
		}
		r.Periods = append(r.Periods, period{Name: a.name, From: at.Seconds()})
	}
	return nil
}

// pauseResult is one pause.
type pauseResult struct {
	Until  float64 `json:"ms_until_all_paused"` // from the 429 to the last request within the pause
	Others int     `json:"requests_meanwhile"`
	Before float64 `json:"requests_a_second_before"`
}

// spread measures how long it takes until all processes pause after one of them got a 429
// with Retry-After. The upstream has no rate limit. It answers one request with 429 and counts the
// requests that still arrive within the pause. The other processes can only know of the pause by sharing.
func (s *stage) spread(ctx context.Context) error {
	run, stop := context.WithCancel(ctx)
	clients := s.o.crowd().Run(run, rig.Addrs(s.all), s.line)
	defer func() { stop(); clients.Wait() }()
	for n := range s.o.pauses {
		// Paused requests return within a second after the pause.
		if !rig.Sleep(run, 3*time.Second) {
			return ctx.Err()
		}
		at := s.line.Since()
		before := s.line.Sum(at-time.Second, at)[sent]
		s.up.setTrap(s.o.pause)
		if !rig.Sleep(run, s.o.pause+500*time.Millisecond) {
			return ctx.Err()
		}
		t, err := s.up.sprung()
		if err != nil {
			return err
		}
		p := pauseResult{float64(t.last.Sub(t.at).Microseconds()) / 1e3, t.others, float64(before)}
		s.d.Spread = append(s.d.Spread, p)
		s.progress.Printf("spread   pause %d of %d: all paused after %.1f ms, %d requests came meanwhile (%.0f/s before)", n+1, s.o.pauses, p.Until, p.Others, p.Before)
	}
	_, err := s.cpu()
	return err
}

// costResult is the CPU time in microseconds that a request costs a process.
type costResult struct {
	Name string `json:"name"`
	To   string `json:"compared_to"` // the same without sharing
	rig.Figures
}

// costNames are the processes that are compared, each pair with each other.
var costNames = []string{"alone", "shared", "rate limit alone", "rate limit shared"}

// cost loads one process after another at full speed, round after round.
func (s *stage) cost(ctx context.Context) error {
	e, err := startEngine(&s.Bed, s.o.engine)
	if err != nil {
		return err
	}
	plenty := *s.o
	plenty.rateLimit = mostRateLimit
	all := map[string]*rig.Proxy{}
	for i, env := range [][]string{pausing(&plenty), append(pausing(&plenty), e.sharing("shared")...), limited(&plenty), append(limited(&plenty), e.sharing("ratelimit")...)} {
		one, err := s.startProxies(ctx, 1, env...)
		if err != nil {
			return err
		}
		all[costNames[i]] = one[0]
	}
	if err := e.awaitListeners(ctx, 1, 2); err != nil { // of two scopes
		return err
	}
	each := map[string][]float64{}
	err = rig.Rounds(s.o.rounds, costNames, func(round int, name string) error {
		us, err := s.turn(ctx, all[name])
		if err == nil && round >= 0 {
			each[name] = append(each[name], us)
			s.progress.Printf("cost     round %d of %d: %s %.1f µs per request", round+1, s.o.rounds, name, us)
		}
		return err
	})
	for i, name := range costNames {
		c := &costResult{Name: name, To: costNames[i&^1], Figures: rig.Figures{All: each[name]}}
		c.Conclude(each[c.To])
		s.d.Cost = append(s.d.Cost, c)
	}
	return err
}

// turn returns the CPU time of a process per request, in microseconds.
func (s *stage) turn(ctx context.Context, p *rig.Proxy) (float64, error) {
	before, err := p.CPU()
	if err != nil {
		return 0, err
	}
	line := rig.NewTimeline()
	run, stop := context.WithTimeout(ctx, s.o.turn)
	defer stop()
	(&rig.Crowd{N: 32, Patience: s.o.patience, Seed: s.o.seed, Path: s.o.crowd().Path}).Run(run, []string{p.Addr}, line).Wait()
	after, err := p.CPU()
	done := line.Sum(0, time.Hour)
	if err = cmp.Or(ctx.Err(), p.Alive(), err); err != nil {
		return 0, err
	}
	if done[rig.Good] == 0 || done[rig.Good] < requests(done) {
		return 0, fmt.Errorf("%d of %d requests were answered 200", done[rig.Good], requests(done))
	}
	return float64((after - before).Microseconds()) / float64(done[rig.Good]), nil
}
