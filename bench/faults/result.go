//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

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

// wrong is what was not as expected.
func (r *result) wrong() (all []string) {
	switch {
	case r.impossible:
		return nil
	case r.err != "":
		return []string{r.err}
	}
	say := func(bad bool, format string, a ...any) {
		if bad {
			all = append(all, fmt.Sprintf(format, a...))
		}
	}
	const atSIGTERM = " at the SIGTERM"
	for when, c := range map[string]counts{"": r.counts, " before the SIGTERM": r.before, atSIGTERM: r.drained} {
		say(c.both(lost) > 0, "%d lost%s: %v", c.both(lost), when, c.why)
		say(c.both(changed) > 0, "%d changed%s: %v", c.both(changed), when, c.why)
		say(c.both(cut) > r.cut, "%d cut%s, more than %d: %v", c.both(cut), when, r.cut, c.why)
		judged := when != atSIGTERM // there a response is enough, whichever
		say(judged && c.mayRepeat[failed] > 0 && r.fail < anything, "%d failed that may be retried%s: %v", c.mayRepeat[failed], when, c.why)
		for what, n := range c.why {
			say(when == "" && !strings.Contains(what, r.reason), "%d failed, not for %s: %s", n, r.reason, what)
		}
		say(judged && c.others[failed] > 0 && r.fail < ambiguous, "%d of the others failed%s: %v", c.others[failed], when, c.why)
	}
	say(r.times == 0, "nobody felt it: no %s", r.what)
	say(!r.again || r.recovered < 0, "clients were not served again within %v", patience)
	say(r.again && r.recovered > recoverWithin, "served again only after %v", r.recovered)
	say(r.inHand == 0, "no request was in hand at the SIGTERM")
	ended := total(r.drained.mayRepeat) + total(r.drained.others)
	say(ended < r.inHand, "%d requests were in hand at the SIGTERM, and %d came to an end", r.inHand, ended)
	say(r.exit != exitWell, "after the SIGTERM: %s", r.exit)
	return all
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
