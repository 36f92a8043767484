package main

import (
	"fmt"

	"github.com/retryproxy/retryproxy/policy"
)

func printExplain(c *call, v *explainView) {
	p, w := c.paint(c.stdout), c.stdout
	fmt.Fprintln(w, p.bold(v.Request))
	if v.Route != "" {
		fmt.Fprintf(w, "route       %s, to %s\n", v.Route, v.Upstream)
	}
	if v.Refused != nil {
		fmt.Fprintf(w, "refused     %s with %d: %s\n", p.red(v.Refused.Reason), v.Refused.Status, v.Refused.Text)
		return
	}
	if v.DryRun {
		fmt.Fprintf(w, "%s     nothing is retried except on a stale pooled connection; the rest says what would be\n", p.yellow("dry run"))
	}
	word := p.yellow("no")
	if v.Repeatable {
		word = p.green("yes")
	}
	fmt.Fprintf(w, "retriable   %s: %s\n", word, v.Why)
	fmt.Fprintf(w, "retries     at most %d, while time, budget and memory for the body allow\n\n", v.MaxRetries)

	t := newTable(w)
	t.row("IF THE UPSTREAM'S RESPONSE IS", "RETRIED", "WAIT BEFORE", "REASON")
	for _, f := range v.Failures {
		again, wait := "no", "-"
		if f.Repeated {
			again, wait = "yes", waitText(&f)
		}
		t.row(f.Text, again, wait, reasonText(&f))
	}
	t.flush()
}

func waitText(f *caseView) string {
	a := &f.answer
	switch {
	case a.Decision.Free:
		return "none, and free"
	case a.MaxWait == 0:
		return "none"
	case a.MinWait == a.MaxWait:
		return span(a.MinWait)
	}
	return span(a.MinWait) + " to " + span(a.MaxWait)
}

func reasonText(f *caseView) string {
	if f.answer.Decision.Why == policy.ReasonNone {
		return "not a failure (RETRYPROXY_RETRY_ON)"
	}
	return f.Reason
}
