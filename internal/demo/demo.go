// Package demo is `retryproxy demo`: the real proxy between a little traffic
// and an upstream that fails on purpose, so that somebody new sees within
// seconds what retries change, and can send requests too.
//
// Run is all there is to call. The same requests go at the same moments to the
// upstream itself and through the proxy, and the upstream fails by a plan made
// from a seed, so both sides meet the same failures; what differs is what
// clients saw. The proxy has its default settings, by the same path from
// RETRYPROXY_* names to a configuration as in service.
//
// Nothing leaves the machine: all sockets are on loopback, rate and memory are
// bounded, and all of it has ended when Run returns.
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/metrics"
)

// Options are what Run needs from outside.
type Options struct {
	Args    []string // flags: --for, --rate, --seed
	Stdout  io.Writer
	Stderr  io.Writer
	Metrics *metrics.Metrics // new and only for this; must be set

	// Listen and AdminListen are the loopback addresses to listen on; "" means
	// the usual ports, 8080 and 9797. One that is in use gives way to a free port.
	Listen      string
	AdminListen string
}

// Exit codes of Run.
const (
	exitOK     = 0
	exitFailed = 1 // something could not be started
	exitUsage  = 2 // the arguments make no sense
)

// maxRate bounds --rate in requests a second to each side: every request takes
// a connection of its own, and the ports of closed ones rest for a minute.
const maxRate = 200

// flags are the arguments.
type flags struct {
	length time.Duration // 0: until interrupted
	rate   int
	seed   uint64
}

// Run shows the demo until ctx ends or --for is over and returns the exit
// code: 0, also when ctx ended it; 1 when no port could be opened; 2 for bad
// arguments.
func Run(ctx context.Context, o Options) int {
	f, err := parse(o.Args, o.Stdout, o.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	}
	o.Listen = orElse(o.Listen, "127.0.0.1:8080")
	o.AdminListen = orElse(o.AdminListen, "127.0.0.1:9797")
	if err := play(ctx, &o, f); err != nil {
		_, _ = fmt.Fprintln(o.Stderr, "retryproxy demo:", err)
		return exitFailed
	}
	return exitOK
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// usage is the first line of the help text.
const usage = "Usage: retryproxy demo [--for 10s] [--rate 50] [--seed 1]\n"

// parse reads the arguments. Help that was asked for goes to stdout, which
// gives flag.ErrHelp; what is wrong with them to stderr.
func parse(args []string, stdout, stderr io.Writer) (flags, error) {
	var f flags
	set := flag.NewFlagSet("demo", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	set.DurationVar(&f.length, "for", 0, "how long to run, e.g. 10s; 0 means until Ctrl-C")
	set.IntVar(&f.rate, "rate", 50, fmt.Sprintf("requests a second to each side, 1 to %d", maxRate))
	set.Uint64Var(&f.seed, "seed", 1, "another seed, other failures")
	err := set.Parse(args)
	if err == nil {
		err = f.check(set.Args())
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = fmt.Fprint(stdout, usage+"\nSends the same requests to an upstream that fails on purpose and to retryproxy\nin front of it, and compares what clients saw. Needs no settings.\n\nFlags:\n")
		set.SetOutput(stdout)
		set.PrintDefaults()
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "retryproxy demo: %v\n%s", err, usage)
	}
	return f, err
}

func (f *flags) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q", rest[0])
	case f.length < 0:
		return errors.New("--for must not be negative")
	case f.rate < 1 || f.rate > maxRate:
		return fmt.Errorf("--rate must be from 1 to %d", maxRate)
	}
	return nil
}

// play runs the demo from the first line to the last.
func play(ctx context.Context, o *Options, f flags) error {
	until, stop := context.WithCancel(ctx)
	defer stop()
	if f.length > 0 {
		defer time.AfterFunc(f.length, stop).Stop()
	}
	s, err := open(o, f.seed, stop)
	if err != nil {
		return err
	}
	defer s.close()
	out := newScreen(o.Stdout, os.Getenv)
	out.print("%s", opening(s, f))
	t := newTraffic(f.seed, f.rate, s.upstream.url(), s.proxyURL())
	began := time.Now()
	watch(out, func() { t.run(ctx, until) }, func() *report { return look(s, t, time.Since(began)) })
	took := time.Since(began)
	s.drain()
	out.finish(look(s, t, took))
	return nil
}

// watch shows progress while run runs.
func watch(out *screen, run func(), look func() *report) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		run()
	}()
	tick := time.NewTicker(out.every())
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			out.progress(look())
		case <-done:
			return
		}
	}
}

func look(s *stage, t *traffic, elapsed time.Duration) *report {
	r := &report{elapsed: elapsed, routes: scrape(s.metrics.Handler(), s.routes)}
	for i := range numSides {
		r.sides[i] = t.tally[i].read()
		r.sends[i] = s.upstream.sends[i].Load()
	}
	return r
}

// opening says what runs, and what to try meanwhile.
func opening(s *stage, f flags) string {
	length := "until Ctrl-C"
	if f.length > 0 {
		length = "for " + f.length.String()
	}
	up, proxy, scrape := s.upstream.url(), s.proxyURL(), s.adminURL()+"/metrics"
	return fmt.Sprintf("retryproxy demo %s: %d requests a second, sent without retries and with retryproxy (seed %d)\n\n", length, f.rate, f.seed) +
		columns(
			"upstream  ", up, "503 in bursts, 429 with Retry-After: 1, resets, slow answers",
			"retryproxy", proxy, "in front of it, default settings",
			"metrics   ", scrape, "") +
		"\nTry meanwhile:\n\n" +
		columns(
			"curl -i", up+"/search/shoes", "# without retries",
			"curl -i", proxy+"/search/shoes", "# with retries",
			"curl -i -d item=1", proxy+"/checkout", "# a POST is not retried once it was sent",
			"curl -i -d item=1 -H 'Idempotency-Key: \"1\"'", proxy+"/checkout", "# but with a key it is",
			"curl -s", scrape+" | grep ^retryproxy_outcomes", "") +
		"\n"
}

// columns prints lines of three cells, the first and second one padded so that
// the third ones are below each other.
func columns(cells ...string) string {
	widest := 0
	for i := 0; i < len(cells); i += 3 {
		widest = max(widest, len(cells[i])+len(cells[i+1]))
	}
	var b strings.Builder
	for i := 0; i < len(cells); i += 3 {
		line := fmt.Sprintf("  %-*s  %s", widest+1, cells[i]+" "+cells[i+1], cells[i+2])
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}
