package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// served is what others counted of n requests, and why more of them failed.
func served(n int, why ...string) *rig.Timeline {
	t := rig.NewTimeline()
	t.Count(requests, n)
	for _, reason := range why {
		t.Count(failed+reason, 1)
	}
	return t
}

// stood is a result that nothing is wrong with.
func stood() *result {
	quiet, under := served(100), served(100)
	r := rig.Level{RSS: 10 * mib, Peak: 11 * mib, Goroutines: 20, Descriptors: 15}
	return &result{attack: &attack{name: "x", bound: 5 * mib, why: "4 heads", ends: true}, sent: 1, ended: 1, quiet: quiet, under: under, before: r, during: r, after: r}
}

func TestWhatIsNotWithstoodIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(r *result)
		says   string
	}{
		"withstood":                   {func(*result) {}, ""},
		"a failed request":            {func(r *result) { r.under = served(100, "reset") }, `1 during the attack: ["reset: 1"]`},
		"a failed request before":     {func(r *result) { r.quiet = served(100, "reset", "reset") }, "2 requests of others failed before"},
		"others not served":           {func(r *result) { r.under = served(0) }, "no request of others"},
		"memory at its bound":         {func(r *result) { r.during.Peak = 15 * mib }, ""},
		"memory beyond it":            {func(r *result) { r.during.Peak = 15*mib + 1 }, "memory grew by 5.0 MiB, more than 5.0 MiB for 4 heads"},
		"memory beyond it afterwards": {func(r *result) { r.after.Peak = 20 * mib }, "memory grew by 10.0 MiB"},
		"nothing sent":                {func(r *result) { r.sent = 0 }, "sent nothing"},
		"not turned away":             {func(r *result) { r.ended = 0 }, "not turned away"},
		"a stream refused":            {func(r *result) { r.ended, r.resets = 0, 1 }, ""},
		"need not be turned away":     {func(r *result) { r.ended, r.ends = 0, false }, ""},
		"a few goroutines more":       {func(r *result) { r.after.Goroutines += slack }, ""},
		"goroutines that stay":        {func(r *result) { r.after.Goroutines += slack + 1 }, "33 goroutines"},
		"descriptors that stay":       {func(r *result) { r.after.Descriptors += slack + 1 }, "28 descriptors"},
	} {
		r := stood()
		tc.change(r)
		if got := strings.Join(r.wrong(), "; "); (got == "") != (tc.says == "") || !strings.Contains(got, tc.says) {
			t.Errorf("%s: %q, want %q", name, got, tc.says)
		}
	}
}

func TestEveryAttackIsWhole(t *testing.T) {
	names := map[string]bool{}
	for _, a := range attacks(leastForMemory) {
		if names[a.name] || a.conns < 1 || a.bound <= 0 || a.why == "" || (a.connection == nil) == (a.prepare == nil) {
			t.Errorf("%+v", a)
		}
		names[a.name] = true
	}
}

func TestWrongOptionsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"x"}, {"--for", "1ms"}, {"--for", "2h"}, {"--only", "no such attack"}} {
		var out, said bytes.Buffer
		if code := rig.Program(run).Run(t.Context(), "attacks", args, &out, &said); code != rig.Usage || said.Len() == 0 {
			t.Errorf("%v: code %d, said %q", args, code, &said)
		}
	}
}
