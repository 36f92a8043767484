package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// measure goes along all axes that were asked for.
func (d *document) measure(ctx context.Context, o *options, stderr io.Writer) error {
	cores := rig.Divide()
	up, err := rig.StartUpstream(cores.Load)
	if err != nil {
		return fmt.Errorf("upstream: %w", err)
	}
	defer up.End()
	s := &stage{ctx: ctx, o: o, cores: cores, upstream: up}
	for i := range axes {
		a := &axes[i]
		if len(o.only) > 0 && !slices.Contains(o.only, a.name) {
			continue
		}
		g := &growth{Name: a.name, Label: a.label}
		d.Growths = append(d.Growths, g)
		for _, n := range a.values {
			p, err := s.point(a, n)
			if err != nil {
				return fmt.Errorf("%s %d: %w", a.name, n, err)
			}
			g.Points = append(g.Points, *p)
			fmt.Fprintf(stderr, "%s %d: %.1f us, ratio to HAProxy %.2f\n", a.name, n, p.Ours, p.Ratio)
		}
	}
	return nil
}

// stage is what every point stands on.
type stage struct {
	ctx      context.Context
	o        *options
	cores    rig.Division
	upstream *rig.Process
}

// point measures both proxies in turn, each a fresh process.
func (s *stage) point(a *axis, n int) (*point, error) {
	dir, err := os.MkdirTemp("", "growth")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var env []string
	if a.env != nil {
		if env, err = a.env(n, dir); err != nil {
			return nil, err
		}
	}
	ours, err := s.start(rig.Retryproxy, env)
	if err != nil {
		return nil, err
	}
	defer ours.End()
	var peer *rig.Process
	if a.peer {
		if peer, err = s.start(rig.HAProxy, nil); err != nil {
			return nil, err
		}
		defer peer.End()
	}
	return s.rounds(a.load(n), n, ours, peer)
}

func (s *stage) start(name string, env []string) (*rig.Process, error) {
	return rig.StartProxy(name, &rig.Spec{Upstream: s.upstream.Addr, Cores: s.cores.One, Program: s.o.proxy, Env: env})
}

// rounds gives every proxy its turns, the first of which only warms it up.
func (s *stage) rounds(load *rig.Load, value int, ours, peer *rig.Process) (*point, error) {
	var us, theirs, ratios []float64
	failed, requests := 0, 0
	for round := range s.o.rounds + 1 {
		cost, sent, err := s.turn(load, ours)
		if err != nil {
			return nil, err
		}
		beside := 0.0
		if peer != nil {
			if beside, _, err = s.turn(load, peer); err != nil {
				return nil, fmt.Errorf("haproxy: %w", err)
			}
		}
		if round == 0 {
			continue
		}
		us, failed, requests = append(us, cost), failed+sent.Failed, requests+sent.Requests
		if beside > 0 {
			theirs, ratios = append(theirs, beside), append(ratios, cost/beside)
		}
	}
	return &point{Value: value, Ours: rig.Median(us), Peer: rig.Median(theirs), Ratio: rig.Median(ratios),
		Failed: float64(failed) / float64(max(requests, 1))}, nil
}

func (s *stage) turn(load *rig.Load, p *rig.Process) (float64, *rig.Result, error) {
	l := *load
	l.URL, l.For, l.Cores = p.URL(load.URL), s.o.slice+time.Duration(l.Connections/1000)*time.Second, s.cores.Load // many take longer to be made
	return p.Cost(s.ctx, &l)
}
