package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitMissed = 3
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == rig.RoleUpstream {
		fmt.Fprintln(os.Stderr, "peers upstream:", rig.ServeUpstream(os.Args[2:]))
		os.Exit(exitFailed)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintln(stderr, "peers:", err)
		return exitUsage
	}
	d, err := compare(ctx, o, stderr)
	if err == nil {
		d.Args = args
		err = d.tell(stdout, o.json)
	}
	switch {
	case err != nil:
		fmt.Fprintln(stderr, "peers:", err)
		return exitFailed
	case o.strict && d.missed() > 0:
		return exitMissed
	}
	return exitOK
}

// compare measures all cases that were asked for.
func compare(ctx context.Context, o *options, stderr io.Writer) (*document, error) {
	if err := rig.Need(o.needs()...); err != nil {
		return nil, err
	}
	s := &stage{ctx: ctx, o: o, cores: rig.Divide(), note: func(format string, a ...any) { fmt.Fprintf(stderr, format+"\n", a...) }}
	up, err := rig.StartUpstream(s.cores.Load)
	if err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	defer up.End()
	s.upstream = up
	d := newDocument(o.proxy)
	for _, c := range cases {
		if !o.wants(c.name) {
			continue
		}
		s.note("%s: %s", c.name, c.work)
		r := &result{Case: c.name, Work: c.work, Goal: c.goal, Unit: c.unit}
		if err := c.measure(s, r); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		r.conclude(c.met)
		s.note("%s: %s", c.name, r.line())
		d.Results = append(d.Results, r)
	}
	return d, nil
}
