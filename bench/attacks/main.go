package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/command"
)

const longestAttack = time.Hour

// options are the flags.
type options struct {
	proxy string
	lasts time.Duration
	only  string
	json  bool
}

func main() {
	command.Main("attacks", run)
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("attacks", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.proxy, "proxy", "bin/retryproxy", "the program to attack")
	f.DurationVar(&o.lasts, "for", 10*time.Second, "how long each attack lasts")
	f.StringVar(&o.only, "only", "", "only attacks whose name has this in it")
	f.BoolVar(&o.json, "json", false, "print the results as JSON, one a line")
	return o, command.Parse(f, args, func() error {
		if o.lasts < 100*time.Millisecond || o.lasts > longestAttack {
			return errors.New("--for must be 100ms to 1h")
		}
		return nil
	})
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	upstream, stop, err := startUpstream()
	if err != nil {
		return err
	}
	defer stop()
	return o.attackAll(ctx, upstream, stdout, stderr)
}

// leastForMemory is how long an attack on the memory has to last: in its first seconds the
// attackers' arrival is on the cores, and a bystander's wait says nothing.
const leastForMemory = 10 * time.Second

// attacks are those that the time is enough for.
func (o *options) attacks() []attack {
	all := slices.Concat(http2Attacks, http1Attacks, trustAttacks)
	if o.lasts >= leastForMemory {
		all = append(all, memoryAttacks()...)
	}
	return all
}

// attackAll makes all attacks that were chosen. One that was not stood is command.ErrFound.
func (o *options) attackAll(ctx context.Context, upstream string, stdout, stderr io.Writer) error {
	var found error
	tried, table := 0, ""
	for _, a := range o.attacks() {
		if !strings.Contains(a.name, o.only) {
			continue
		}
		if title := a.columns(); !o.json && title != table {
			table = title
			fmt.Fprint(stdout, title)
		}
		tried++
		r, err := play(ctx, &a, o.proxy, upstream, o.lasts)
		if err == nil {
			err = ctx.Err()
		}
		if not := (impossible{}); errors.As(err, &not) {
			fmt.Fprintf(stderr, "attacks: NOT PLAYED: %s: %s\n", a.name, not.why)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		if o.json {
			_ = json.NewEncoder(stdout).Encode(r)
		} else {
			r.print(stdout)
		}
		for _, wrong := range r.wrong() {
			fmt.Fprintf(stderr, "attacks: %s: %s\n", a.name, wrong)
			found = command.ErrFound
		}
	}
	if tried == 0 {
		return command.Wrong(fmt.Errorf("none has %q in its name", o.only))
	}
	return found
}
