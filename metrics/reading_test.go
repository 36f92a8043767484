package metrics

import (
	"slices"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

func TestReadAddsUpAllStripes(t *testing.T) {
	m := New(Options{})
	r := m.Route("a")
	if r.Used() || r.Name() != "a" {
		t.Error("used before anything was counted, or not called a")
	}
	for i := range r.stripes {
		c := r.stripe(uint(i))
		c.began.Add(3)
		c.waits.Add(1)
		c.outcomes[policy.OutcomeRecovered].Add(2)
		c.retries[policy.ReasonReset].Add(4)
		c.request.observe(200, 2*time.Millisecond)
		c.attempt.observe(200, time.Hour)
	}
	n := uint32(len(r.stripes))
	got := r.Read()
	if !r.Used() || got.Outcomes[policy.OutcomeRecovered] != 2*n || got.Retries[policy.ReasonReset] != 4*n {
		t.Errorf("%d stripes: %+v", n, got)
	}
	if inFlight, waiting := r.InFlight(), r.Waiting(); inFlight != uint64(n) || waiting != uint64(n) {
		t.Errorf("%d stripes: %d in flight, %d waiting", n, inFlight, waiting)
	}
	edges := DurationEdges()
	if i := slices.Index(edges, 2500*time.Microsecond); got.Requests[i] != n || got.Attempts[NumBuckets-1] != n || len(edges) != NumBuckets-1 {
		t.Errorf("%d stripes: %v %v", n, got.Requests, got.Attempts)
	}
	if allocs := testing.AllocsPerRun(100, func() { r.Read() }); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestEachGivesEveryRouteOnce(t *testing.T) {
	m := New(Options{})
	m.Route("a")
	m.Route("b")
	m.Route("a")
	var names []string
	m.Each(func(r *Route) { names = append(names, r.Name()) })
	slices.Sort(names)
	if !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("%q", names)
	}
}
