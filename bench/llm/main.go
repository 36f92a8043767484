package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func main() { rig.Main("llm", run) }

// options are the flags.
type options struct {
	fates
	proxy                    string
	through                  []string
	load                     time.Duration
	rate                     float64 // jobs a second
	requestLimit, tokenLimit float64 // a second
	pairs                    int
	processes                int
	json                     string
	short                    bool
	set                      []string // settings of the proxy
}

// The load is about the token limit, and twice that in its bursts.
const (
	defaultRate = 27
	shortLoad   = 3 * time.Second
	shortPairs  = 10
)

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("llm", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.proxy, "proxy", "bin/retryproxy", "the program retryproxy")
	through := f.String("through", strings.Join(installed(), ","), "the ways to the provider, of direct,haproxy,retryproxy,fleet")
	f.DurationVar(&o.load, "load", 30*time.Second, "how long jobs come")
	f.Float64Var(&o.rate, "rate", defaultRate, "jobs a second for each row")
	f.Float64Var(&o.requestLimit, "requests", 40, "the provider's limit of requests a second, and its burst")
	f.Float64Var(&o.tokenLimit, "tokens", 8000, "the provider's limit of tokens a second, and its burst")
	f.Float64Var(&o.errors, "errors", 0.05, "share of attempts that get a fault")
	f.DurationVar(&o.median, "median", 170*time.Millisecond, "median time for a generation")
	f.Float64Var(&o.sigma, "sigma", 0.8, "standard deviation of the logarithm of that time")
	f.Uint64Var(&o.seed, "seed", 1, "the same seed gives the same jobs and faults")
	f.IntVar(&o.pairs, "pairs", 100, "pairs of streams for the added latency")
	f.IntVar(&o.processes, "processes", 50, "processes that share through Redis, for fleet")
	f.StringVar(&o.json, "json", "", "write everything that was measured to this file")
	f.BoolVar(&o.short, "short", false, fmt.Sprintf("%v of load and %d pairs, whatever --load and --pairs say; faults that did not happen are no error", shortLoad, shortPairs))
	f.Func("set", "NAME=VALUE for retryproxy; to see a promise broken, say RETRYPROXY_RETRY_METHODS=any", func(v string) error {
		o.set = append(o.set, v)
		return nil
	})
	return o, rig.Parse(f, args, func() error {
		if o.through = rig.List(*through); o.short {
			o.load, o.pairs = shortLoad, shortPairs
		}
		return o.validate()
	})
}

// installed are the ways that this machine has.
func installed() []string {
	if haproxyProgram() == "" {
		return []string{direct, retryproxy}
	}
	return []string{direct, haproxy, retryproxy}
}

// validate names everything that is out of range.
func (o *options) validate() error {
	var c rig.Check
	c.That(len(o.through) > 0, "--through is empty")
	for _, name := range o.through {
		c.That(slices.Contains([]string{direct, haproxy, retryproxy, fleet}, name), "--through: %q is none of direct,haproxy,retryproxy,fleet", name)
		c.That(name != haproxy || haproxyProgram() != "", "not installed: haproxy; on Debian: apt-get install haproxy")
	}
	c.That(o.processes >= 2 && o.processes <= 500, "--processes must be in 2..500")
	c.That(o.load >= time.Second && o.load <= time.Hour, "--load must be in 1s..1h")
	c.That(o.rate >= 0.1 && o.rate <= 1000, "--rate must be in 0.1..1000")
	c.That(o.requestLimit >= 1 && o.requestLimit <= 1e6, "--requests must be in 1..1000000")
	c.That(o.tokenLimit >= mostTokens && o.tokenLimit <= 1e9, "--tokens must be in %d..1000000000", mostTokens)
	c.That(o.errors >= 0 && o.errors <= 1, "--errors must be in 0..1")
	c.That(o.median >= 0 && o.median <= time.Minute, "--median must be in 0s..1m")
	c.That(o.sigma >= 0 && o.sigma <= 3, "--sigma must be in 0..3")
	c.That(o.pairs >= 1 && o.pairs <= 10_000, "--pairs must be in 1..10000")
	return c.Err()
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.proxy, err = filepath.Abs(o.proxy); err != nil {
		return err
	}
	d := newDocument(o, args)
	if d.Rows, err = o.playAll(ctx, o.ways(), stderr); err != nil {
		return err
	}
	if err := d.tell(stdout, o.json); err != nil {
		return err
	}
	for _, r := range d.Rows {
		for _, b := range r.broken() {
			fmt.Fprintf(stderr, "llm: %s: %s\n", r.title(), b)
			err = rig.ErrFound
		}
	}
	return err
}

// playAll plays a row for each client, its retries on and off, and way. Latency is
// measured first and one row at a time; then the load of all rows of a way comes at once. The buckets
// hold a second's worth, so a machine that is late by a part of a second shows in them.
func (o *options) playAll(ctx context.Context, ways []way, stderr io.Writer) ([]*row, error) {
	var b rig.Bed
	defer b.End()
	var all []*play
	for client := range vendors {
		for _, retries := range []int{defaultRetries, 0} {
			for _, w := range ways {
				if w.once && retries == 0 {
					continue
				}
				p, err := setUp(ctx, &b, o, client, retries, w)
				if err != nil {
					return nil, err
				}
				all = append(all, p)
			}
		}
	}
	fmt.Fprintf(stderr, "llm: latency, %d pairs a row\n", o.pairs)
	for _, p := range all {
		if err := p.compareLatency(ctx); err != nil {
			return nil, err
		}
	}
	for _, w := range ways {
		fmt.Fprintf(stderr, "llm: load through %s for %v\n", w.name, o.load)
		var wait sync.WaitGroup
		for _, p := range all {
			if p.Through == w.name {
				wait.Go(func() { p.load(ctx) })
			}
		}
		wait.Wait()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	rows := make([]*row, len(all))
	for i, p := range all {
		rows[i] = p.conclude()
	}
	return rows, nil
}
