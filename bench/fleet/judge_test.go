package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// reached is a document that meets all goals.
func reached() *document {
	ok := func(name string, limited int) *armResult {
		c := rig.Counts{sent: 1000, turnedAway: limited, rig.Good: 980, got429: 20}
		return &armResult{Name: name, Counts: c, LimitedShare: limitedShare(c), GoodShare: 0.98, Time: 10, Stock: &stock{Keys: 3}}
	}
	broken := ok("engine", 100)
	broken.Periods = []period{{Name: "calm"}, {Name: "started again", Counts: rig.Counts{commands: 9}}}
	return &document{
		Processes: 2,
		Arms:      []*armResult{ok("alone", 400), ok("ratelimit", 5), broken},
		Spread:    []pauseResult{{Until: 3}, {Until: 49}},
		Cost:      []*costResult{{Name: "alone", To: "alone", Figures: rig.Figures{Ratio: 9}}, {Name: "shared", To: "alone", Figures: rig.Figures{Ratio: 1.01}}},
	}
}

// met reports whether all goals are.
func (d *document) met() bool {
	return !slices.ContainsFunc(d.Goals, func(g goal) bool { return !g.Met })
}

func TestGoalsAreMissed(t *testing.T) {
	d := reached()
	if d.judge(false); !d.met() || len(d.Goals) < 12 {
		t.Fatalf("%d goals, met: %v: %+v", len(d.Goals), d.met(), d.Goals)
	}
	for name, tc := range map[string]struct {
		spoil  func(d *document)
		missed string
	}{
		"a failed request":         {func(d *document) { d.Arms[2].Counts[rig.Bad+"502"] = 1 }, "failed requests, engine"},
		"a late one":               {func(d *document) { d.Arms[2].Counts[rig.Late] = 1 }, "late requests, engine"},
		"one before the count":     {func(d *document) { d.Arms[1].Kinds = map[string]int{"502": 1} }, "failed requests, ratelimit"},
		"a key for ever":           {func(d *document) { d.Arms[1].Stock.Forever = 1 }, "keys without expiry, ratelimit"},
		"no load":                  {func(d *document) { d.Arms[0].LimitedShare = 0.1 }, "share of 429s at the upstream, alone"},
		"too many 429s":            {func(d *document) { d.Arms[1].LimitedShare = 0.01 }, "share of 429s at the upstream, ratelimit"},
		"no fewer than alone":      {func(d *document) { d.Arms[1].LimitedShare = 0.1 }, "share of 429s at the upstream, ratelimit to alone"},
		"too few answers":          {func(d *document) { d.Arms[1].GoodShare = 0.96 }, "good responses"},
		"nobody joined again":      {func(d *document) { d.Arms[2].Periods[1].Counts[commands] = 0 }, "commands after"},
		"the word travels slowly":  {func(d *document) { d.Spread[0].Until = 51 }, "time until all pause"},
		"the engine is asked more": {func(d *document) { d.Arms[1].Counts[commands] = 2300 }, "commands a second at the engine for each process, ratelimit"},
		"sharing costs CPU time":   {func(d *document) { d.Cost[1].Ratio = 1.03 }, "CPU time"},
	} {
		d := reached()
		tc.spoil(d)
		d.judge(false)
		var missed []string
		for _, g := range d.Goals {
			if !g.Met {
				missed = append(missed, g.What)
			}
		}
		if d.met() || !strings.Contains(strings.Join(missed, "; "), tc.missed) {
			t.Errorf("%s: missed %q, want %q", name, missed, tc.missed)
		}
	}
}

// What depends on no machine is not eased for a busy one.
func TestShortGoalsAreStrictAboutWhatDependsOnNoMachine(t *testing.T) {
	for _, spoil := range []func(d *document){
		func(d *document) { d.Arms[2].Counts[rig.Bad+"502"] = 1 },
		func(d *document) { d.Arms[1].Stock.Forever = 1 },
		func(d *document) { d.Arms[1].LimitedShare, d.Arms[0].LimitedShare = 0.04, 0.12 },
	} {
		d := reached()
		spoil(d)
		if d.judge(true); d.met() {
			t.Errorf("all met: %+v", d.Goals)
		}
	}
}
