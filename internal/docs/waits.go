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
		rows = append(rows, []string{code(r.Header), r.Form.String(), only, places.ReplaceAllString(r.Source, "")})
	}
	return markdown([]string{"Header", "Value", "Counts when", "Sent by"}, rows)
}

// WaitFormList returns the list in docs/reference/retry-after.md of waits in error bodies.
func WaitFormList() string {
	var members, milliseconds, phrases []string
	for _, f := range apierror.WaitForms() {
		switch {
		case f.Phrase != "":
			phrases = append(phrases, code(f.Example))
		case f.Unit == time.Millisecond:
			milliseconds = append(milliseconds, code(f.Key))
		default:
			members = append(members, code(f.Key))
		}
	}
	var b strings.Builder
	paragraph(&b, "- ", "Members in seconds, as a duration or as a time: "+strings.Join(members, ", "))
	paragraph(&b, "- ", "Members in milliseconds, as a duration or as a time: "+strings.Join(milliseconds, ", "))
	paragraph(&b, "- ", "Texts in a message: "+strings.Join(phrases, ", "))
	return b.String()
}

// SignTable returns a table in docs/reference/retry-after.md of errors that end retries, by vendor.
// Package apierror has the source of each.
func SignTable(entries []apierror.Entry) string {
	var vendors []string
	signs := map[string][2][]string{}
	for _, e := range entries {
		if _, known := signs[e.Vendor]; !known {
			vendors = append(vendors, e.Vendor)
		}
		of := signs[e.Vendor]
		kind := 0
		if apierror.IsText(e.Sign) {
			kind = 1
		}
		of[kind] = append(of[kind], code(e.Sign))
		signs[e.Vendor] = of
	}
	var rows [][]string
	for _, v := range vendors {
		rows = append(rows, []string{v, strings.Join(signs[v][0], ", "), strings.Join(signs[v][1], ", ")})
	}
	return markdown([]string{"Vendor", "Codes", "Texts"}, rows)
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

// places matches where a source says it: titles of pages, files and numbers of threads.
var places = regexp.MustCompile(", \"[^\"]*\"| `[^`]*\\.(?:py|ts|rs)`| (?:pull request|issue) [0-9]+")

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
