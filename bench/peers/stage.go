package main

import (
	"context"
	"fmt"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// stage is what every case stands on.
type stage struct {
	ctx      context.Context
	o        *options
	cores    division
	upstream *rig.Process
	note     func(format string, a ...any)
}

// division is which cores are whose.
type division struct {
	one  []int // a proxy on one core
	two  []int // a proxy on two
	load []int // upstream and wrk
	// beside: the load has cores of its own also beside a proxy on two.
	beside bool
}

func divide() division {
	all := rig.Cores()
	d := division{one: all[:1], two: all[:min(2, len(all))], load: all, beside: len(all) >= 4}
	if len(all) > 1 {
		d.load = all[1:]
	}
	return d
}

// proxy starts one of the proxies.
func (s *stage) proxy(name string, cores []int, env ...string) (*rig.Process, error) {
	return rig.StartProxy(name, &rig.Spec{Upstream: s.upstream.Addr, Cores: cores, Program: s.o.proxy, Env: env})
}

// group are proxies that run beside each other.
type group map[string]*rig.Process

func (g group) end() {
	for _, p := range g {
		p.End()
	}
}

// all starts every proxy that takes part.
func (s *stage) all() (group, error) {
	g := group{}
	for _, name := range s.o.proxies() {
		p, err := s.proxy(name, s.cores.one)
		if err != nil {
			g.end()
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		g[name] = p
	}
	return g, nil
}

// order is the order of a round: another one begins each time.
func (s *stage) order(round int) []string {
	all := s.o.proxies()
	k := round % len(all)
	return append(append([]string{}, all[k:]...), all[:k]...)
}
