package main

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/overload"
)

// perfect is what no goal finds fault with, and hopeless what no goal accepts.
func perfect() *measures {
	return &measures{During: 1, After: new(1.0), Again: new(0.1), Errors: new(0.0), Timed: true, Peak: 1, Attempts: 1, Requests: 1000, Lost: new(0)}
}

func hopeless() *measures {
	return &measures{After: new(0.0), Timed: true, Peak: 20_000, Attempts: 9, Requests: 0, Lost: new(1000)}
}

// TestEachGoalCanBeMissed judges each row of the table by figures that nobody may accept, and by perfect ones.
func TestEachGoalCanBeMissed(t *testing.T) {
	for _, row := range rows() {
		good := &result{row: row, Arms: map[string]*measures{on: perfect(), off: perfect()}}
		if good.judge(); len(good.Goals) < 3 || len(good.missed()) > 0 {
			t.Errorf("%s: %d goals, perfect figures missed %q", row.name, len(good.Goals), good.missed())
		}
		bad := &result{row: row, Arms: map[string]*measures{on: hopeless(), off: perfect()}}
		if bad.judge(); len(bad.missed()) != len(bad.Goals) {
			t.Errorf("%s: hopeless figures missed only %q of %v", row.name, bad.missed(), bad.Goals)
		}
	}
}

// TestHarmIsMissedWithoutAnyOtherGoal: one request more than with the breaker off is harm.
func TestHarmIsMissedWithoutAnyOtherGoal(t *testing.T) {
	for name, tc := range map[string]struct {
		on, off int
		slack   float64
		met     bool
	}{
		"none more":         {on: 5, off: 5, met: true},
		"one more":          {on: 6, off: 5},
		"by chance":         {on: 15, off: 5, slack: 0.01, met: true},
		"more than chance":  {on: 16, off: 5, slack: 0.01},
		"fewer":             {on: 0, off: 5, met: true},
		"all, as without":   {on: 1000, off: 1000, met: true},
		"none without it":   {on: 1, off: 0},
		"none in both arms": {met: true},
	} {
		m, o := perfect(), perfect()
		m.Lost, o.Lost = &tc.on, &tc.off
		if got := (&row{slack: tc.slack}).harmless().met(m, o); got != tc.met {
			t.Errorf("%s: met %v, want %v", name, got, tc.met)
		}
	}
}

func TestTheTableIsSound(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows() {
		if seen[r.name] || strings.Contains(r.name, ",") || r.how == "" {
			t.Errorf("%q: twice, with a comma, or without a description", r.name)
		}
		seen[r.name] = true
		if (r.crowd == nil) == (len(r.users) == 0) || r.fault.to < r.fault.from {
			t.Errorf("%s: clients or fault", r.name)
		}
		if !slices.IsSortedFunc(r.steps, func(a, b step) int { return cmp.Compare(a.at, b.at) }) {
			t.Errorf("%s: steps are not in order", r.name)
		}
		if most := 75 * time.Second; r.length() > most {
			t.Errorf("%s takes up to %v, want at most %v", r.name, r.length(), most)
		}
		for _, u := range r.users {
			if u.method != "" {
				t.Errorf("%s: users who send %s are not counted right", r.name, u.method)
			}
		}
	}
	for _, g := range groups(rows()) {
		weight := 0
		for _, r := range g {
			weight += r.weight()
		}
		if weight > mostWeight {
			t.Errorf("%d rows at the same time weigh %d", len(g), weight)
		}
	}
}

// small is a row of two seconds with one URL that hangs.
func small() *row {
	u := always(50, 30*time.Second, 1, 2*time.Second)
	u.path = ok
	return (&row{
		name: "small", how: "a URL hangs", model: overload.Flat(time.Millisecond, 0), users: []users{u},
		others: []users{hanging("POST", 10, span{500 * ms, 1500 * ms})}, fault: span{500 * ms, 1500 * ms}, end: 2 * second,
	}).with(lost(0))
}

// through plays a row in the arms on and off, where on is a proxy with a handler around it.
func through(t *testing.T, r *row, broken func(next http.Handler) http.Handler) *result {
	t.Helper()
	o := &options{arms: []string{on, off}, seed: 1, start: func(s *stage) ([]string, error) {
		next := http.Handler(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.upstreams()[0]}))
		if s.arm == on {
			next = broken(next)
		}
		return []string{s.Serve(next)}, nil
	}}
	got, err := o.playRow(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestABrokenProxyIsFound plays a row through proxies that do what a breaker must not.
func TestABrokenProxyIsFound(t *testing.T) {
	var hanging, n atomic.Int64
	for name, tc := range map[string]struct {
		broken func(next http.Handler) http.Handler
		missed bool
	}{
		"an honest one": {broken: func(next http.Handler) http.Handler { return next }},
		"one that locks all out while one URL hangs": {missed: true, broken: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/hang" {
					hanging.Add(1)
					defer hanging.Add(-1)
				} else if hanging.Load() > 0 {
					http.Error(w, "open", http.StatusServiceUnavailable)
					return
				}
				next.ServeHTTP(w, r)
			})
		}},
		"one that loses one request": {missed: true, broken: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1) == 20 {
					http.Error(w, "lost", http.StatusBadGateway)
					return
				}
				next.ServeHTTP(w, r)
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := through(t, small(), tc.broken)
			if missed := got.missed(); (len(missed) > 0) != tc.missed {
				t.Errorf("missed %q; on %+v, off %+v", missed, got.Arms[on].Counts, got.Arms[off].Counts)
			}
			if m := got.Arms[off]; *m.Lost != 0 || m.Requests != 100 {
				t.Errorf("off: %d of %d lost, want 0 of 100", *m.Lost, m.Requests)
			}
		})
	}
}
