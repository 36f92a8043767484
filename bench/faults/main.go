//go:build linux

// Command faults runs retryproxy between a few clients and an upstream and causes one fault at a time.
// It prints what the clients saw: failed requests, requests that were accepted and never answered, and
// how long after the end of the fault a request was served again. Then it causes the same fault once
// more and sends the proxy SIGTERM in its middle.
//
// Every response names its request, and the upstream checks every body, so no change goes unnoticed.
// Each fault has its expectation beside it. The exit code is 1 if one is missed, or if a fault had no
// effect.
//
// Faults of the network happen in network namespaces that end with their row. Linux only. If the machine
// cannot play a row, the row says so.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func main() { rig.Main("faults", run) }

const (
	// atOnce is how many faults are played concurrently, each with its own processes.
	atOnce = 4
	// shortestFault is longer than ATTEMPT_TIMEOUT.
	shortestFault = 1500 * time.Millisecond
	longestFault  = time.Minute
)

// needed are the programs that rows need.
var needed = []string{"sh", "unshare", "prlimit", "nsenter", "ip", "iptables"}

// options are the flags.
type options struct {
	proxy string
	lasts time.Duration
	set   []string // settings of the proxy
}

// run plays the chosen faults. It returns rig.ErrFound if an expectation was missed, or if a row could
// not be played.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, only := &options{}, ""
	f := rig.NewFlags("faults", stderr, &o.proxy)
	rig.Number(f, &o.lasts, "for", 3*time.Second, shortestFault, longestFault, "how long each fault lasts")
	f.StringVar(&only, "only", "", "only faults whose name has this in it")
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
	rig.Parallel(atOnce, len(rows), func(i int) { rows[i] = o.playOne(ctx, &chosen[i], stderr) })
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

// counts are the results of requests.
type counts struct {
	mayRetry, others [verdicts]int
	why              map[string]int // those not served, by reason
}

func counted(events []event) counts {
	c := counts{why: map[string]int{}}
	for _, e := range events {
		if e.mayRetry {
			c.mayRetry[e.verdict]++
		} else {
			c.others[e.verdict]++
		}
		if e.verdict != served {
			c.why[e.what]++
		}
	}
	return c
}

// both returns how many requests had a verdict.
func (c counts) both(v verdict) int { return c.mayRetry[v] + c.others[v] }

func total(by [verdicts]int) (n int) {
	for _, m := range by {
		n += m
	}
	return n
}

// until returns the events that ended no later than at.
func until(events []event, at time.Time) []event {
	return slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.ended.After(at) })
}

// recovered returns the time from the end of the fault to the next request served; -1 if there was none.
func recovered(events []event, ended time.Time) time.Duration {
	first := time.Duration(-1)
	for _, e := range events {
		if d := e.ended.Sub(ended); e.verdict == served && d > 0 && (first < 0 || d < first) {
			first = d
		}
	}
	return first
}

// result is the result of a fault.
type result struct {
	*fault
	err        string // it could not be played
	impossible bool
	times      int64         // how often the fault had an effect
	counts     counts        // from its beginning until clients were served again
	meanwhile  int           // requests served
	recovered  time.Duration // see recovered
	again      bool          // clients were served as before
	// With a SIGTERM in its middle.
	before   counts
	inFlight int
	drained  counts
	exit     string
}

// recoverWithin is the longest time from the end of a fault to the next request served. The proxy probes
// its upstream every few seconds at least.
const recoverWithin = 10 * time.Second

// wrong returns what was not as expected.
func (r *result) wrong() []string {
	switch {
	case r.impossible:
		return nil
	case r.err != "":
		return []string{r.err}
	}
	var w rig.Check
	const atSIGTERM = " at the SIGTERM"
	for when, c := range map[string]counts{"": r.counts, " before the SIGTERM": r.before, atSIGTERM: r.drained} {
		w.That(c.both(lost) == 0, "%d lost%s: %v", c.both(lost), when, c.why)
		w.That(c.both(changed) == 0, "%d changed%s: %v", c.both(changed), when, c.why)
		w.That(c.both(cut) <= r.cut, "%d cut%s, more than %d: %v", c.both(cut), when, r.cut, c.why)
		if when == atSIGTERM {
			continue // any response is enough there
		}
		w.That(c.mayRetry[failed] == 0 || r.fail == anything, "%d failed that may be retried%s: %v", c.mayRetry[failed], when, c.why)
		w.That(c.others[failed] == 0 || r.fail >= ambiguous, "%d of the others failed%s: %v", c.others[failed], when, c.why)
	}
	for what, n := range r.counts.why {
		is := len(r.reasons) == 0 || slices.ContainsFunc(r.reasons, func(reason string) bool { return strings.Contains(what, reason) })
		w.That(is, "%d failed, not for %s: %s", n, strings.Join(r.reasons, " or "), what)
	}
	w.That(r.times > 0, "it had no effect: no %s", r.what)
	w.That(r.again && r.recovered >= 0, "clients were not served again within %v", patience)
	w.That(!r.again || r.recovered <= recoverWithin, "served again only after %v", r.recovered)
	w.That(r.inFlight > 0 || r.instant, "no request was in flight at the SIGTERM")
	ended := total(r.drained.mayRetry) + total(r.drained.others)
	w.That(ended >= r.inFlight, "%d requests were in flight at the SIGTERM, and %d came to an end", r.inFlight, ended)
	w.That(r.exit == exitWell, "after the SIGTERM: %s", r.exit)
	return w.All()
}

// exitWell is how a process ends without an error.
const exitWell = "exit status 0"

// summary describes the result in a line.
func (r *result) summary() string {
	if wrong := r.wrong(); r.err == "" && len(wrong) > 0 {
		return strings.Join(wrong, "; ")
	} else if r.err == "" {
		return "as expected"
	}
	return r.err
}

const header = "| fault | how it was made | evidence | requests: may be retried, others | failed | cut | lost | changed | served meanwhile | served again after | SIGTERM in its middle: in flight, served, refused or failed, cut, lost |\n|---|---|---|---|---|---|---|---|---|---|---|\n"

func (r *result) print(w io.Writer) {
	if r.err != "" {
		fmt.Fprintf(w, "| %s | %s | %s |||||||||\n", r.name, r.how, r.err)
		return
	}
	c, d := r.counts, r.drained
	fmt.Fprintf(w, "| %s | %s | %d %s | %d, %d | %d, %d | %d, %d | %d | %d | %d | %s | %d: %d, %d, %d, %d |\n", r.name, r.how, r.times, r.what,
		total(c.mayRetry), total(c.others), c.mayRetry[failed], c.others[failed], c.mayRetry[cut], c.others[cut], c.both(lost), c.both(changed), r.meanwhile, r.recovered.Round(time.Millisecond),
		r.inFlight, d.both(served), d.both(failed), d.both(cut), d.both(lost))
}
