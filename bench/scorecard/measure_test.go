package main

import (
	"testing"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// TestSharesCountWhenTriesCame: a client that waits in an outage and gives up after it is no harm of the time
// after it.
func TestSharesCountWhenTriesCame(t *testing.T) {
	for name, tc := range map[string]struct {
		counts rig.Counts
		want   float64 // -1: none
	}{
		"requests":          {rig.Counts{served: 3, unserved: 1, rig.CameBad: 9}, 0.75},
		"tries":             {rig.Counts{rig.CameGood: 1, rig.CameBad: 1, rig.Good: 7}, 0.5},
		"ended, but before": {rig.Counts{rig.CameGood: 4, rig.Late: 400, rig.Bad + "502": 7}, 1},
		"nobody came":       {rig.Counts{rig.Late: 400}, -1},
	} {
		got := -1.0
		if share := shareOf(tc.counts); share != nil {
			got = *share
		}
		if got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
