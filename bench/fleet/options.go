package main

import (
	"flag"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/command"
)

// options are all the constants.
type options struct {
	parts   []string // what is played, of partNames
	proxy   string   // the program
	engine  string   // the program
	proxies int
	seed    uint64
	json    string
	png     string
	short   bool // goals that a small and busy machine reaches as well

	rateLimit int           // requests a second that the upstream takes
	window    string        // one of windows
	burst     int           // of a bucket
	answer    time.Duration // time of a good response

	clients  int
	every    time.Duration
	patience time.Duration

	length time.Duration // of an arm, settle included
	settle time.Duration // from the first request on, not counted
	holds  int           // pauses of which the spreading is timed
	pause  time.Duration // length of each
	step   time.Duration // of each request rate
	rounds int           // of the comparison of CPU time
	turn   time.Duration // of each process in a round
}

// The ways in which the upstream counts.
const (
	byBucket = "bucket"
	bySecond = "second"
)

// mostRateLimit is the highest that RETRYPROXY_RATE_LIMIT can be, a second.
const mostRateLimit = 10_000

// parse reads the arguments; flag.ErrHelp when help was printed.
func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("fleet", flag.ContinueOnError)
	f.SetOutput(stderr)
	parts := f.String("parts", "", "what is played, one or several of "+strings.Join(partNames(), ",")+"; default all")
	f.BoolVar(&o.short, "short", false, "under a minute: shorter arms, without rates, cost only to see that it runs, and goals that a busy machine reaches")
	f.StringVar(&o.proxy, "proxy", "bin/retryproxy", "the program retryproxy")
	f.StringVar(&o.engine, "engine", "redis-server", "the program redis-server or valkey-server")
	f.IntVar(&o.proxies, "proxies", 50, "processes of retryproxy")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the clients' pauses")
	f.StringVar(&o.json, "json", "", "write everything that was measured to this file")
	f.StringVar(&o.png, "png", "", "draw the arms over each other into this file")
	f.IntVar(&o.rateLimit, "ratelimit", 500, "requests a second that the upstream takes from all together")
	f.StringVar(&o.window, "window", byBucket, "how the upstream counts: bucket (tokens that come evenly) or second (anew in each second of the clock)")
	f.IntVar(&o.burst, "burst", 250, "bucket: tokens that it holds")
	f.DurationVar(&o.answer, "answer", 5*time.Millisecond, "time of a good response")
	f.IntVar(&o.clients, "clients", 1000, "clients, each with one request at a time")
	f.DurationVar(&o.every, "every", time.Second, "mean of the exponential pause of a client after a response")
	f.DurationVar(&o.patience, "patience", 10*time.Second, "a response that takes longer counts as failed")
	f.DurationVar(&o.length, "for", 25*time.Second, "length of an arm")
	f.DurationVar(&o.settle, "settle", 3*time.Second, "the first part of an arm, which is not counted")
	f.IntVar(&o.holds, "holds", 10, "hold: how many pauses are timed")
	f.DurationVar(&o.pause, "pause", time.Second, "hold: length of a pause, whole seconds")
	f.DurationVar(&o.step, "step", 5*time.Second, "rates: time for each request rate")
	f.IntVar(&o.rounds, "rounds", 10, "cost: rounds of one turn each")
	f.DurationVar(&o.turn, "turn", 2*time.Second, "cost: time of a turn")
	return o, command.Parse(f, args, func() error {
		o.choose(f, *parts)
		return o.validate()
	})
}

// choose sets what follows from --parts and --short, as far as it is not said.
func (o *options) choose(f *flag.FlagSet, parts string) {
	o.parts = partNames()
	if o.short {
		o.parts = []string{"alone", "ratelimit", "engine", "hold", "cost"}
		o.unlessSaid(f, "for", func() { o.length = 6 * time.Second })
		o.unlessSaid(f, "settle", func() { o.settle = 2 * time.Second })
		o.unlessSaid(f, "rounds", func() { o.rounds = 1 })
		o.unlessSaid(f, "turn", func() { o.turn = 250 * time.Millisecond })
		o.unlessSaid(f, "holds", func() { o.holds = 3 })
	}
	if parts != "" {
		o.parts = strings.Split(parts, ",")
	}
}

func (o *options) unlessSaid(f *flag.FlagSet, name string, set func()) {
	said := false
	f.Visit(func(g *flag.Flag) { said = said || g.Name == name })
	if !said {
		set()
	}
}

// validate names everything that is out of range.
func (o *options) validate() error {
	var c command.Check
	for _, p := range o.parts {
		c.That(slices.Contains(partNames(), p), "--parts: %q is none of %s", p, strings.Join(partNames(), ", "))
	}
	c.That(o.window == byBucket || o.window == bySecond, "--window: %q is none of %s, %s", o.window, byBucket, bySecond)
	for name, n := range map[string]struct{ n, most int }{
		"proxies": {o.proxies, 200}, "ratelimit": {o.rateLimit, mostRateLimit}, "burst": {o.burst, 100_000}, "clients": {o.clients, 10_000}, "holds": {o.holds, 100}, "rounds": {o.rounds, 100},
	} {
		c.That(n.n >= 1 && n.n <= n.most, "--%s must be in 1..%d", name, n.most)
	}
	for name, d := range map[string]time.Duration{
		"answer": o.answer, "every": o.every, "patience": o.patience, "for": o.length, "settle": o.settle, "pause": o.pause, "step": o.step, "turn": o.turn,
	} {
		c.That(d >= time.Millisecond && d <= 10*time.Minute, "--%s must be from 1ms to 10m", name)
	}
	c.That(o.pause%time.Second == 0, "--pause must be whole seconds, as a Retry-After is")
	c.That(o.settle+time.Second <= o.length, "--for must be a second longer than --settle at least")
	return c.Err()
}

// newRateLimit is that of the upstream, with all of it left.
func (o *options) newRateLimit(now time.Time) rateLimit {
	if o.window == bySecond {
		return &seconds{most: o.rateLimit}
	}
	return newBucket(float64(o.rateLimit), float64(o.burst), now)
}

func (o *options) crowd() *crowd {
	return &crowd{n: o.clients, every: o.every, patience: o.patience, seed: o.seed}
}
