package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// part is a part of the measurement.
type part struct {
	name     string
	about    string
	settings func(o *options) []string                 // of the proxies, without those of sharing
	shared   bool                                      // through an engine
	atOnce   bool                                      // the upstream answers at once
	steps    []step                                    // on the engine, in order
	measure  func(s *stage, ctx context.Context) error // nil means (*stage).arm
}

// step is something that happens to the engine.
type step struct {
	at   float64 // as a part of the counted time
	name string  // of the time that it begins
	do   func(ctx context.Context, e *engine) error
}

const pauseAll = "RETRYPROXY_RATE_LIMIT_PAUSE_KEY=route"

func pausing(*options) []string { return []string{pauseAll} }

func limited(o *options) []string {
	return []string{pauseAll, fmt.Sprintf("RETRYPROXY_RATE_LIMIT=%d/s", o.rateLimit)}
}

var parts = []part{
	{name: "alone", about: "default settings, nothing shared"},
	{name: "pause", about: "each process pauses all of its own requests after a 429, nothing shared", settings: pausing},
	{name: "shared", about: "rate-limit pauses are shared", shared: true, settings: pausing},
	{name: "ratelimit", about: "rate-limit pauses are shared, and the rate limit is kept together", shared: true, settings: limited},
	{name: "engine", about: "the same, and the engine is flushed, paused, killed and started again", shared: true, settings: limited, steps: []step{
		{0.12, "flushed", func(ctx context.Context, e *engine) error { return e.client.FlushAll(ctx).Err() }},
		{0.24, "paused", func(_ context.Context, e *engine) error { return e.pause() }},
		{0.44, "goes on", func(_ context.Context, e *engine) error { return e.goOn() }},
		{0.56, "killed", func(_ context.Context, e *engine) error { e.child.Kill(); return nil }},
		{0.76, "started again, empty", func(_ context.Context, e *engine) error { return e.start() }},
	}},
	{name: "spread", shared: true, settings: pausing, measure: (*stage).spread},
	{name: "cost", atOnce: true, measure: (*stage).cost},
}

func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// stage is a part in progress.
type stage struct {
	rig.Bed
	part
	o      *options
	d      *document
	up     *upstream
	engine *engine // nil: nothing is shared
	all    []*rig.Proxy
	line   *rig.Timeline

	progress *log.Logger
}

// play plays a part.
func (p part) play(ctx context.Context, o *options, d *document, progress *log.Logger) error {
	s := &stage{part: p, o: o, d: d, line: rig.NewTimeline(), progress: progress}
	defer s.End()
	s.up = &upstream{answer: o.answer, line: s.line}
	if p.atOnce {
		s.up.answer = 0
	}
	s.up.addr = s.Serve(s.up)
	if p.measure == nil || p.shared {
		if err := s.start(ctx); err != nil {
			return err
		}
	}
	if p.measure == nil {
		return s.arm(ctx)
	}
	return p.measure(s, ctx)
}

// start starts the engine and the fleet, and sends a first request through each process before the clients
// begin.
func (s *stage) start(ctx context.Context) (err error) {
	var env []string
	if s.settings != nil {
		env = s.settings(s.o)
	}
	if s.shared {
		if s.engine, err = startEngine(&s.Bed, s.o.engine); err != nil {
			return err
		}
		env = append(env, s.engine.sharing(s.name)...)
	}
	if s.all, err = s.startProxies(ctx, s.o.proxies, env...); err != nil {
		return err
	}
	if s.shared {
		if err := s.engine.awaitListeners(ctx, s.o.proxies, 1); err != nil {
			return err
		}
	}
	for _, addr := range rig.Addrs(s.all) {
		res, err := http.Get("http://" + addr + path)
		if err != nil {
			return fmt.Errorf("the first request: %w", err)
		}
		if _ = res.Body.Close(); res.StatusCode != http.StatusOK {
			return fmt.Errorf("the first request through %s: %s", addr, res.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	return nil
}

// startProxies starts proxies with the defaults for outbound, although the upstream is on loopback.
func (s *stage) startProxies(ctx context.Context, n int, settings ...string) ([]*rig.Proxy, error) {
	return s.StartMany(ctx, rig.Spec{Program: s.o.proxy, Upstream: "http://" + s.up.addr, Env: append(settings, "RETRYPROXY_POSITION=outbound")}, n)
}

// cpu returns the CPU time of all processes so far. It fails if one has ended.
func (s *stage) cpu() (sum time.Duration, err error) {
	for i, p := range s.all {
		d, err := p.CPU()
		if alive := p.Alive(); alive != nil {
			err = fmt.Errorf("process %d: %w", i, alive)
		}
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// lastSecond describes the last second.
func (s *stage) lastSecond(length time.Duration) string {
	at := s.line.Since().Truncate(time.Second)
	t := s.line.Sum(at-time.Second, at)
	return fmt.Sprintf("%-8s %3.0fs of %.0f  good %4d/s  429 at the upstream %4d/s (%4.1f %%)  failed %d  engine %4d commands/s",
		s.name, at.Seconds(), length.Seconds(), t[rig.Good], t[turnedAway], 100*limitedShare(t), failed(t), t[commands])
}

// Counts besides those of a rig.Crowd.
const (
	sent       = "sent"     // requests that came to the upstream
	turnedAway = "limited"  // of them, answered 429
	commands   = "commands" // that the engine got
	got429     = rig.Bad + "429"
)

// failed returns the number of responses other than 200 and 429, and of errors.
func failed(c rig.Counts) int { return c.Kinds(rig.Bad) - c[got429] }

// requests returns the number of requests that have ended.
func requests(c rig.Counts) int { return c[rig.Good] + c.Kinds(rig.Bad) + c[rig.Late] }

func limitedShare(c rig.Counts) float64 { return share(c[turnedAway], c[sent]) }

func share(part, whole int) float64 { return float64(part) / float64(max(whole, 1)) }

// kinds returns the failures by kind.
func kinds(c rig.Counts) map[string]int {
	all := map[string]int{}
	for name, n := range c {
		if kind, is := strings.CutPrefix(name, rig.Bad); is && name != got429 {
			all[kind] = n
		}
	}
	return all
}
