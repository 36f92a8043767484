package main

import (
	"reflect"
	"testing"
)

func TestAPlanFollowsFromSeedAndNumber(t *testing.T) {
	for id := range uint64(500) {
		if !reflect.DeepEqual(newPlan(7, id), newPlan(7, id)) || !reflect.DeepEqual(newScript(7, id, 1), newScript(7, id, 1)) {
			t.Fatalf("request %d differs from itself", id)
		}
	}
	if reflect.DeepEqual(newPlan(7, 1), newPlan(8, 1)) && reflect.DeepEqual(newPlan(7, 2), newPlan(8, 2)) {
		t.Error("the seed changes nothing")
	}
}

// A short run meets everything at least once.
func TestPlansCoverEverything(t *testing.T) {
	seen := make(map[any]int)
	for id := range uint64(20000) {
		p := newPlan(1, id)
		seen[p.behavior]++
		seen["method "+p.method]++
		seen["pipelines"] += count(p.pipelines())
		seen["trailer"] += count(p.body.trailer)
		seen["expect"] += count(p.expect)
		seen["1.0"] += count(p.minor == 0)
		seen["2 MiB"] += count(p.body.size == 2<<20)
		a := newScript(1, id, 0)
		seen[a.kind]++
		seen[a.framing]++
		seen[a.after]++
		seen[a.status]++
		seen["Retry-After "+a.retry]++
		seen["early"] += count(a.early)
		seen["interim"] += count(len(a.interim) > 0)
		if a.kind == malforms {
			seen[a.nonsense]++
		}
	}
	want := []any{behaves, leaves, leavesMidway, cutsUpload, readsSlowly, writesSlowly,
		responds, cuts, resets, resetsEarly, cutsHead, malforms, stalls,
		byLength, byChunks, byClose, byHTTP10, noContent,
		keeps, closesSaid, closesSilently, saysMore, says408, closesAtOnce,
		200, 204, 304, 404, 429, 500, 501, 502, 503, 504,
		"pipelines", "trailer", "expect", "1.0", "2 MiB", "early", "interim",
		"Retry-After 0", "Retry-After 1", "Retry-After 3600", "Retry-After date", "method PATCH", "method HEAD"}
	for _, h := range malformedHeads {
		want = append(want, h)
	}
	for _, w := range want {
		if seen[w] == 0 {
			t.Errorf("%T %v never happens", w, w)
		}
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A close alone ends a body delimited by it, so a cut there must be a reset.
func TestACutThatLooksWholeIsNeverPlanned(t *testing.T) {
	for id := range uint64(50000) {
		a := newScript(3, id, 0)
		if a.kind == cuts && a.framing == byClose && !a.asReset {
			t.Fatalf("request %d: a close in the middle of a body until close", id)
		}
		if a.framing == byClose && a.after != keeps {
			t.Fatalf("request %d: bytes after a body until close", id)
		}
	}
}
