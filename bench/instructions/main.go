package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/command"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func main() { rig.Main("instructions", run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if err := command.Wrong(rig.Need("valgrind", "wrk")); err != nil {
		return err
	}
	c, err := o.count(ctx, stderr)
	if err != nil {
		return err
	}
	return c.tell(stdout, o.functions)
}

// options are the arguments.
type options struct {
	proxy       string
	connections int
	length      time.Duration
	bodyBytes   int
	functions   int
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("instructions", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.proxy, "proxy", "bin/retryproxy-named", "the program retryproxy, with its symbols")
	f.IntVar(&o.connections, "connections", 64, "of wrk")
	f.DurationVar(&o.length, "length", 10*time.Second, "of the load, in whole seconds")
	f.IntVar(&o.bodyBytes, "body", 0, "bytes of a request's body; 0: GET, else POST")
	f.IntVar(&o.functions, "functions", 30, "how many of the costliest functions to name")
	return o, command.Parse(f, args, func() error {
		var c command.Check
		c.That(o.connections >= 1 && o.connections <= 4000, "--connections must be in 1..4000")
		c.That(o.length >= time.Second && o.length <= 10*time.Minute && o.length%time.Second == 0, "--length must be whole seconds from 1s to 10m")
		c.That(o.bodyBytes >= 0 && o.bodyBytes <= 64<<20, "--body must be in 0..64Mi")
		c.That(o.functions >= 0, "--functions must not be negative")
		return c.Err()
	})
}

// count measures.
func (o *options) count(ctx context.Context, stderr io.Writer) (*counts, error) {
	dir, err := os.MkdirTemp("", "instructions")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cores := rig.Divide()
	up, err := rig.StartUpstream(cores.Load)
	if err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	defer up.End()
	p, err := startCounted(o.proxy, dir, up.Addr, cores.One)
	if err != nil {
		return nil, err
	}
	defer p.End()
	load := &rig.Load{URL: "http://" + p.Addr + "/", Connections: o.connections, BodyBytes: o.bodyBytes, For: min(o.length, 3*time.Second), Cores: cores.Load}
	if o.bodyBytes > 0 {
		load.Method = "POST"
	}
	fmt.Fprintln(stderr, "warming up")
	if _, err := load.Send(ctx); err != nil {
		return nil, err
	}
	fmt.Fprintln(stderr, "counting")
	load.For = o.length
	if err := p.counting(ctx, true); err != nil {
		return nil, err
	}
	sent, err := load.Send(ctx)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.counting(ctx, false), p.Alive()); err != nil {
		return nil, err
	}
	if sent.Requests == 0 {
		return nil, errors.New("no request was answered")
	}
	return p.read(sent.Requests)
}
