//go:build linux

// Command faults runs a retryproxy between a few clients and an upstream, all of
// them processes or connections of their own, makes one fault at a time and tells
// what clients saw of it: requests that failed, requests that were accepted and never
// answered, and how long after the end of the fault one was served again. Then it
// makes the same fault once more and ends the proxy by SIGTERM in its middle.
//
// Every response says which request it belongs to, and the upstream checks every
// body, so that nothing can be changed unseen. Each fault has its expectation
// beside it; one that is missed, or a fault that nobody felt, is exit code 1.
//
// Faults of the network happen in network namespaces that end with their row.
// Linux only. What the machine cannot do is a row that says so.
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
	rig.Parallel(atOnce, len(rows), func(i int) { rows[i] = o.playOne(ctx, &chosen[i], stderr) })
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

// counts is what clients had of their requests.
type counts struct {
	mayRepeat, others [verdicts]int
	why               map[string]int // of those not served
}

func counted(events []event) counts {
	c := counts{why: map[string]int{}}
	for _, e := range events {
		if e.mayRepeat {
			c.mayRepeat[e.verdict]++
		} else {
			c.others[e.verdict]++
		}
		if e.verdict != served {
			c.why[e.what]++
		}
	}
	return c
}

// both is the number of a verdict.
func (c counts) both(v verdict) int { return c.mayRepeat[v] + c.others[v] }

func total(by [verdicts]int) (n int) {
	for _, m := range by {
		n += m
	}
	return n
}

// until are the events that ended no later than at.
func until(events []event, at time.Time) []event {
	return slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.ended.After(at) })
}

// recovered is the time from the end of the fault to the first response after it; -1: there was none.
func recovered(events []event, ended time.Time) time.Duration {
	first := time.Duration(-1)
	for _, e := range events {
		if d := e.ended.Sub(ended); e.verdict == served && d > 0 && (first < 0 || d < first) {
			first = d
		}
	}
	return first
}

// result is what a fault came to.
type result struct {
	*fault
	err        string // it could not be played
	impossible bool
	times      int64         // the fault showed
	counts     counts        // from its begin until clients were served again
	meanwhile  int           // requests served
	recovered  time.Duration // see recovered
	again      bool          // clients were served as before
	// With a SIGTERM in its middle.
	before  counts
	inHand  int
	drained counts
	exit    string
}

// recoverWithin is the longest that it may take until a request is served after
// the end of a fault: the proxy looks for its upstream at most every few seconds.
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
		w.That(c.mayRepeat[failed] == 0 || r.fail == anything, "%d failed that may be retried%s: %v", c.mayRepeat[failed], when, c.why)
		w.That(c.others[failed] == 0 || r.fail >= ambiguous, "%d of the others failed%s: %v", c.others[failed], when, c.why)
	}
	for what, n := range r.counts.why {
		w.That(strings.Contains(what, r.reason), "%d failed, not for %s: %s", n, r.reason, what)
	}
	w.That(r.times > 0, "nobody felt it: no %s", r.what)
	w.That(r.again && r.recovered >= 0, "clients were not served again within %v", patience)
	w.That(!r.again || r.recovered <= recoverWithin, "served again only after %v", r.recovered)
	w.That(r.inHand > 0, "no request was in hand at the SIGTERM")
	ended := total(r.drained.mayRepeat) + total(r.drained.others)
	w.That(ended >= r.inHand, "%d requests were in hand at the SIGTERM, and %d came to an end", r.inHand, ended)
	w.That(r.exit == exitWell, "after the SIGTERM: %s", r.exit)
	return w.All()
}

// exitWell is how a process ends that has nothing to complain of.
const exitWell = "exit status 0"

// hasSecondTry reports whether what was not as expected may be the machine's fault.
func (r *result) hasSecondTry() bool {
	for _, c := range []counts{r.counts, r.before, r.drained} {
		if c.both(lost)+c.both(changed) > 0 {
			return false
		}
	}
	return (r.err != "" || r.exit == exitWell) && len(r.wrong()) > 0
}

// summary is a line about it.
func (r *result) summary() string {
	if wrong := r.wrong(); r.err == "" && len(wrong) > 0 {
		return strings.Join(wrong, "; ")
	} else if r.err == "" {
		return "as expected"
	}
	return r.err
}

const header = "| fault | how it was made | what showed it | requests: may be retried, others | failed | cut | lost | changed | served meanwhile | served again after | SIGTERM in its middle: in hand, served, refused or failed, cut, lost |\n|---|---|---|---|---|---|---|---|---|---|---|\n"

func (r *result) print(w io.Writer) {
	if r.err != "" {
		fmt.Fprintf(w, "| %s | %s | %s |||||||||\n", r.name, r.how, r.err)
		return
	}
	c, d := r.counts, r.drained
	fmt.Fprintf(w, "| %s | %s | %d %s | %d, %d | %d, %d | %d, %d | %d | %d | %d | %s | %d: %d, %d, %d, %d |\n", r.name, r.how, r.times, r.what,
		total(c.mayRepeat), total(c.others), c.mayRepeat[failed], c.others[failed], c.mayRepeat[cut], c.others[cut], c.both(lost), c.both(changed), r.meanwhile, r.recovered.Round(time.Millisecond),
		r.inHand, d.both(served), d.both(failed), d.both(cut), d.both(lost))
}
