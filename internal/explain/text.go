package explain

import (
	"fmt"
	"io"

	"github.com/retryproxy/retryproxy/internal/text"
	"github.com/retryproxy/retryproxy/policy"
)

// Text writes v for people.
func (v *View) Text(w io.Writer, p text.Paint) {
	fmt.Fprintln(w, p.Bold(v.Request))
	if v.Hint != "" {
		fmt.Fprintf(w, "%s        %s\n", p.Yellow("hint"), v.Hint)
	}
	if v.ModelInPath {
		fmt.Fprintf(w, "model       %s, in its path\n", v.Model)
	} else if v.Model != "" {
		fmt.Fprintf(w, "model       %s, in its JSON body\n", v.Model)
	}
	if v.Route != "" {
		fmt.Fprintf(w, "route       %s, to %s\n", v.Route, v.Upstream)
	}
	if v.Nearest != nil {
		fmt.Fprintf(w, "nearest     %s: %s\n", v.Nearest.Route, v.Nearest.Why)
	}
	if v.Refused != nil {
		fmt.Fprintf(w, "refused     %s with %d: %s\n", p.Red(v.Refused.Reason), v.Refused.Status, v.Refused.Text)
		return
	}
	if v.DryRun {
		fmt.Fprintf(w, "%s     nothing is retried, except if a pooled connection was stale; the table shows what would be retried without dry run\n", p.Yellow("dry run"))
	}
	word := p.Yellow("in part")
	if v.Retryable {
		word = p.Green("yes")
	}
	fmt.Fprintf(w, "retriable   %s: %s\n", word, v.Why)
	fmt.Fprintf(w, "retries     at most %d, while time, budget and memory for the body allow\n            not counted: %s\n", v.MaxRetries, policy.NotCounted)
	if v.StreamSeconds > 0 {
		fmt.Fprintf(w, "streams     an event stream is held back until its first content, for up to %gs; an error before that counts as the status that it reports\n", v.StreamSeconds)
	}
	fmt.Fprintln(w)

	t := text.NewTable(w)
	t.Row("WHAT THE UPSTREAM DOES", "RETRIED", "WAIT BEFORE", "WHY")
	for _, f := range v.Failures {
		again, wait := "no", "-"
		if f.Retried {
			again, wait = "yes", waitText(&f)
		}
		t.Row(f.Text, again, wait, reasonText(&f))
	}
	t.Flush()
}

func waitText(f *caseView) string {
	a := &f.answer
	switch {
	case a.Decision.Free:
		return "none; not counted"
	case a.MaxWait == 0:
		return "none"
	case a.MinWait == a.MaxWait:
		return text.Span(a.MinWait)
	}
	return text.Span(a.MinWait) + " to " + text.Span(a.MaxWait)
}

func reasonText(f *caseView) string {
	if f.answer.Decision.Why == policy.ReasonNone {
		return "not a failure (RETRYPROXY_RETRY_ON)"
	}
	return f.words + " (" + f.Reason + ")"
}
