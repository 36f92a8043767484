package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/series"
)

// report is the result of a run.
type report struct {
	Seed       uint64             `json:"seed"`
	Seconds    float64            `json:"seconds"`
	Clients    int                `json:"clients"`
	Requests   uint64             `json:"requests"`
	PerSecond  float64            `json:"requests_per_second"`
	Attempts   uint64             `json:"attempts_seen_by_upstream"`
	SentBytes  int64              `json:"request_body_bytes"`
	GotBytes   int64              `json:"response_body_bytes"`
	Outcomes   map[string]float64 `json:"outcomes"`
	Retries    map[string]float64 `json:"retries"`
	Cut        uint64             `json:"responses_cut_as_they_should"`
	Own        uint64             `json:"answers_of_the_proxy_itself"`
	Unseen     uint64             `json:"of_these_never_at_the_upstream"`
	Lost       uint64             `json:"answers_lost_to_a_reset_upload"`
	Stray      uint64             `json:"stray_408"`
	Late       uint64             `json:"late_attempts"`
	PeakMemory float64            `json:"resident_bytes_at_end"`
	Before     level              `json:"idle_before"`
	After      level              `json:"idle_after"`
	Violations []string           `json:"violations"`
}

func newReport(r *session, s series.Series, after level, took time.Duration) *report {
	return &report{
		Seed: r.o.seed, Seconds: math.Round(took.Seconds()*10) / 10, Clients: r.o.clients,
		Requests: r.team.sent.Load(), PerSecond: math.Round(float64(r.team.sent.Load()) / took.Seconds()),
		Attempts: r.upstream.heads.Load(), SentBytes: r.team.up.Load(), GotBytes: r.team.down.Load(),
		Outcomes: nonZero(s.By("outcomes_total", "outcome")), Retries: nonZero(s.By("retries_total", "reason")),
		Cut: r.judge.cut.Load(), Own: r.judge.own.Load(), Unseen: r.judge.unseen.Load(), Lost: r.judge.lost.Load(), Stray: r.judge.stray.Load(), Late: r.ledger.late.Load(),
		PeakMemory: s["process_resident_memory_bytes"], Before: r.before, After: after,
		Violations: append([]string{}, r.ledger.report()...),
	}
}

func nonZero(m map[string]float64) map[string]float64 {
	for k, v := range m {
		if v == 0 {
			delete(m, k)
		}
	}
	return m
}

func gaveUp(outcomes map[string]float64) float64 {
	n := 0.0
	for k, v := range outcomes {
		if strings.HasPrefix(k, "gave_up_") {
			n += v
		}
	}
	return n
}

// print writes the result for people, or as JSON.
func (r *report) print(w io.Writer, asJSON bool) {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.Encode(r)
		return
	}
	const mib = 1 << 20
	fmt.Fprintf(w, "seed %d: %d requests in %.0f s (%.0f/s), %d attempts at the upstream, %d MiB up, %d MiB down\n",
		r.Seed, r.Requests, r.Seconds, r.PerSecond, r.Attempts, r.SentBytes/mib, r.GotBytes/mib)
	fmt.Fprintf(w, "cut as they should %d, answers of the proxy itself %d (%d never at the upstream), lost to a reset upload %d, stray 408 %d, attempts read late %d\n",
		r.Cut, r.Own, r.Unseen, r.Lost, r.Stray, r.Late)
	fmt.Fprintf(w, "idle before: %+v\nidle after:  %+v, %.0f MiB resident\n", r.Before, r.After, r.PeakMemory/mib)
	table(w, "outcome", r.Outcomes)
	table(w, "retry for", r.Retries)
	if len(r.Violations) == 0 {
		fmt.Fprintln(w, "no violation")
		return
	}
	fmt.Fprintf(w, "VIOLATIONS:\n  %s\n", strings.Join(r.Violations, "\n  "))
}

func table(w io.Writer, title string, counts map[string]float64) {
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	sort.Slice(names, func(i, k int) bool { return counts[names[i]] > counts[names[k]] })
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%s\tcount\t\n", title)
	for _, name := range names {
		fmt.Fprintf(t, "%s\t%.0f\t\n", name, counts[name])
	}
	t.Flush()
}
