package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/draw"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func main() { rig.Main("fleet", run) }

// options are all the constants.
type options struct {
	draw.Files
	parts         []string
	proxy, engine string // programs
	proxies       int
	seed          uint64
	short         bool // goals that a small and busy machine reaches too

	rateLimit, burst int           // requests a second that the upstream takes; tokens of its bucket
	window           string        // how it counts
	answer           time.Duration // of a good response

	clients         int
	every, patience time.Duration

	length, settle time.Duration // of an arm; its first part, which is not counted
	holds          int           // pauses of which the spreading is timed
	pause          time.Duration // length of each
	rounds         int           // of the comparison of CPU time
	turn           time.Duration // of each process in a round
}

// mostRateLimit is the highest that RETRYPROXY_RATE_LIMIT can be, a second.
const mostRateLimit = 10_000

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := rig.NewFlags("fleet", stderr, &o.proxy)
	o.Flags(f)
	f.Some(&o.parts, "parts", "", partNames(), "what is played; default all")
	f.BoolVar(&o.short, "short", false, "under a minute: shorter arms, cost only to see that it runs, and goals that a busy machine reaches")
	f.StringVar(&o.engine, "engine", "redis-server", "the program redis-server or valkey-server")
	rig.Number(f, &o.proxies, "proxies", 50, 1, 200, "processes of retryproxy")
	f.Seed(&o.seed, 1)
	rig.Number(f, &o.rateLimit, "ratelimit", 500, 1, mostRateLimit, "requests a second that the upstream takes from all together")
	f.One(&o.window, "window", "bucket", []string{"bucket", "second"}, "how the upstream counts: tokens that come evenly, or anew in each second of the clock")
	rig.Number(f, &o.burst, "burst", 250, 1, 100_000, "bucket: tokens that it holds")
	rig.Number(f, &o.clients, "clients", 1000, 1, 10_000, "clients, each with one request at a time")
	rig.Number(f, &o.holds, "holds", 10, 1, 100, "hold: how many pauses are timed")
	rig.Number(f, &o.rounds, "rounds", 10, 1, 100, "cost: rounds of one turn each")
	for _, d := range []struct {
		p           *time.Duration
		name, about string
		value       time.Duration
	}{
		{&o.answer, "answer", "time of a good response", 5 * time.Millisecond},
		{&o.every, "every", "mean of the exponential pause of a client after a response", time.Second},
		{&o.patience, "patience", "a response that takes longer counts as late", 10 * time.Second},
		{&o.length, "for", "length of an arm", 25 * time.Second},
		{&o.settle, "settle", "the first part of an arm, which is not counted", 3 * time.Second},
		{&o.pause, "pause", "hold: length of a pause, whole seconds", time.Second},
		{&o.turn, "turn", "cost: time of a turn", 2 * time.Second},
	} {
		rig.Number(f, d.p, d.name, d.value, time.Millisecond, 10*time.Minute, d.about)
	}
	f.Check(func(c *rig.Check) {
		o.shorten(f)
		c.That(o.pause%time.Second == 0, "--pause must be whole seconds, as a Retry-After is")
		c.That(o.settle+time.Second <= o.length, "--for must be at least a second longer than --settle")
	})
	return o, f.Parse(args)
}

// shorten sets what follows from --parts and --short, unless it is given.
func (o *options) shorten(f *rig.Flags) {
	all := partNames()
	if o.short {
		all = []string{"alone", "ratelimit", "engine", "hold", "cost"}
		for name, set := range map[string]func(){
			"for": func() { o.length = 6 * time.Second }, "settle": func() { o.settle = 2 * time.Second }, "rounds": func() { o.rounds = 1 },
			"turn": func() { o.turn = 250 * time.Millisecond }, "holds": func() { o.holds = 3 },
		} {
			if !f.Given(name) {
				set()
			}
		}
	}
	if len(o.parts) == 0 {
		o.parts = all
	}
}

func (o *options) crowd() *rig.Crowd {
	return &rig.Crowd{N: o.clients, Every: o.every, Patience: o.patience, Seed: o.seed, Path: func(int) string { return path }}
}

// path is what all clients ask for.
const path = "/limited"

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	d := &document{Document: rig.NewDocument(args, rig.Version(o.proxy, "version"), rig.Version(o.engine, "--version")), RateLimit: o.rateLimit, Processes: o.proxies}
	told := rig.NewProgress(stderr)
	for _, p := range parts {
		if !slices.Contains(o.parts, p.name) {
			continue
		}
		if err := p.play(ctx, o, d, told); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	told.End()
	d.judge(o.short)
	d.Figure = d.figure()
	d.tell(stdout)
	if err := o.Write(d, d.Figure, pictureSize); err != nil {
		return err
	}
	if slices.ContainsFunc(d.Goals, func(g goal) bool { return !g.Met }) {
		return rig.ErrMissed
	}
	return nil
}
