package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/command"
	"github.com/retryproxy/retryproxy/bench/internal/show"
)

func main() {
	command.Main("fleet", run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == roleSimulate {
		return simulate(ctx, args[1:], stdout, stderr)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	d := newDocument(args, o)
	if err := d.play(ctx, o, show.NewProgress(stderr)); err != nil {
		return err
	}
	b := &wanted
	if o.short {
		b = &generous
	}
	d.judge(b)
	d.Figure = d.figure()
	d.tell(stdout)
	if err := d.write(o); err != nil {
		return err
	}
	if !d.met() {
		return command.ErrMissed
	}
	return nil
}

func (d *document) write(o *options) error {
	if o.json != "" {
		if err := show.JSON(o.json, d); err != nil {
			return err
		}
	}
	if o.png != "" && d.Figure != nil {
		return show.PNG(o.png, d.Figure, pictureSize)
	}
	return nil
}

// part is something to play.
type part struct {
	name   string
	answer time.Duration // of the upstream
	do     func(ctx context.Context, o *options, up *upstream, told *show.Progress) error
}

// parts are all that can be played, in this order.
func (d *document) parts(o *options) []part {
	var all []part
	for i := range arms {
		a := &arms[i]
		all = append(all, part{a.name, o.answer, func(ctx context.Context, o *options, up *upstream, told *show.Progress) error {
			r, err := a.play(ctx, o, up, func(s *stage) { told.Line(s.line()) })
			d.Arms = append(d.Arms, r)
			return err
		}})
	}
	return append(all,
		part{"hold", o.answer, func(ctx context.Context, o *options, up *upstream, told *show.Progress) (err error) {
			d.Hold, err = hold(ctx, o, up, told.Line)
			return err
		}},
		part{"rates", o.answer, func(ctx context.Context, o *options, up *upstream, told *show.Progress) (err error) {
			d.Rates, err = rates(ctx, o, up, told.Line)
			return err
		}},
		part{"cost", 0, func(ctx context.Context, o *options, up *upstream, told *show.Progress) (err error) {
			d.Cost, err = cost(ctx, o, up, told.Line)
			return err
		}})
}

func partNames() []string {
	var names []string
	for _, p := range new(document).parts(&options{}) {
		names = append(names, p.name)
	}
	return names
}

// play plays all that was asked for, each with an upstream of its own.
func (d *document) play(ctx context.Context, o *options, told *show.Progress) error {
	defer told.Clear()
	for _, p := range d.parts(o) {
		if !slices.Contains(o.parts, p.name) {
			continue
		}
		up, err := startUpstream(p.answer)
		if err != nil {
			return err
		}
		err = p.do(ctx, o, up, told)
		up.close()
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}
