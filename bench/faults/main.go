//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/command"
	"github.com/retryproxy/retryproxy/bench/internal/machine"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// roleVariable says which other program this one is to be.
const roleVariable = "FAULTS_ROLE"

// roles are the programs that this one can be instead: a fault needs processes
// that can be stopped and killed. Each serves until its standard input ends.
var roles = map[string]func(args []string, orders io.Reader, out io.Writer) error{
	roleUpstream: serveUpstream,
	roleDNS:      serveDNS,
	roleHold:     holdNamespace,
}

// options are the flags.
type options struct {
	proxy  string
	lasts  time.Duration
	only   string
	atOnce int
	tries  int
	json   bool
	set    settings
}

// settings are environment variables, from repeated flags.
type settings []string

func (s *settings) String() string     { return strings.Join(*s, " ") }
func (s *settings) Set(v string) error { *s = append(*s, v); return nil }

func main() {
	if role, ok := roles[os.Getenv(roleVariable)]; ok {
		if err := role(os.Args[1:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(command.Failed)
		}
		return
	}
	command.Main("faults", run)
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("faults", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.proxy, "proxy", "bin/retryproxy", "the program to test")
	f.DurationVar(&o.lasts, "for", 3*time.Second, "how long each fault lasts")
	f.StringVar(&o.only, "only", "", "only faults whose name has this in it")
	f.IntVar(&o.atOnce, "at-once", 4, "faults played beside each other, each with processes of its own")
	f.IntVar(&o.tries, "tries", 1, "how often a fault is played, alone, until it is as expected; a request lost or changed, or a proxy that ends badly, has no second try. For machines that are busy with other things")
	f.BoolVar(&o.json, "json", false, "print the results as JSON, one a line")
	f.Var(&o.set, "set", "NAME=VALUE for the proxy, over what a fault sets; to see an expectation missed, say RETRYPROXY_MAX_RETRIES=0")
	return o, command.Parse(f, args, o.validate)
}

func (o *options) validate() error {
	switch {
	case o.lasts < shortestFault || o.lasts > longestFault:
		return fmt.Errorf("--for must be %v to %v", shortestFault, longestFault)
	case o.atOnce < 1 || o.atOnce > 16:
		return errors.New("--at-once must be in 1..16")
	case o.tries < 1 || o.tries > 5:
		return errors.New("--tries must be in 1..5")
	}
	var err error
	if o.proxy, err = filepath.Abs(o.proxy); err != nil {
		return err
	}
	return rig.Need(needed...)
}

// needed are other programs without which rows could not be played.
var needed = []string{"sh", "unshare", "prlimit", "nsenter", "ip", "iptables", "go", "nice"}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	chosen := o.chosen()
	if len(chosen) == 0 {
		return command.Wrong(fmt.Errorf("none has %q in its name", o.only))
	}
	return o.report(o.playAll(ctx, chosen, stderr), stdout, stderr)
}

func (o *options) chosen() (some []fault) {
	for _, f := range faults() {
		if strings.Contains(f.name, o.only) {
			some = append(some, f)
		}
	}
	return some
}

// playAll plays some faults beside each other and gives what came of each, in their order.
func (o *options) playAll(ctx context.Context, chosen []fault, stderr io.Writer) []*result {
	rows := make([]*result, len(chosen))
	places := make(chan struct{}, o.atOnce)
	var all sync.WaitGroup
	for i, f := range chosen {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			rows[i] = o.playOne(ctx, &f, stderr)
		})
	}
	all.Wait()
	for i, r := range rows {
		for try := 1; try < o.tries && r.hasSecondTry(); try++ {
			fmt.Fprintf(stderr, "faults: %s: once more, alone\n", r.Name)
			r = o.playOne(ctx, &chosen[i], stderr)
		}
		rows[i] = r
	}
	return rows
}

func (o *options) playOne(ctx context.Context, f *fault, stderr io.Writer) *result {
	r, err := play(ctx, f, o)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		r = &result{Name: f.name, How: f.how, Error: err.Error(), Impossible: errors.As(err, new(impossible))}
	}
	fmt.Fprintf(stderr, "faults: %s: %s\n", f.name, r.summary())
	return r
}

// report tells what came of the faults. An expectation that was missed, or a row that
// could not be played, is command.ErrFound.
func (o *options) report(rows []*result, stdout, stderr io.Writer) error {
	var found error
	if !o.json {
		fmt.Fprintf(stdout, "%s, at %s\n\n%s", machine.Describe(), machine.Commit(), header)
	}
	for _, r := range rows {
		if o.json {
			_ = json.NewEncoder(stdout).Encode(r)
		} else {
			r.print(stdout)
		}
	}
	for _, r := range rows {
		for _, wrong := range r.wrong() {
			fmt.Fprintf(stderr, "faults: %s: %s\n", r.Name, wrong)
			found = command.ErrFound
		}
		if r.Impossible {
			fmt.Fprintf(stderr, "faults: NOT PLAYED: %s: %s\n", r.Name, r.Error)
		}
	}
	return found
}
