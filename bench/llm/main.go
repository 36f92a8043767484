package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
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

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := rig.NewFlags("llm", stderr, &o.proxy)
	f.Some(&o.through, "through", installed(), []string{direct, haproxy, retryproxy, fleet}, "the ways to the provider")
	rig.Number(f, &o.load, "load", 30*time.Second, time.Second, time.Hour, "how long jobs come")
	rig.Number(f, &o.rate, "rate", 27, 0.1, 1000, "jobs a second for each row: about the token limit, and twice that in bursts")
	rig.Number(f, &o.requestLimit, "requests", 40, 1, 1e6, "the provider's limit of requests a second, and its burst")
	rig.Number(f, &o.tokenLimit, "tokens", 8000, mostTokens, 1e9, "the provider's limit of tokens a second, and its burst")
	rig.Number(f, &o.errors, "errors", 0.05, 0, 1, "share of attempts that get a fault")
	rig.Number(f, &o.median, "median", 170*time.Millisecond, 0, time.Minute, "median time for a generation")
	rig.Number(f, &o.sigma, "sigma", 0.8, 0, 3, "standard deviation of the logarithm of that time")
	f.Seed(&o.seed, 1)
	rig.Number(f, &o.pairs, "pairs", 100, 1, 10_000, "pairs of streams for the added latency")
	rig.Number(f, &o.processes, "processes", 50, 2, 500, "processes that share through Redis, for fleet")
	f.StringVar(&o.json, "json", "", "write everything that was measured to this file")
	f.BoolVar(&o.short, "short", false, fmt.Sprintf("%v of load and %d pairs, whatever --load and --pairs say; faults that did not happen are no error", shortLoad, shortPairs))
	f.Settings(&o.set, "RETRYPROXY_RETRY_METHODS=any")
	f.Check(func(c *rig.Check) {
		c.That(len(o.through) > 0, "--through is empty")
		if o.short {
			o.load, o.pairs = shortLoad, shortPairs
		}
		for way, program := range map[string]string{haproxy: haproxy, fleet: "redis-server"} {
			if slices.Contains(o.through, way) {
				c.Installed(program)
			}
		}
	})
	return o, f.Parse(args)
}

const (
	shortLoad  = 3 * time.Second
	shortPairs = 10
)

// installed are the ways that this machine has; a fleet needs more of it than most have to spare.
func installed() string {
	if _, err := exec.LookPath(haproxy); err != nil {
		return direct + "," + retryproxy
	}
	return direct + "," + haproxy + "," + retryproxy
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
	d.tell(stdout)
	if err := rig.WriteJSON(o.json, d); err != nil {
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
