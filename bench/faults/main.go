//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func main() { rig.Main("faults", run) }

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
	proxy string
	lasts time.Duration
	tries int
	set   []string // settings of the proxy
}

// run plays some faults beside each other. An expectation that was missed, or a row that
// could not be played, is rig.ErrFound.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, only := &options{}, ""
	f := rig.NewFlags("faults", stderr, &o.proxy)
	rig.Number(f, &o.lasts, "for", 3*time.Second, shortestFault, longestFault, "how long each fault lasts")
	f.StringVar(&only, "only", "", "only faults whose name has this in it")
	rig.Number(f, &o.tries, "tries", 1, 1, 5, "how often a fault is played, alone, until it is as expected; a request lost or changed, or a proxy that ends badly, has no second try. For machines that are busy with other things")
	f.Settings(&o.set, "RETRYPROXY_MAX_RETRIES=0")
	var chosen []fault
	f.Check(func(c *rig.Check) {
		chosen = slices.DeleteFunc(faults(), func(f fault) bool { return !strings.Contains(f.name, only) })
		c.That(len(chosen) > 0, "none has %q in its name", only)
		c.Installed(needed...)
	})
	err := f.Parse(args)
	if err != nil {
		return err
	}
	if o.proxy, err = filepath.Abs(o.proxy); err != nil {
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
	fmt.Fprintf(stdout, "%s, at %s\n\n%s", rig.Describe(), rig.Commit(), header)
	for _, r := range rows {
		r.print(stdout)
		for _, wrong := range r.wrong() {
			fmt.Fprintf(stderr, "faults: %s: %s\n", r.name, wrong)
			err = rig.ErrFound
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
		r = &result{fault: f, err: err.Error(), impossible: errors.As(err, new(rig.Impossible))}
	}
	fmt.Fprintf(stderr, "faults: %s: %s\n", f.name, r.summary())
	return r
}
