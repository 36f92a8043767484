package backoff

import (
	"testing"
	"time"
)

func TestSlotsWalk(t *testing.T) {
	for _, tc := range []struct {
		name    string
		slots   Slots
		longest []int // in slots, per failure; -1 is a reset
	}{
		{"defaults", Slots{Slot: 1, Ceiling: 10}, []int{1, 3, 7, 15, 31, 63, 127, 255, 511, -1, 1, 3}},
		{"stay", Slots{Slot: 1, Ceiling: 10, Stay: true}, []int{1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 1023, 1023}},
		{"ceiling 2", Slots{Slot: 1, Ceiling: 2}, []int{1, -1, 1, -1}},
		{"ceiling 1", Slots{Slot: 1, Ceiling: 1}, []int{-1, -1}},
		{"ceiling 1, stay", Slots{Slot: 1, Ceiling: 1, Stay: true}, []int{1, 1}},
	} {
		r := seeded(39)
		seen := make([]time.Duration, len(tc.longest))
		for range 3000 {
			for i, want := range tc.longest {
				w := tc.slots.Wait(Step{Retry: i}, r)
				seen[i] = max(seen[i], w)
				if want < 0 && w != 0 {
					t.Fatalf("%s: failure %d: wait %v, want a reset", tc.name, i, w)
				}
				if want := tc.slots.Range(Step{Retry: i}).Max; w > want {
					t.Fatalf("%s: failure %d: %v, which is beyond its range of %v", tc.name, i, w, want)
				}
			}
		}
		for i, want := range tc.longest {
			if seen[i] != time.Duration(max(want, 0)) {
				t.Errorf("%s: longest wait at failure %d is %d slots, want %d", tc.name, i, seen[i], max(want, 0))
			}
		}
	}
}

// noDraw fails the test if anything is drawn from it.
type noDraw struct{ t *testing.T }

func (n noDraw) Int64N(int64) int64   { n.t.Error("drawn"); return 0 }
func (n noDraw) Float64() float64     { n.t.Error("drawn"); return 0 }
func (n noDraw) NormFloat64() float64 { n.t.Error("drawn"); return 0 }

func TestNothingIsDrawnWhereNothingIsRandom(t *testing.T) {
	r := noDraw{t}
	for _, tc := range []struct {
		b Strategy
		s Step
	}{
		{Slots{Slot: 1, Ceiling: 10}, Step{Retry: 9}},
		{Normal{Base: 1, Max: 2, Factor: 2, Jitter: 0.1}, Step{Previous: 5}}, // the previous wait came before the first retry
		{Fixed{1}, Step{}}, {None{}, Step{}}, {Ratio{First: 1, Ratio: 1, Max: 9}, Step{}},
	} {
		tc.b.Wait(tc.s, r)
	}
}

func TestSlotsLongestWaits(t *testing.T) {
	for stay, want := range map[bool]time.Duration{false: 5110 * time.Millisecond, true: 10230 * time.Millisecond} {
		b := mustNew(t, "slots", Options{Stay: stay})
		longest := time.Duration(0)
		for i := range 100 {
			longest = max(longest, b.(Ranger).Range(Step{Retry: i}).Max)
		}
		if longest != want {
			t.Errorf("stay %v: longest wait %v, want %v", stay, longest, want)
		}
	}
}
