package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/command"
	"github.com/retryproxy/retryproxy/bench/internal/machine"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func main() { rig.Main("growth", run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	d := &document{Args: args, Commit: machine.Commit(), Machine: machine.Describe(),
		Proxies: []string{machine.Version("haproxy", "-v"), machine.Version(o.proxy, "version")}}
	if err := d.measure(ctx, o, stderr); err != nil {
		return err
	}
	return d.tell(stdout, o)
}

// options are the arguments.
type options struct {
	only   []string // names of axes; empty: all
	rounds int
	slice  time.Duration
	proxy  string
	json   string
	png    string
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	var known []string
	for _, a := range axes {
		known = append(known, a.name)
	}
	f := flag.NewFlagSet("growth", flag.ContinueOnError)
	f.SetOutput(stderr)
	only := f.String("only", "", "only these, of "+strings.Join(known, ","))
	f.IntVar(&o.rounds, "rounds", 3, "turns of each proxy at a point, of which the median is told")
	f.DurationVar(&o.slice, "slice", time.Second, "length of a turn, in whole seconds")
	f.StringVar(&o.proxy, "proxy", "bin/retryproxy", "the program retryproxy")
	f.StringVar(&o.json, "json", "", "write everything that was measured to this file")
	f.StringVar(&o.png, "png", "", "draw it into this file")
	return o, command.Parse(f, args, func() error {
		o.only = command.List(*only)
		return o.validate(known)
	})
}

func (o *options) validate(known []string) error {
	for _, name := range o.only {
		if !slices.Contains(known, name) {
			return fmt.Errorf("--only: %q is none of %s", name, strings.Join(known, ", "))
		}
	}
	if o.rounds < 1 || o.rounds > 100 || o.slice < time.Second || o.slice > time.Minute {
		return errors.New("--rounds must be in 1..100 and --slice in 1s..1m")
	}
	return rig.Need("haproxy", "wrk")
}

// document is everything that was measured.
type document struct {
	Args    []string  `json:"args"`
	Commit  string    `json:"commit"`
	Machine string    `json:"machine"`
	Proxies []string  `json:"proxies"`
	Growths []*growth `json:"growths"`
}

// growth is what one axis brought.
type growth struct {
	Name   string  `json:"name"`
	Label  string  `json:"label"`
	Points []point `json:"points"`
}

// point is the cost at one value: microseconds of CPU time per request.
type point struct {
	Value  int     `json:"value"`
	Ours   float64 `json:"retryproxy_us"`
	Peer   float64 `json:"haproxy_us,omitempty"`
	Ratio  float64 `json:"ratio,omitempty"` // median of those within the rounds
	Failed float64 `json:"failed_share,omitempty"`
}
