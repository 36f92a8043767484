package main

import (
	"fmt"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// work is what is sent in a case that counts CPU time.
type work struct {
	path        string
	connections int
	method      string
	body        int
	distinct    bool
}

func (w *work) load(s *stage, to *rig.Process) *rig.Load {
	return &rig.Load{URL: to.URL(w.path), Connections: w.connections, For: s.o.slice, Method: w.method, BodyBytes: w.body, Distinct: w.distinct, Cores: s.cores.Load}
}

// cost measures CPU time per request, all proxies in turn.
func (s *stage) cost(r *result, w *work) error {
	g, err := s.all()
	if err != nil {
		return err
	}
	defer g.end()
	for _, p := range g { // connections are made, buffers found
		if _, err := w.load(s, p).Send(s.ctx); err != nil {
			return err
		}
	}
	for round := range s.o.rounds {
		for _, name := range s.order(round) {
			us, sent, err := g[name].Cost(s.ctx, w.load(s, g[name]))
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			r.add(name, us)
			r.sent(name, sent)
		}
		s.note("  round %d of %d: %s", round+1, s.o.rounds, r.last())
	}
	return nil
}

// latency measures what each proxy adds to the median of a single connection.
func (s *stage) latency(r *result) error {
	g, err := s.all()
	if err != nil {
		return err
	}
	defer g.end()
	w := &work{path: "/small", connections: 1}
	for round := range s.o.rounds {
		direct, err := w.load(s, s.upstream).Send(s.ctx)
		if err != nil {
			return err
		}
		for _, name := range s.order(round) {
			sent, err := w.load(s, g[name]).Send(s.ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			r.add(name, float64((sent.P50-direct.P50).Nanoseconds())/1e3)
			r.sent(name, sent)
		}
		s.note("  round %d of %d: %s", round+1, s.o.rounds, r.last())
	}
	return nil
}

// scaling compares retryproxy on two cores with itself on one. Where the load
// has no cores of its own then, throughput tells nothing, and what two cores
// could do is told by the CPU time that a request takes on each: 2 x one / two.
func (s *stage) scaling(r *result) error {
	if !s.cores.Beside {
		r.Note = "from CPU time per request, since the load shares the two cores"
	}
	g := group{}
	defer func() { g.end() }()
	for name, cores := range map[string][]int{"one core": s.cores.One, "two cores": s.cores.Two} {
		p, err := s.proxy(rig.Retryproxy, cores)
		if err != nil {
			return err
		}
		g[name] = p
	}
	w := &work{path: "/small", connections: 256}
	if s.cores.Beside {
		s.cores.Load = s.cores.Load[1:]
	}
	for round := range s.o.rounds {
		var us, rate [2]float64
		for i, name := range []string{"one core", "two cores"} {
			cpu, sent, err := g[name].Cost(s.ctx, w.load(s, g[name]))
			if err != nil {
				return err
			}
			us[i], rate[i] = cpu, float64(sent.Requests)
		}
		x := 2 * us[0] / us[1]
		if s.cores.Beside {
			x = rate[1] / rate[0]
		}
		r.add(rig.Retryproxy, x)
		s.note("  round %d of %d: %s", round+1, s.o.rounds, r.last())
	}
	return nil
}

// settle is how long a process is left alone before its memory is read.
const settle = 3 * time.Second
