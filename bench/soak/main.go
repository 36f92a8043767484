package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/show"
)

// options of a run.
type options struct {
	proxy   string
	lasts   time.Duration
	callers int
	seed    uint64
	json    bool
}

// Exit codes.
const (
	exitOK         = 0
	exitViolations = 1
	exitUsage      = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err == nil {
		var r *report
		if r, err = soak(ctx, o, show.NewProgress(stderr)); err == nil {
			r.print(stdout, o.json)
			if len(r.Violations) > 0 {
				return exitViolations
			}
			return exitOK
		}
	}
	fmt.Fprintln(stderr, "soak:", err)
	return exitUsage
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("soak", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.proxy, "proxy", "bin/retryproxy", "the program to test")
	f.DurationVar(&o.lasts, "for", 60*time.Second, "how long callers send requests")
	f.IntVar(&o.callers, "conns", 200, "callers, each with one connection at a time")
	f.Uint64Var(&o.seed, "seed", 0, "seed of everything that is drawn; 0: a new one")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.lasts <= 0:
		return nil, errors.New("--for must be positive")
	case o.callers < 1 || o.callers > 10000:
		return nil, errors.New("--conns must be in 1..10000")
	}
	for o.seed == 0 {
		o.seed = rand.Uint64() >> 32
	}
	return o, nil
}
