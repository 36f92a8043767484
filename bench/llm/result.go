package main

import (
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// row is what one client did by one way.
type row struct {
	Client  string `json:"client"`
	Retries bool   `json:"client_retries"`
	Through string `json:"through"`

	Jobs     int     `json:"jobs"`
	Good     int     `json:"good"`
	Failed   int     `json:"failed_before_content"` // though it could have been repeated
	Lost     int     `json:"lost"`                  // billed, and then cut off before the first content
	CutAfter int     `json:"cut_after_content"`
	Refused  int     `json:"account_used_up"`
	Seconds  float64 `json:"seconds"`

	Requests   int     `json:"requests"`
	Limited    int     `json:"responses_429_of_a_rate_limit"`
	Early      int     `json:"early"`
	Futile     int     `json:"futile"`
	Twice      int     `json:"billed_twice"`
	Changed    int     `json:"changed"`
	Compared   int     `json:"compared"`         // bodies that were looked at
	TokenShare float64 `json:"token_limit_used"` // of what the limit allowed in the time of the load

	AddedLatency *float64       `json:"added_latency_us"` // until the first content, median of the pairs; nil for direct
	Faults       map[string]int `json:"faults"`
	Failures     []string       `json:"failures,omitempty"` // a few

	judged, short, paced bool
}

func (r *row) title() string {
	retries := "without retries"
	if r.Retries {
		retries = "with retries"
	}
	return r.Client + " " + retries + ", " + r.Through
}

// broken returns the promises that the row breaks, and what it cannot prove.
func (r *row) broken() (all []string) {
	if !r.judged {
		return nil
	}
	for _, b := range []struct {
		n    int
		what string
	}{
		{r.Early, "requests came earlier than the provider asked for"},
		{r.Twice, "jobs were billed twice"},
		{r.Futile, "requests came after the account was used up"},
		{r.Failed, "jobs failed before their first content: " + strings.Join(r.Failures, "; ")},
		{r.Changed, "responses were changed"},
	} {
		if b.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", b.n, b.what))
		}
	}
	if r.Compared < r.Good {
		all = append(all, fmt.Sprintf("nothing is proved about %d good responses, as they do not say which they are", r.Good-r.Compared))
	}
	if r.short {
		return all
	}
	for name, n := range r.Faults {
		if n == 0 {
			all = append(all, "nothing is proved about this fault, as it did not happen: "+name)
		}
	}
	all = append(all, r.unpaced()...)
	slices.Sort(all)
	return all
}

// What a row that paces itself must keep.
const (
	most429s      = 0.01
	leastUsed     = 0.97
	mostLatencyUS = 1000
)

// unpaced returns what a row misses that should use the rate limits and meet none.
func (r *row) unpaced() (all []string) {
	if !r.paced {
		if r.Limited == 0 {
			all = append(all, "nothing is proved about rate limits: there was no 429")
		}
		return all
	}
	if n := r.share429(); n >= most429s {
		all = append(all, fmt.Sprintf("%.1f %% of the responses were 429s of a rate limit", 100*n))
	}
	if r.TokenShare < leastUsed {
		all = append(all, fmt.Sprintf("%.1f %% of the token limit were used", 100*r.TokenShare))
	}
	if r.AddedLatency != nil && *r.AddedLatency > mostLatencyUS {
		all = append(all, fmt.Sprintf("%.2f ms were added to the first content", *r.AddedLatency/1000))
	}
	return all
}

// share429 is the share of responses that were rejected by a rate limit.
func (r *row) share429() float64 { return float64(r.Limited) / float64(max(r.Requests, 1)) }

const header = "| client | its retries | through | jobs | early | billed twice | futile | failed before content | lost after the bill | changed | 429s | token limit used | added to first content |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"

func (r *row) print(w io.Writer) {
	retries := "off"
	if r.Retries {
		retries = "on"
	}
	latency := "—"
	if r.AddedLatency != nil {
		latency = fmt.Sprintf("%.2f ms", *r.AddedLatency/1000)
	}
	fmt.Fprintf(w, "| %s | %s | %s | %d | %d | %d | %d | %d | %d | %d | %.1f %% | %.1f %% | %s |\n", r.Client, retries, r.Through, r.Jobs,
		r.Early, r.Twice, r.Futile, r.Failed, r.Lost, r.Changed, 100*r.share429(), 100*r.TokenShare, latency)
}

// document is everything that was measured.
type document struct {
	rig.Document
	Rows []*row `json:"rows"`
}

func newDocument(o *options, args []string) *document {
	programs := []string{rig.Version(o.proxy, "version")}
	if slices.Contains(o.through, haproxy) {
		programs = append(programs, rig.Version(haproxy, "-v"))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if strings.HasPrefix(m.Path, "github.com/openai/") || strings.HasPrefix(m.Path, "github.com/anthropics/") {
				programs = append(programs, m.Path+" "+m.Version)
			}
		}
	}
	return &document{Document: rig.NewDocument(args, programs...)}
}

// tell prints the table, as Markdown.
func (d *document) tell(w io.Writer) {
	d.Head(w)
	fmt.Fprintf(w, "\n%s", header)
	for _, r := range d.Rows {
		r.print(w)
	}
}
