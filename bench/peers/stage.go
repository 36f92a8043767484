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
	cores    rig.Division
	upstream *rig.Process
	note     func(format string, a ...any)
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
		p, err := s.proxy(name, s.cores.One)
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
