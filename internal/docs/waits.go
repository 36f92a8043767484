package docs

import (
	"regexp"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/policy/apierror"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/policy/retryafter"
	"github.com/retryproxy/retryproxy/policy/tokens"
)

// WaitTable returns the table in docs/reference/retry-after.md of headers that state a wait.
func WaitTable() string {
	var rows [][]string
	for _, r := range retryafter.Rows() {
		only := "0 is left: " + code(r.Left)
		switch {
		case r.Order():
			only = "always"
		case r.Spent != "":
			only = code(r.Left) + " is " + code(r.Spent)
		case r.Form == retryafter.FormStructured:
			only = "0 is left: `r` or `remaining`"
		}
		rows = append(rows, []string{code(r.Header), r.Form.String(), only, r.Source})
	}
	return markdown([]string{"Header", "Value", "Counts when", "Source"}, rows)
}

// WaitFormTable returns the table in docs/reference/retry-after.md of waits in error bodies.
func WaitFormTable() string {
	var rows [][]string
	for _, f := range apierror.WaitForms() {
		form, value := code(f.Key), "seconds, a duration or a time"
		switch {
		case f.Bare:
			form, value = code(f.Phrase), "a duration, or seconds"
		case f.Phrase != "":
			form, value = code(f.Phrase), "a duration"
		case f.Unit == time.Millisecond:
			value = "milliseconds, a duration or a time"
		}
		rows = append(rows, []string{form, value, code(f.Example)})
	}
	return markdown([]string{"Member, or text in a message", "Value", "Example"}, rows)
}

// SignTable returns a table in docs/reference/retry-after.md of errors that end retries. Package
// apierror has the source of each.
func SignTable(entries []apierror.Entry) string {
	var rows [][]string
	for _, e := range entries {
		kind := "code"
		if apierror.IsText(e.Sign) {
			kind = "text"
		}
		rows = append(rows, []string{code(e.Sign), kind, e.Vendor})
	}
	return markdown([]string{"Sign", "Kind", "Vendor"}, rows)
}

// markdown returns a table without a trailing blank line.
func markdown(header []string, rows [][]string) string {
	var b strings.Builder
	table(&b, header, rows)
	return strings.TrimSuffix(b.String(), "\n")
}

// LimitTable returns the table in docs/reference/llm.md of headers from which limits are learned.
func LimitTable() string {
	kinds := [ratelimit.NumKinds]string{ratelimit.Requests: "requests", ratelimit.Tokens: "tokens", ratelimit.InputTokens: "input tokens", ratelimit.OutputTokens: "output tokens"}
	models := map[ratelimit.Model]string{ratelimit.Refilling: "refilling", ratelimit.Windowed: "windowed"}
	var rows [][]string
	for _, r := range retryafter.LimitRows() {
		rows = append(rows, []string{code(r.Remaining), kinds[r.Kind], models[r.Model], vendor(r.Source)})
	}
	return markdown([]string{"Header with what is left", "Counts", "Renewal", "Sent by"}, rows)
}

// titles matches what a source says besides a name: titles of pages, files and remarks.
var titles = regexp.MustCompile(",? ?\"[^\"]*\"|, `[^`]*`| \\([^)]*\\)|: .*")

// vendor returns whom a source is about.
func vendor(source string) string { return titles.ReplaceAllString(source, "") }

// PathTable returns the table in docs/reference/llm.md of paths that name a model.
func PathTable() string {
	var rows [][]string
	for _, f := range tokens.PathForms() {
		forms := make([]string, len(f.After))
		for i, after := range f.After {
			if after == "/" || after == ":" {
				after += "..."
			}
			forms[i] = code("..." + f.Before + "MODEL" + after)
		}
		rows = append(rows, []string{strings.Join(forms, ", "), vendor(f.Source)})
	}
	return markdown([]string{"Path", "API"}, rows)
}
