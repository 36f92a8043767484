package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// tell prints what was measured, for people.
func (d *document) tell(w io.Writer) {
	fmt.Fprintf(w, "Machine: %s. Commit %s.\n%s. %s.\nQuota of the upstream: %d requests/s.\n\n", d.Machine, d.Commit, d.Proxy, d.Engine, d.RateLimit)
	d.tellArms(w)
	for _, r := range d.Arms {
		r.tellPeriods(w)
	}
	d.tellHold(w)
	d.tellRates(w)
	d.tellCost(w)
	d.tellGoals(w)
}

// columns writes rows under a title; the first column is text.
func columns(w io.Writer, rows ...string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		fmt.Fprintln(t, row+"\t")
	}
	_ = t.Flush()
	fmt.Fprintln(w)
}

func (d *document) tellArms(w io.Writer) {
	if len(d.Arms) == 0 {
		return
	}
	rows := []string{"arm\tcallers' requests\tsent\t429 at the upstream\tgood/s\tof rate limit\tsent per good\t429 to clients\tfailed\tlate\tp50\tp99\tCPU µs/request\tengine commands/s\tkeys"}
	for _, r := range d.Arms {
		row := fmt.Sprintf("%s\t%d\t%d\t%.2f %%\t%.1f\t%.1f %%\t%.2f\t%d\t%d\t%d\t%.2f s\t%.2f s\t%.0f", r.Name, r.requests(), r.Sent, 100*r.LimitedShare,
			float64(r.Good)/r.Time, 100*r.GoodShare, r.Amplification, r.Turned, r.Failed, r.Late, r.P50, r.P99, r.microseconds())
		if r.Stock != nil {
			row += fmt.Sprintf("\t%.0f\t%d", float64(r.Commands)/r.Time, r.Stock.Keys)
		} else {
			row += "\t\t"
		}
		rows = append(rows, row)
	}
	columns(w, rows...)
	for _, r := range d.Arms {
		if r.Stock == nil {
			continue
		}
		fmt.Fprintf(w, "The engine keeps for %s:", r.Name)
		for _, key := range slices.Sorted(maps.Keys(r.Stock.Bytes)) {
			fmt.Fprintf(w, " %s %d bytes;", key, r.Stock.Bytes[key])
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

func (r *armResult) tellPeriods(w io.Writer) {
	if len(r.Periods) == 0 {
		return
	}
	rows := []string{r.Name + "\tfrom\tto\tgood/s\tof rate limit\t429 at the upstream\t429 to clients\tfailed\tlate\tengine commands/s"}
	for _, p := range r.Periods {
		rows = append(rows, fmt.Sprintf("%s\t%.1f s\t%.1f s\t%.1f\t%.1f %%\t%.2f %%\t%d\t%d\t%d\t%.0f", p.Name, p.From, p.To,
			float64(p.Good)/(p.To-p.From), 100*p.GoodShare, 100*p.LimitedShare, p.Turned, p.Failed, p.Late, float64(p.Commands)/(p.To-p.From)))
	}
	columns(w, rows...)
}

func (d *document) tellHold(w io.Writer) {
	if d.Hold == nil {
		return
	}
	rows := []string{"pause\tall held after\trequests meanwhile\trequests/s before"}
	for i, p := range d.Hold.Pauses {
		rows = append(rows, fmt.Sprintf("%d\t%.1f ms\t%d\t%.0f", i+1, p.Until, p.Others, p.Before))
	}
	columns(w, append(rows, fmt.Sprintf("median\t%.1f ms\t\t", d.Hold.Median))...)
}

func (d *document) tellRates(w io.Writer) {
	if len(d.Rates) == 0 {
		return
	}
	rows := []string{"rate limit/s\trequests/s\tengine commands/s\tCPU of the engine\tCPU of all processes"}
	for _, r := range d.Rates {
		rateLimit := fmt.Sprint(r.RateLimit)
		if r.RateLimit == 0 {
			rateLimit = "not shared"
		}
		rows = append(rows, fmt.Sprintf("%s\t%.0f\t%.0f\t%.1f %%\t%.1f %%", rateLimit, r.Requests, r.Commands, 100*r.CPU, 100*r.Proxies))
	}
	columns(w, rows...)
	top := d.Rates[len(d.Rates)-1].By
	var names []string
	for name := range top {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(top[b]*1e3) - int(top[a]*1e3) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %.1f", name, top[name])
	}
	fmt.Fprintf(w, "Commands a second at the highest rate, those that scripts ran included: %s\n\n", strings.Join(names, ", "))
}

func (d *document) tellCost(w io.Writer) {
	if len(d.Cost) == 0 {
		return
	}
	rows := []string{"one process\tCPU µs/request\tto\tratio\tlowest\thighest"}
	for _, c := range d.Cost {
		rows = append(rows, fmt.Sprintf("%s\t%.2f\t%s\t%.3f\t%.3f\t%.3f", c.Name, c.Median, c.To, c.Ratio, c.Low, c.High))
	}
	columns(w, rows...)
}

func (d *document) tellGoals(w io.Writer) {
	for _, g := range d.Goals {
		met := "met   "
		if !g.Met {
			met = "MISSED"
		}
		fmt.Fprintf(w, "%s  %s: %s (goal: %s)\n", met, g.What, g.Is, g.Goal)
	}
}
