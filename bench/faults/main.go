//go:build linux

package main

import (
	"context"
	"errors"
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
	"github.com/retryproxy/retryproxy/bench/internal/testbed"
)

// upstreamVariable makes this program the upstream instead, which faults stop and kill.
const upstreamVariable = "FAULTS_UPSTREAM"

func main() {
	if os.Getenv(upstreamVariable) != "" {
		fmt.Fprintln(os.Stderr, serveUpstream(os.Args[1:], os.Stdin, os.Stdout))
		os.Exit(command.Failed)
	}
	command.Main("faults", run)
}

const (
	// atOnce are the faults that are played beside each other, each with processes of its own.
	atOnce = 4
	// shortestFault is not over before ATTEMPT_TIMEOUT.
	shortestFault = 1500 * time.Millisecond
	longestFault  = time.Minute
)

// needed are other programs without which rows could not be played.
var needed = []string{"sh", "unshare", "prlimit", "nsenter", "ip", "iptables", "go", "nice"}

// options are the flags.
type options struct {
	testbed.Options
	tries int
	set   []string // settings of the proxy
}

// run plays some faults beside each other. An expectation that was missed, or a row that
// could not be played, is command.ErrFound.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := &options{}
	f := o.Flags("faults", stderr, 3*time.Second)
	f.StringVar(&o.Only, "only", "", "only faults whose name has this in it")
	f.IntVar(&o.tries, "tries", 1, "how often a fault is played, alone, until it is as expected; a request lost or changed, or a proxy that ends badly, has no second try. For machines that are busy with other things")
	f.Func("set", "NAME=VALUE for the proxy, over what a fault sets; to see an expectation missed, say RETRYPROXY_MAX_RETRIES=0", func(v string) error {
		o.set = append(o.set, v)
		return nil
	})
	var chosen []fault
	err := o.Parse(f, args, shortestFault, longestFault, func(c *command.Check) {
		for _, f := range faults() {
			if strings.Contains(f.name, o.Only) {
				chosen = append(chosen, f)
			}
		}
		c.That(len(chosen) > 0, "none has %q in its name", o.Only)
		c.That(o.tries >= 1 && o.tries <= 5, "--tries must be in 1..5")
		missing := rig.Need(needed...)
		c.That(missing == nil, "%v", missing)
	})
	if err != nil {
		return err
	}
	if o.Proxy, err = filepath.Abs(o.Proxy); err != nil {
		return err
	}
	rows := make([]*result, len(chosen))
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i := range chosen {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			rows[i] = o.playOne(ctx, &chosen[i], stderr)
		})
	}
	all.Wait()
	for i := range rows {
		for try := 1; try < o.tries && rows[i].hasSecondTry(); try++ {
			fmt.Fprintf(stderr, "faults: %s: once more, alone\n", rows[i].name)
			rows[i] = o.playOne(ctx, &chosen[i], stderr)
		}
	}
	fmt.Fprintf(stdout, "%s, at %s\n\n%s", machine.Describe(), machine.Commit(), header)
	for _, r := range rows {
		r.print(stdout)
		for _, wrong := range r.wrong() {
			fmt.Fprintf(stderr, "faults: %s: %s\n", r.name, wrong)
			err = command.ErrFound
		}
		if r.impossible {
			fmt.Fprintf(stderr, "faults: NOT PLAYED: %s: %s\n", r.name, r.err)
		}
	}
	return err
}

func (o *options) playOne(ctx context.Context, f *fault, stderr io.Writer) *result {
	r, err := play(ctx, f, o)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		r = &result{fault: f, err: err.Error(), impossible: errors.As(err, new(testbed.Impossible))}
	}
	fmt.Fprintf(stderr, "faults: %s: %s\n", f.name, r.summary())
	return r
}
