package main

import (
	"context"
	"fmt"
	"io"

	"github.com/retryproxy/retryproxy/bench/internal/command"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func main() { rig.Main("peers", run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	d, err := compare(ctx, o, stderr)
	if err != nil {
		return err
	}
	d.Args = args
	if err := d.tell(stdout, o.json); err != nil {
		return err
	}
	if o.strict && d.missed() > 0 {
		return command.ErrMissed
	}
	return nil
}

// compare measures all cases that were asked for.
func compare(ctx context.Context, o *options, stderr io.Writer) (*document, error) {
	if err := command.Wrong(rig.Need(o.needs()...)); err != nil {
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
