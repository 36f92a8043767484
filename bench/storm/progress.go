package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/show"
)

// progress tells each second what happened in it.
type progress struct {
	*show.Progress
	name string
}

// follow tells until ctx ends.
func (p *progress) follow(ctx context.Context, s *stage) {
	for n := 1; s.wait(ctx, time.Duration(n)*time.Second); n++ {
		p.Line(p.name + "  " + s.line(time.Duration(n)*time.Second))
	}
	p.Clear()
}

// line is what happened in the second that ends at at.
func (s *stage) line(at time.Duration) string {
	t := s.record.sum(at-time.Second, at)
	line := fmt.Sprintf("%3ds %-5s good %4d  bad %4d  late %4d  server %5d", at/time.Second, s.phase(at), t.Good, t.Bad, t.Late, s.load.Load())
	return line + s.record.breakers()
}

func (s *stage) phase(at time.Duration) string {
	switch {
	case at <= s.o.peace:
		return "peace"
	case at <= s.o.peace+s.o.down:
		return "down"
	}
	return "after"
}

// breakers is the last sample in short; "" without one.
func (r *record) breakers() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.proxy) == 0 {
		return ""
	}
	v := r.proxy[len(r.proxy)-1].Values
	var states []string
	for _, s := range []string{"closed", "open", "half_open", "slow_start"} {
		if n := v["breaker_state/"+s]; n > 0 {
			states = append(states, fmt.Sprintf("%s:%.0f", s, n))
		}
	}
	return fmt.Sprintf("  breaker %s  limit %.0f  held %.0f", strings.Join(states, ","), v["concurrency_limit"], v["queued_requests"])
}
