package main

import (
	"fmt"
	"slices"
)

// goal is what was to be reached, and what was.
type goal struct {
	What string `json:"what"`
	Goal string `json:"goal"`
	Is   string `json:"is"`
	Met  bool   `json:"met"`
}

// bounds are the figures of the goals.
type bounds struct {
	aloneLimited float64 // the load is a load: share of 429 alone at least
	limited      float64 // with the rate limit kept together: share of 429 at most
	good         float64 // and good responses as a share of the rate limit at least
	hold         float64 // ms until all hold, at most
	rates        float64 // commands of the engine at the highest rate to those at the one before, at most
	cost         float64 // CPU time per request to that alone, at most; 0: only that it was measured
}

// What is wanted, and what a small machine with other work has to reach. What
// depends on no machine, such as that no request fails, is the same in both.
var (
	wanted   = bounds{aloneLimited: 0.20, limited: 0.01, good: 0.97, hold: 50, rates: 1.5, cost: 1.02}
	generous = bounds{aloneLimited: 0.10, limited: 0.05, good: 0.70, hold: 500, rates: 3}
)

// judge compares everything that was measured with its goal.
func (d *document) judge(b *bounds) {
	for _, r := range d.Arms {
		d.goal("failed requests, "+r.Name, "0", fmt.Sprint(r.Failed, kinds(r.Kinds)), r.Failed == 0 && len(r.Kinds) == 0)
		if r.Name == "ratelimit" || r.Name == "engine" { // where rate-limit pauses alone are shared, long waits are their price
			d.goal("late requests, "+r.Name, "0", fmt.Sprint(r.Late), r.Late == 0)
		}
		if r.Stock != nil {
			d.goal("keys without expiry, "+r.Name, "0", fmt.Sprintf("%d of %d", r.Stock.Forever, r.Stock.Keys), r.Stock.Forever == 0)
		}
		switch r.Name {
		case "alone":
			d.goal("share of 429s at the upstream, alone", percent("at least", b.aloneLimited), percent("", r.LimitedShare), r.LimitedShare >= b.aloneLimited)
		case "ratelimit":
			d.reach(r.Name, r.LimitedShare, r.GoodShare, b)
		case "engine":
			if p := last(r.Periods); p != nil {
				d.goal("commands after the engine was "+p.Name, "some", fmt.Sprint(p.Commands), p.Commands > 0)
			}
		}
	}
	if d.Hold != nil {
		d.goal("time until all hold after a 429, longest of "+fmt.Sprint(len(d.Hold.Pauses)), fmt.Sprintf("at most %.0f ms", b.hold), fmt.Sprintf("%.1f ms", d.Hold.Most), d.Hold.Most <= b.hold)
	}
	for i := range d.Rates {
		if last := i+1 == len(d.Rates) || d.Rates[i+1].RateLimit != d.Rates[i].RateLimit; last && i > 0 && d.Rates[i].RateLimit > 0 {
			d.bounded(&d.Rates[i-1], &d.Rates[i], b)
		}
	}
	for _, c := range d.Cost {
		if c.Name == c.To {
			continue
		}
		if b.cost == 0 {
			d.goal("CPU time per request, "+c.Name+" to "+c.To, "measured", fmt.Sprintf("%.3f", c.Ratio), c.Ratio > 0)
			continue
		}
		d.goal("CPU time per request, "+c.Name+" to "+c.To, fmt.Sprintf("at most %.2f", b.cost), fmt.Sprintf("%.3f (%.3f to %.3f)", c.Ratio, c.Low, c.High), c.Ratio <= b.cost)
	}
}

// bounded is the goal of the commands at the highest of the request rates.
func (d *document) bounded(low, high *rateResult, b *bounds) {
	times := high.Commands / low.Commands
	d.goal(fmt.Sprintf("engine commands at %.0f requests/s to those at %.0f, rate limit %d/s", high.Requests, low.Requests, high.RateLimit),
		fmt.Sprintf("at most %.1f", b.rates), fmt.Sprintf("%.2f", times), times <= b.rates)
}

// reach are the goals of those who keep the rate limit together.
func (d *document) reach(name string, limited, good float64, b *bounds) {
	d.goal("share of 429s at the upstream, "+name, percent("below", b.limited), percent("", limited), limited < b.limited)
	d.goal("good responses as a share of the rate limit, "+name, percent("at least", b.good), percent("", good), good >= b.good)
	if i := slices.IndexFunc(d.Arms, func(r *armResult) bool { return r.Name == "alone" }); i >= 0 {
		alone := d.Arms[i].LimitedShare
		d.goal("share of 429s at the upstream, "+name+" to alone", "below a quarter", fmt.Sprintf("%.3f", limited/max(alone, 1e-9)), limited < alone/4)
	}
}

func (d *document) goal(what, goal_, is string, met bool) {
	d.Goals = append(d.Goals, goal{what, goal_, is, met})
}

func (d *document) met() bool {
	return !slices.ContainsFunc(d.Goals, func(g goal) bool { return !g.Met })
}

func percent(how string, share float64) string {
	text := fmt.Sprintf("%.2f %%", 100*share)
	if how != "" {
		text = how + " " + text
	}
	return text
}

func kinds(k map[string]int) string {
	if len(k) == 0 {
		return ""
	}
	return fmt.Sprint(" ", k)
}

func last(all []periodResult) *periodResult {
	if len(all) == 0 {
		return nil
	}
	return &all[len(all)-1]
}
