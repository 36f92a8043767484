package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/command"
	"github.com/retryproxy/retryproxy/bench/internal/show"
)

// options of a run.
type options struct {
	proxy   string
	lasts   time.Duration
	clients int
	seed    uint64
	json    bool
}

func main() {
	command.Main("soak", run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	r, err := soak(ctx, o, show.NewProgress(stderr))
	if err != nil {
		return err
	}
	r.print(stdout, o.json)
	if len(r.Violations) > 0 {
		return command.ErrFound
	}
	return nil
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("soak", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.proxy, "proxy", "bin/retryproxy", "the program to test")
	f.DurationVar(&o.lasts, "for", 60*time.Second, "how long clients send requests")
	f.IntVar(&o.clients, "conns", 200, "clients, each with one connection at a time")
	f.Uint64Var(&o.seed, "seed", 0, "seed of everything that is drawn; 0: a new one")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	err := command.Parse(f, args, o.validate)
	for o.seed == 0 {
		o.seed = rand.Uint64() >> 32
	}
	return o, err
}

func (o *options) validate() error {
	switch {
	case o.lasts <= 0:
		return errors.New("--for must be positive")
	case o.clients < 1 || o.clients > 10000:
		return errors.New("--conns must be in 1..10000")
	}
	return nil
}
