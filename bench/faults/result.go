//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// counts is what clients had of their requests.
type counts struct {
	MayRepeat [verdicts]int  `json:"may_be_repeated"` // by verdict: served, failed, cut, lost, changed
	Others    [verdicts]int  `json:"others"`
	Why       map[string]int `json:"why,omitempty"` // of those not served
}

func counted(events []event) counts {
	c := counts{Why: map[string]int{}}
	for _, e := range events {
		if e.mayRepeat {
			c.MayRepeat[e.verdict]++
		} else {
			c.Others[e.verdict]++
		}
		if e.verdict != served {
			c.Why[e.what]++
		}
	}
	return c
}

// both is the number of a verdict.
func (c counts) both(v verdict) int { return c.MayRepeat[v] + c.Others[v] }

func total(by [verdicts]int) (n int) {
	for _, m := range by {
		n += m
	}
	return n
}

func before(events []event, at time.Time) (some []event) {
	for _, e := range events {
		if !e.ended.After(at) {
			some = append(some, e)
		}
	}
	return some
}

// served0 counts the requests served before at.
func served0(events []event, at time.Time) int { return counted(before(events, at)).both(served) }

// recovered is the time from the end of the fault to the first response after it.
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
	Name       string        `json:"name"`
	How        string        `json:"how"`
	Error      string        `json:"error,omitempty"` // it could not be played
	Impossible bool          `json:"impossible,omitempty"`
	Felt       felt          `json:"felt"`
	Counts     counts        `json:"clients"` // from its begin until they were served again
	Meanwhile  int           `json:"served_meanwhile"`
	Recovered  time.Duration `json:"recovered_ns"`
	Again      bool          `json:"served_again"`
	// With a SIGTERM in its middle.
	Before  counts `json:"before_sigterm"`
	InHand  int    `json:"in_hand_at_sigterm"`
	Drained counts `json:"drained"`
	Exit    string `json:"exit"`

	expects expects
}

// recoverWithin is the longest that it may take until a request is served after
// the end of a fault: the proxy looks for its upstream at most every few seconds.
const recoverWithin = 10 * time.Second

// wrong is what was not as expected.
func (r *result) wrong() (all []string) {
	say := func(format string, a ...any) { all = append(all, fmt.Sprintf(format, a...)) }
	if r.Impossible {
		return nil
	}
	if r.Error != "" {
		return []string{r.Error}
	}
	const atSIGTERM = " at the SIGTERM"
	for when, c := range map[string]counts{"": r.Counts, " before the SIGTERM": r.Before, atSIGTERM: r.Drained} {
		if n := c.both(lost); n > 0 {
			say("%d lost%s: %v", n, when, c.Why)
		}
		if n := c.both(changed); n > 0 {
			say("%d changed%s: %v", n, when, c.Why)
		}
		if n := c.both(cut); n > r.expects.Cut {
			say("%d cut%s, more than %d: %v", n, when, r.expects.Cut, c.Why)
		}
		if when == atSIGTERM {
			continue // a response is enough, whichever
		}
		if n := c.MayRepeat[failed]; n > 0 && !r.expects.Fail {
			say("%d failed that may be retried%s: %v", n, when, c.Why)
		}
		if n := c.Others[failed]; n > 0 && !r.expects.Fail && !r.expects.OthersFail {
			say("%d of the others failed%s: %v", n, when, c.Why)
		}
	}
	if r.Felt.Times == 0 {
		say("nobody felt it: no %s", r.Felt.What)
	}
	switch {
	case !r.Again || r.Recovered < 0:
		say("clients were not served again within %v", patience)
	case r.Recovered > recoverWithin:
		say("served again only after %v", r.Recovered)
	}
	if r.InHand == 0 {
		say("no request was in hand at the SIGTERM")
	}
	if n := total(r.Drained.MayRepeat) + total(r.Drained.Others); n < r.InHand {
		say("%d requests were in hand at the SIGTERM, and %d came to an end", r.InHand, n)
	}
	if r.Exit != "exit status 0" {
		say("after the SIGTERM: %s", r.Exit)
	}
	return all
}

// hasSecondTry says whether what was not as expected may be the machine's fault.
func (r *result) hasSecondTry() bool {
	for _, c := range []counts{r.Counts, r.Before, r.Drained} {
		if c.both(lost)+c.both(changed) > 0 {
			return false
		}
	}
	ended := r.Error != "" || r.Exit == "exit status 0"
	return ended && len(r.wrong()) > 0
}

// summary is a line about it.
func (r *result) summary() string {
	switch wrong := r.wrong(); {
	case r.Error != "":
		return r.Error
	case len(wrong) > 0:
		return strings.Join(wrong, "; ")
	}
	return "as expected"
}

const header = "| fault | how it was made | what showed it | requests: may be retried, others | failed | cut | lost | changed | served meanwhile | served again after | SIGTERM in its middle: in hand, served, refused or failed, cut, lost |\n|---|---|---|---|---|---|---|---|---|---|---|\n"

func (r *result) print(w io.Writer) {
	if r.Error != "" {
		fmt.Fprintf(w, "| %s | %s | %s |||||||||\n", r.Name, r.How, r.Error)
		return
	}
	c, d := r.Counts, r.Drained
	pair := func(v verdict) string { return fmt.Sprintf("%d, %d", c.MayRepeat[v], c.Others[v]) }
	fmt.Fprintf(w, "| %s | %s | %d %s | %d, %d | %s | %s | %d | %d | %d | %s | %d: %d, %d, %d, %d |\n", r.Name, r.How, r.Felt.Times, r.Felt.What,
		total(c.MayRepeat), total(c.Others), pair(failed), pair(cut), c.both(lost), c.both(changed), r.Meanwhile, r.Recovered.Round(time.Millisecond),
		r.InHand, d.both(served), d.both(failed), d.both(cut), d.both(lost))
}
