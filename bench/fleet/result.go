package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/draw"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/ctl/plot"
	"github.com/retryproxy/retryproxy/ctl/plot/picture"
)

// document is everything that was measured.
type document struct {
	rig.Document
	RateLimit int           `json:"rate_limit_per_second"`
	Processes int           `json:"processes"`
	Arms      []*armResult  `json:"arms,omitempty"`
	Spread    []pauseResult `json:"spread,omitempty"`
	Cost      []*costResult `json:"cost,omitempty"`
	Goals     []goal        `json:"goals"`
}

// armResult is the result of an arm. Its counts leave out the first seconds.
type armResult struct {
	Name         string         `json:"name"`
	About        string         `json:"about"`
	Counts       rig.Counts     `json:"counts"`
	Time         float64        `json:"seconds_counted"`
	LimitedShare float64        `json:"share_of_429_at_the_upstream"`
	GoodShare    float64        `json:"good_responses_share_of_rate_limit"`
	Kinds        map[string]int `json:"failures,omitempty"` // of the whole arm
	P50          float64        `json:"p50_seconds"`        // of the whole arm
	P99          float64        `json:"p99_seconds"`
	CPU          time.Duration  `json:"cpu_nanoseconds"`        // of all proxies
	Stock        *stock         `json:"engine_keeps,omitempty"` // at the end
	Periods      []period       `json:"periods,omitempty"`
	Seconds      []rig.Counts   `json:"seconds"`
}

// period is the part of an arm between two steps on the engine.
type period struct {
	Name         string     `json:"name"`
	From         float64    `json:"from_seconds"`
	To           float64    `json:"to_seconds"`
	Counts       rig.Counts `json:"counts"`
	LimitedShare float64    `json:"share_of_429_at_the_upstream"`
	GoodShare    float64    `json:"good_responses_share_of_rate_limit"`
}

func (r *armResult) sumUp(s *stage, from, to time.Duration) {
	shares := func(from, to float64) (c rig.Counts, limited, good float64) {
		c = s.line.Sum(duration(from), duration(to))
		return c, limitedShare(c), float64(c[rig.Good]) / (float64(s.o.rateLimit) * (to - from))
	}
	r.Time = (to - from).Seconds()
	r.Counts, r.LimitedShare, r.GoodShare = shares(from.Seconds(), to.Seconds())
	r.Kinds = kinds(s.line.Sum(0, time.Hour))
	r.P50, r.P99 = s.line.Within(0.5).Seconds(), s.line.Within(0.99).Seconds()
	for i := range r.Periods {
		p := &r.Periods[i]
		if p.To = to.Seconds(); i+1 < len(r.Periods) {
			p.To = r.Periods[i+1].From
		}
		p.Counts, p.LimitedShare, p.GoodShare = shares(p.From, p.To)
	}
	r.Seconds = rig.Seconds(s.line.Ticks(to))
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// goal is a goal with the figure that was measured.
type goal struct {
	What string `json:"what"`
	Goal string `json:"goal"`
	Is   string `json:"is"`
	Met  bool   `json:"met"`
}

func (d *document) goal(met bool, what, wanted, is string) {
	d.Goals = append(d.Goals, goal{what, wanted, is, met})
}

// bounds are the figures of the goals.
type bounds struct {
	aloneLimited float64 // the load is a load: share of 429 alone at least
	limited      float64 // with the rate limit kept together: share of 429 at most
	good         float64 // and good responses as a share of the rate limit at least
	spread       float64 // ms until all pause, at most
	commands     float64 // of the engine, a second for each process, at most
	cost         float64 // CPU time per request to that alone, at most; 0: only that it was measured
}

// The goals on a quiet machine, and those that a small and busy one must reach. Goals that do not depend
// on the machine, such as no failed request, are the same for both.
var (
	wanted   = bounds{aloneLimited: 0.20, limited: 0.01, good: 0.97, spread: 50, commands: 110, cost: 1.02}
	generous = bounds{aloneLimited: 0.10, limited: 0.05, good: 0.70, spread: 500, commands: 110}
)

// judge compares the figures with the goals.
func (d *document) judge(short bool) {
	b := wanted
	if short {
		b = generous
	}
	alone := 0.0
	for _, r := range d.Arms {
		d.judgeArm(r, &b)
		switch r.Name {
		case "alone":
			alone = r.LimitedShare
			d.goal(alone >= b.aloneLimited, "share of 429s at the upstream, alone", "at least "+percent(b.aloneLimited), percent(alone))
		case "ratelimit":
			d.goal(r.LimitedShare < b.limited, "share of 429s at the upstream, ratelimit", "below "+percent(b.limited), percent(r.LimitedShare))
			d.goal(r.GoodShare >= b.good, "good responses as a share of the rate limit, ratelimit", "at least "+percent(b.good), percent(r.GoodShare))
			if d.Arms[0].Name == "alone" {
				d.goal(r.LimitedShare < alone/4, "share of 429s at the upstream, ratelimit to alone", "below a quarter", fmt.Sprintf("%.3f", r.LimitedShare/max(alone, 1e-9)))
			}
		}
	}
	if len(d.Spread) > 0 {
		longest := slices.Max(d.untilPaused())
		d.goal(longest <= b.spread, fmt.Sprintf("time until all pause after a 429, longest of %d", len(d.Spread)), fmt.Sprintf("at most %.0f ms", b.spread), fmt.Sprintf("%.1f ms", longest))
	}
	for _, c := range d.Cost {
		what, is := "CPU time per request, "+c.Name+" to "+c.To, fmt.Sprintf("%.3f (%.3f to %.3f)", c.Ratio, c.Low, c.High)
		switch {
		case c.Name == c.To:
		case b.cost == 0:
			d.goal(c.Ratio > 0, what, "measured", is)
		default:
			d.goal(c.Ratio <= b.cost, what, fmt.Sprintf("at most %.2f", b.cost), is)
		}
	}
}

// judgeArm adds the goals that do not depend on the machine.
func (d *document) judgeArm(r *armResult, b *bounds) {
	n := failed(r.Counts)
	d.goal(n == 0 && len(r.Kinds) == 0, "failed requests, "+r.Name, "0", strings.TrimSuffix(fmt.Sprint(n, " ", r.Kinds), " map[]"))
	if r.Name == "ratelimit" || r.Name == "engine" { // if rate-limit pauses alone are shared, long waits are their price
		d.goal(r.Counts[rig.Late] == 0, "late requests, "+r.Name, "0", fmt.Sprint(r.Counts[rig.Late]))
	}
	if r.Stock != nil {
		each := float64(r.Counts[commands]) / r.Time / float64(d.Processes)
		d.goal(each <= b.commands, "commands a second at the engine for each process, "+r.Name, fmt.Sprintf("at most %.0f", b.commands), fmt.Sprintf("%.1f", each))
		d.goal(r.Stock.Forever == 0, "keys without expiry, "+r.Name, "0", fmt.Sprintf("%d of %d", r.Stock.Forever, r.Stock.Keys))
	}
	if len(r.Periods) > 0 {
		last := r.Periods[len(r.Periods)-1]
		d.goal(last.Counts[commands] > 0, "commands after the engine was "+last.Name, "some", fmt.Sprint(last.Counts[commands]))
	}
}

func (d *document) untilPaused() (all []float64) {
	for _, p := range d.Spread {
		all = append(all, p.Until)
	}
	return all
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }

// print writes the figures and goals as tables.
func (d *document) print(w io.Writer) {
	d.Head(w)
	fmt.Fprintf(w, "Rate limit of the upstream: %d requests/s.\n\n", d.RateLimit)
	table(w, "arm\tclients' requests\tsent\t429 at the upstream\tgood/s\tof rate limit\tsent per good\t429 to clients\tfailed\tlate\tp50\tp99\tCPU µs/request\tengine commands/s\tkeys", d.Arms, func(r *armResult) string {
		c, engine := r.Counts, "\t\t"
		if r.Stock != nil {
			engine = fmt.Sprintf("\t%.0f\t%d", float64(c[commands])/r.Time, r.Stock.Keys)
		}
		return fmt.Sprintf("%s\t%d\t%d\t%.2f %%\t%.1f\t%.1f %%\t%.2f\t%d\t%d\t%d\t%.2f s\t%.2f s\t%.0f", r.Name, requests(c), c[sent], 100*r.LimitedShare, float64(c[rig.Good])/r.Time, 100*r.GoodShare,
			share(c[sent], c[rig.Good]), c[got429], failed(c), c[rig.Late], r.P50, r.P99, float64(r.CPU.Microseconds())/float64(max(1, requests(c)))) + engine
	})
	for _, r := range d.Arms {
		table(w, r.Name+"\tfrom\tto\tgood/s\tof rate limit\t429 at the upstream\t429 to clients\tfailed\tlate\tengine commands/s", r.Periods, func(p period) string {
			c, took := p.Counts, p.To-p.From
			return fmt.Sprintf("%s\t%.1f s\t%.1f s\t%.1f\t%.1f %%\t%.2f %%\t%d\t%d\t%d\t%.0f", p.Name, p.From, p.To,
				float64(c[rig.Good])/took, 100*p.GoodShare, 100*p.LimitedShare, c[got429], failed(c), c[rig.Late], float64(c[commands])/took)
		})
	}
	if len(d.Spread) > 0 {
		fmt.Fprintf(w, "All paused after %.1f ms, the median of these pauses:\n", rig.Median(d.untilPaused()))
	}
	table(w, "all paused after\trequests meanwhile\trequests/s before", d.Spread, func(p pauseResult) string {
		return fmt.Sprintf("%.1f ms\t%d\t%.0f", p.Until, p.Others, p.Before)
	})
	table(w, "one process\tCPU µs/request\tto\tratio\tlowest\thighest", d.Cost, func(c *costResult) string {
		return fmt.Sprintf("%s\t%.2f\t%s\t%.3f\t%.3f\t%.3f", c.Name, c.Median, c.To, c.Ratio, c.Low, c.High)
	})
	for _, g := range d.Goals {
		fmt.Fprintf(w, "%s  %s: %s (goal: %s)\n", map[bool]string{true: "met   ", false: "MISSED"}[g.Met], g.What, g.Is, g.Goal)
	}
}

// table writes a row for each of all, with its columns separated by tabs; nothing if there are none.
func table[T any](w io.Writer, head string, all []T, row func(T) string) {
	rows := []string{head}
	for _, v := range all {
		rows = append(rows, row(v))
	}
	if len(all) > 0 {
		rig.Columns(w, rows...)
	}
}

// pictureSize is the size of the picture.
var pictureSize = picture.Size{Width: 1000, Height: 1200}

// figure draws all arms into the same panels. It returns nil if there are none.
func (d *document) figure() *plot.Figure {
	if len(d.Arms) == 0 {
		return nil
	}
	var runs []draw.Run
	var marks []plot.Mark
	for _, r := range d.Arms {
		runs = append(runs, draw.Run{Name: r.Name, Seconds: r.Seconds})
		for _, q := range r.Periods[min(1, len(r.Periods)):] {
			marks = append(marks, plot.Mark{At: q.From, Label: "engine " + q.Name})
		}
	}
	panel := func(title, name string) draw.Panel {
		return draw.Panel{Title: title, Label: "a second", Value: func(c rig.Counts) int { return c[name] }}
	}
	return draw.Seconds("Many processes, one rate limit", runs, marks, panel("Good responses", rig.Good), panel("429s at the upstream", turnedAway), panel("Commands at the engine", commands))
}
