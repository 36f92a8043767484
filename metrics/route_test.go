package metrics

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

func TestARecoveredRequestCountsEverywhereOnce(t *testing.T) {
	m := New(Options{})
	r := m.Route("search").Near()
	r.RequestBegan()
	r.AttemptDone(policy.Rejected, 503, 2*time.Millisecond)
	r.Retry(policy.ReasonStatus503)
	r.WaitBegan()
	r.WaitEnded(130 * time.Millisecond)
	r.AttemptDone(policy.ClassNone, 200, 40*time.Millisecond)
	r.RequestDone([]byte("GET"), 200, policy.OutcomeRecovered, 172*time.Millisecond, 170*time.Millisecond, 2)

	scrape(t, m).want(t, map[string]string{
		`retryproxy_requests_total{code="200",method="GET",route="search"}`:                       "1",
		`retryproxy_outcomes_total{outcome="recovered",route="search"}`:                           "1",
		`retryproxy_outcomes_total{outcome="success",route="search"}`:                             "0",
		`retryproxy_attempts_total{class="rejected",code="503",route="search"}`:                   "1",
		`retryproxy_attempts_total{class="ok",code="200",route="search"}`:                         "1",
		`retryproxy_attempts_total{class="unknown",code="503",route="search"}`:                    "",
		`retryproxy_retries_total{reason="status_503",route="search"}`:                            "1",
		`retryproxy_retries_total{reason="reset",route="search"}`:                                 "0",
		`retryproxy_idle_close_retries_total{route="search"}`:                                     "0",
		`retryproxy_requests_in_flight{route="search"}`:                                           "0",
		`retryproxy_requests_waiting{route="search"}`:                                             "0",
		`retryproxy_request_duration_seconds_bucket{code_class="2xx",route="search",le="0.1"}`:    "0",
		`retryproxy_request_duration_seconds_bucket{code_class="2xx",route="search",le="0.25"}`:   "1",
		`retryproxy_request_duration_seconds_bucket{code_class="2xx",route="search",le="+Inf"}`:   "1",
		`retryproxy_request_duration_seconds_sum{code_class="2xx",route="search"}`:                "0.172",
		`retryproxy_request_duration_seconds_count{code_class="2xx",route="search"}`:              "1",
		`retryproxy_attempt_duration_seconds_bucket{code_class="5xx",route="search",le="0.0025"}`: "1",
		`retryproxy_attempt_duration_seconds_sum{code_class="2xx",route="search"}`:                "0.04",
		`retryproxy_attempt_duration_seconds_sum{code_class="5xx",route="search"}`:                "0.002",
		`retryproxy_attempt_duration_seconds_count{code_class="none",route="search"}`:             "",
		`retryproxy_attempt_duration_seconds_count{code_class="2xx",route="search"}`:              "1",
		`retryproxy_backoff_seconds_bucket{route="search",le="0.1"}`:                              "0",
		`retryproxy_backoff_seconds_bucket{route="search",le="0.2"}`:                              "1",
		`retryproxy_backoff_seconds_sum{route="search"}`:                                          "0.13",
		`retryproxy_added_latency_seconds_sum{route="search"}`:                                    "0.17",
		`retryproxy_added_latency_seconds_count{route="search"}`:                                  "1",
		`retryproxy_attempts_per_request_bucket{route="search",le="1"}`:                           "0",
		`retryproxy_attempts_per_request_bucket{route="search",le="2"}`:                           "1",
		`retryproxy_attempts_per_request_sum{route="search"}`:                                     "2",
		`retryproxy_attempts_per_request_count{route="search"}`:                                   "1",
	})
}

func TestHedgesAreCountedByRoute(t *testing.T) {
	m := New(Options{})
	a := m.Route("a").Near()
	m.Route("b")
	a.Hedged()
	a.Hedged()
	a.HedgeWon()
	scrape(t, m).want(t, map[string]string{
		`retryproxy_hedges_total{route="a"}`:     "2",
		`retryproxy_hedges_won_total{route="a"}`: "1",
		`retryproxy_hedges_total{route="b"}`:     "",
		`retryproxy_hedges_won_total{route="b"}`: "",
	})
}

func TestRequestsInFlightAreShown(t *testing.T) {
	m := New(Options{})
	r := m.Route("a").Near()
	for range 3 {
		r.RequestBegan()
	}
	r.WaitBegan()
	r.WaitBegan()
	scrape(t, m).want(t, map[string]string{
		`retryproxy_requests_in_flight{route="a"}`: "3",
		`retryproxy_requests_waiting{route="a"}`:   "2",
	})
	r.WaitEnded(0)
	r.RequestDone(nil, 0, policy.OutcomeClientGone, 0, 0, 1)
	scrape(t, m).want(t, map[string]string{
		`retryproxy_requests_in_flight{route="a"}`: "2",
		`retryproxy_requests_waiting{route="a"}`:   "1",
	})
}

func TestIdleCloseRetriesAreShownSeparately(t *testing.T) {
	m := New(Options{})
	r := m.Route("a").Near()
	r.Retry(policy.ReasonIdleClose)
	r.Retry(policy.ReasonIdleClose)
	r.Retry(policy.ReasonReset)
	scrape(t, m).want(t, map[string]string{
		`retryproxy_idle_close_retries_total{route="a"}`:          "2",
		`retryproxy_retries_total{reason="idle_close",route="a"}`: "2",
		`retryproxy_retries_total{reason="reset",route="a"}`:      "1",
	})
}

// Every core has a stripe, and the number fits the mask that picks one.
func TestStripesArePowersOfTwo(t *testing.T) {
	for cores, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 16: 16, 17: 16, 1024: 16} {
		if got := stripesFor(cores); got != want {
			t.Errorf("stripesFor(%d) = %d, want %d", cores, got, want)
		}
	}
}

// Whatever clients and upstreams send, the labels stay within their sets.
func TestLabelsAreClosed(t *testing.T) {
	tests := []struct {
		method string
		code   int
		want   string
	}{
		{"GET", 200, `code="200",method="GET"`},
		{"PATCH", 100, `code="100",method="PATCH"`},
		{"TRACE", 599, `code="599",method="TRACE"`},
		{"OPTIONS", 99, `code="other",method="OPTIONS"`},
		{"HEAD", 600, `code="other",method="HEAD"`},
		{"POST", 0, `code="other",method="POST"`},
		{"PUT", math.MinInt, `code="other",method="PUT"`},
		{"DELETE", math.MaxInt, `code="other",method="DELETE"`},
		{"CONNECT", 405, `code="405",method="CONNECT"`},
		{"get", 200, `code="200",method="other"`},
		{"PROPFIND", 207, `code="207",method="other"`},
		{"", 400, `code="400",method="other"`},
		{"GET\xff\"}\n", 400, `code="400",method="other"`},
	}
	for _, tt := range tests {
		m := New(Options{})
		r := m.Route("a").Near()
		r.RequestDone([]byte(tt.method), tt.code, policy.OutcomeSuccess, 0, 0, 1)
		p := scrape(t, m)
		if p[`retryproxy_requests_total{`+tt.want+`,route="a"}`] != "1" || p.sum(t, "retryproxy_requests_total") != 1 {
			t.Errorf("method %q, code %d: not counted as %s", tt.method, tt.code, tt.want)
		}
	}
}

func TestValuesOutsideTheirSetCountNothing(t *testing.T) {
	m := New(Options{})
	r := m.Route("a").Near()
	r.AttemptDone(policy.Class(policy.NumClasses), 200, 0)
	r.RequestDone([]byte("GET"), 200, policy.Outcome(policy.NumOutcomes), 0, 0, 1)
	for i := range 256 {
		if reason := policy.Reason(i); !reason.ForRetry() {
			r.Retry(reason)
		}
	}
	p := scrape(t, m)
	for _, name := range []string{"requests_total", "outcomes_total", "attempts_total", "retries_total", "request_duration_seconds_count"} {
		if got := p.sum(t, "retryproxy_"+name); got != 0 {
			t.Errorf("%s adds up to %v, want 0", name, got)
		}
	}
	for name := range p {
		if strings.Contains(name, "invalid") {
			t.Error(name)
		}
	}
}

// observeAtRandom sends n requests through a route and returns the numbers of attempts and retries.
func observeAtRandom(route *Route, rnd *rand.Rand, n int) (attempts, retries int) {
	methods := []string{"GET", "POST", "BREW", ""}
	for range n {
		r := route.Near()
		r.RequestBegan()
		tries := rnd.IntN(12)
		for i := range tries {
			if i > 0 {
				r.Retry(policy.ReasonConnectFailure + policy.Reason(rnd.IntN(14)))
				r.WaitBegan()
				r.WaitEnded(time.Duration(rnd.Int64N(int64(time.Hour))))
				retries++
			}
			r.AttemptDone(policy.Class(rnd.IntN(policy.NumClasses)), rnd.IntN(700), time.Duration(rnd.Int64N(int64(time.Second))))
		}
		attempts += tries
		r.RequestDone([]byte(methods[rnd.IntN(len(methods))]), rnd.IntN(700), policy.Outcome(rnd.IntN(policy.NumOutcomes)),
			time.Duration(rnd.Int64N(int64(time.Minute))), time.Second, tries)
	}
	return attempts, retries
}

// The sums hold whatever happens, on many goroutines and during scrapes.
func TestOutcomesAddUpToRequests(t *testing.T) {
	const workers, each = 8, 300
	m := New(Options{})
	var attempts, retries [workers]int
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			name := string(rune('a' + w%2))
			attempts[w], retries[w] = observeAtRandom(m.Route(name), rand.New(rand.NewPCG(uint64(w), 1)), each)
		})
	}
	wg.Go(func() {
		for range 20 {
			p := scrape(t, m) // a negative value would be near 2^64
			for _, name := range []string{"retryproxy_requests_in_flight", "retryproxy_requests_waiting"} {
				if n := p.sum(t, name); n < 0 || n > 12*workers*each {
					t.Errorf("%s is %v", name, n)
				}
			}
		}
	})
	wg.Wait()

	p := scrape(t, m)
	wantAttempts, wantRetries := 0, 0
	for w := range workers {
		wantAttempts += attempts[w]
		wantRetries += retries[w]
	}
	for name, want := range map[string]int{
		"requests_total":                 workers * each,
		"outcomes_total":                 workers * each,
		"request_duration_seconds_count": workers * each,
		"attempts_per_request_count":     workers * each,
		"attempts_per_request_sum":       wantAttempts,
		"attempts_total":                 wantAttempts,
		"attempt_duration_seconds_count": wantAttempts,
		"retries_total":                  wantRetries,
		"backoff_seconds_count":          wantRetries,
		"requests_in_flight":             0,
		"requests_waiting":               0,
	} {
		if got := p.sum(t, "retryproxy_"+name); got != float64(want) {
			t.Errorf("%s adds up to %v, want %d", name, got, want)
		}
	}
}

func TestObservingDoesNotAllocate(t *testing.T) {
	route := New(Options{}).Route("a")
	method := []byte("GET")
	observe := func() {
		r := route.Near()
		r.RequestBegan()
		r.AttemptDone(policy.Rejected, 503, time.Millisecond)
		r.Retry(policy.ReasonStatus503)
		r.WaitBegan()
		r.WaitEnded(time.Millisecond)
		r.AttemptDone(policy.ClassNone, 200, time.Millisecond)
		r.RequestDone(method, 200, policy.OutcomeRecovered, time.Second, time.Millisecond, 2)
	}
	for range 10000 { // until every stripe in use exists
		observe()
	}
	if n := testing.AllocsPerRun(1000, observe); n != 0 {
		t.Errorf("%v allocations per request, want 0", n)
	}
}

func BenchmarkRequest(b *testing.B) {
	route := New(Options{}).Route("a")
	method := []byte("GET")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := route.Near()
			r.RequestBegan()
			r.AttemptDone(policy.ClassNone, 200, 130*time.Microsecond)
			r.RequestDone(method, 200, policy.OutcomeSuccess, 140*time.Microsecond, 0, 1)
		}
	})
}

func TestDryRunRetriesAreCountedByReason(t *testing.T) {
	m := New(Options{})
	r := m.Route("a").Near()
	r.WouldRetry(policy.ReasonStatus503)
	r.WouldRetry(policy.ReasonStatus503)
	r.WouldRetry(policy.ReasonNotIdempotent) // a reason against a retry: not counted
	r.WouldRetry(policy.ReasonNone)
	r.Retry(policy.ReasonReset)
	scrape(t, m).want(t, map[string]string{
		`retryproxy_dry_run_retries_total{reason="status_503",route="a"}`:     "2",
		`retryproxy_dry_run_retries_total{reason="reset",route="a"}`:          "0",
		`retryproxy_dry_run_retries_total{reason="not_idempotent",route="a"}`: "",
		`retryproxy_retries_total{reason="status_503",route="a"}`:             "0",
		`retryproxy_retries_total{reason="reset",route="a"}`:                  "1",
	})
}
