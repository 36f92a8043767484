// Command fleet puts fifty retryproxy processes in front of one rate-limited upstream and measures how they
// use its rate limit, each by itself and together through a redis-server.
//
//	go run ./bench/fleet --proxy bin/retryproxy --png fleet.png
//
// The upstream and the clients are in this process. The proxies and the engine are processes on loopback.
// The upstream allows 500 requests a second: a bucket of 250 tokens that gets 500 a second, evenly. Beyond
// that it responds with 429 and a Retry-After of at least one second. A thousand clients, shared out evenly, send a request, wait for the response and pause
// for a second on average. Without waits that is 1000 requests a second, twice the rate limit.
//
// The parts (--parts):
//
//	alone     default settings, nothing shared
//	pause     RETRYPROXY_RATE_LIMIT_PAUSE_KEY=route, nothing shared
//	shared    the same, and RETRYPROXY_SHARED
//	ratelimit the same, and RETRYPROXY_RATE_LIMIT=500/s
//	engine    the same, while the engine is flushed, paused, killed, started again
//	spread    one 429 with Retry-After: how long until no process sends
//	cost      CPU time per request of one process, with and without sharing
//
// The first seconds of each arm do not count. A request has failed if the client got neither 200 nor 429. It
// is late if nothing came within the client's patience.
//
// Exit codes: 0 all goals were met; 1 a part could not be played; 2 wrong arguments; 3 a goal was missed.
// With --short, a small and busy machine can reach the goals. Those that do not depend on the machine are the
// same.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/draw"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func main() { rig.Main("fleet", run) }

// options are the flags and constants.
type options struct {
	draw.Files
	parts         []string
	proxy, engine string // programs
	proxies       int
	seed          uint64
	short         bool // goals for a small and busy machine

	rateLimit, burst int           // requests a second that the upstream takes; tokens of its bucket
	answer           time.Duration // of a good response

	clients         int
	every, patience time.Duration

	length, settle time.Duration // of an arm; its first part, which is not counted
	pauses         int           // pauses whose spreading is timed
	pause          time.Duration // length of each, in whole seconds
	rounds         int           // of the comparison of CPU time
	turn           time.Duration // of each process in a round
}

// mostRateLimit is the highest that RETRYPROXY_RATE_LIMIT can be, a second.
const mostRateLimit = 10_000

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{
		proxies: 50, rateLimit: 500, burst: 250, answer: 5 * time.Millisecond, clients: 1000, every: time.Second, patience: 10 * time.Second,
		settle: 3 * time.Second, pauses: 10, pause: time.Second, rounds: 10, turn: 2 * time.Second,
	}
	f := rig.NewFlags("fleet", stderr, &o.proxy)
	o.Flags(f)
	f.Some(&o.parts, "parts", "", partNames(), "what is played; default all")
	f.BoolVar(&o.short, "short", false, "under a minute: shorter arms, cost only to see that it runs, and goals that a busy machine reaches")
	f.StringVar(&o.engine, "engine", "redis-server", "the program redis-server or valkey-server")
	f.Seed(&o.seed, 1)
	rig.Number(f, &o.length, "for", 0, 0, 10*time.Minute, "length of an arm; 0: 25 s, or 6 s with --short")
	f.Check(func(c *rig.Check) {
		parts, length := partNames(), 25*time.Second
		if o.short {
			parts, length = []string{"alone", "ratelimit", "engine", "spread", "cost"}, 6*time.Second
			o.settle, o.pauses, o.rounds, o.turn = 2*time.Second, 3, 1, 250*time.Millisecond
		}
		if len(o.parts) == 0 {
			o.parts = parts
		}
		o.length = cmp.Or(o.length, length)
		c.That(o.settle+time.Second <= o.length, "--for must be at least %v", o.settle+time.Second)
	})
	return o, f.Parse(args)
}

func (o *options) crowd() *rig.Crowd {
	return &rig.Crowd{N: o.clients, Every: o.every, Patience: o.patience, Seed: o.seed, Path: func(int) string { return path }}
}

// path is the path of all requests.
const path = "/limited"

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	return o.run(ctx, args, stdout, stderr)
}

func (o *options) run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	d := &document{Document: rig.NewDocument(args, rig.Version(o.proxy, "version"), rig.Version(o.engine, "--version")), RateLimit: o.rateLimit, Processes: o.proxies}
	progress := log.New(stderr, "", 0)
	for _, p := range parts {
		if !slices.Contains(o.parts, p.name) {
			continue
		}
		if err := p.play(ctx, o, d, progress); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	d.judge(o.short)
	d.Figure = d.figure()
	d.print(stdout)
	if err := o.Write(d, d.Figure, pictureSize); err != nil {
		return err
	}
	if slices.ContainsFunc(d.Goals, func(g goal) bool { return !g.Met }) {
		return rig.ErrMissed
	}
	return nil
}
