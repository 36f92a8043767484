package sim

import (
	"flag"
	"slices"
	"testing"
	"time"
)

var seeds = flag.Int("seeds", usualSeeds, "how many seeds to play each scenario with; -v shows median and worst")

// The constants of policy.Guard are held to the storms they were found with.
func TestScenariosMeetTheirGoals(t *testing.T) {
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			var all []Outcome
			for seed := uint64(1); seed <= uint64(*seeds); seed++ {
				_, o := s.Play(seed)
				all = append(all, o)
				for _, missed := range s.Goal.Missed(o) {
					t.Errorf("seed %d: %s: %+v", seed, missed, o)
				}
			}
			good, goodWorst := spread(all, func(o Outcome) time.Duration { return o.Good })
			errs, errsWorst := spread(all, func(o Outcome) time.Duration { return o.Errors })
			most, mostWorst := spread(all, func(o Outcome) int { return o.AtOnce })
			waits, waitsWorst := spread(all, func(o Outcome) int { return o.Waits })
			t.Logf("good %v/%v errors %v/%v at once %d/%d waits %d/%d", good, goodWorst, errs, errsWorst, most, mostWorst, waits, waitsWorst)
		})
	}
}

// spread is the median and the worst.
func spread[T int | time.Duration](all []Outcome, of func(Outcome) T) (median, worst T) {
	var v []T
	for _, o := range all {
		v = append(v, of(o))
	}
	slices.Sort(v)
	return v[len(v)/2], v[len(v)-1]
}
