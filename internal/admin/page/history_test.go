package page

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
)

// stage is a Page with made-up sources and time.
type stage struct {
	*Page
	metrics   *metrics.Metrics
	upstreams []metrics.Upstream
	process   Process
	now       time.Time
}

func newStage() *stage {
	s := &stage{metrics: metrics.New(metrics.Options{}), now: noon, process: Process{Position: "inbound", RetryPercent: 100}}
	s.Page = New(Options{
		Version: "1", Metrics: s.metrics,
		Process:   func() Process { return s.process },
		Upstreams: func() []metrics.Upstream { return s.upstreams },
		Route:     func(name string) Rule { return Rule{Upstream: "http://" + name} },
	})
	s.history.begin(noon)
	s.started = noon
	return s
}

// request counts one as the data path would.
func (s *stage) request(route string, o policy.Outcome, took time.Duration, retries ...policy.Reason) {
	r := s.metrics.Route(route).Near()
	r.RequestBegan()
	for _, why := range retries {
		r.Retry(why)
	}
	r.AttemptDone(policy.ClassNone, 200, took/2)
	r.RequestDone([]byte("GET"), 200, o, took, 0, 1+len(retries))
}

// steps lets n steps pass.
func (s *stage) steps(n int) {
	for range n {
		s.now = s.now.Add(Step)
		s.look(s.now)
	}
}

func (s *stage) route(t *testing.T, name string) Route {
	t.Helper()
	state := s.State(s.now)
	i := slices.IndexFunc(state.Routes, func(r Route) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("no route %s among %+v", name, state.Routes)
	}
	return state.Routes[i]
}

func TestSpansAreNowAndTheLastMinutes(t *testing.T) {
	s := newStage()
	s.request("a", policy.OutcomeSuccess, 2*time.Millisecond)
	s.request("a", policy.OutcomeRecovered, 900*time.Millisecond, policy.ReasonStatus503)
	s.steps(4)
	s.request("a", policy.OutcomeGaveUpNotIdempotent, 2*time.Millisecond)
	s.request("a", policy.OutcomeClientGone, 2*time.Millisecond)
	r := s.route(t, "a")
	if n := r.Now; n.Requests != 2 || n.Failed != 1 || n.ClientEnd != 1 || n.Recovered != 0 || n.Seconds != 5 {
		t.Errorf("now %+v", n)
	}
	if l := r.Last; l.Requests != 4 || l.FirstAttempt != 1 || l.Recovered != 1 || l.Failed != 1 || l.Retries != 1 || l.Seconds != 20 {
		t.Errorf("last %+v", l)
	}
	if l := r.Last; l.P99 != 1e6 || l.AttemptP99 > 500e3 || l.P50 != 2500 {
		t.Errorf("last %+v", l)
	}
	if r.Now.Timed != 2 || r.Last.Timed != 4 || r.Last.TimedAttempts != 4 {
		t.Errorf("timed %d of %+v, %d and %d attempts of %+v", r.Now.Timed, r.Now, r.Last.Timed, r.Last.TimedAttempts, r.Last)
	}
	if len(r.Outcomes) != 2 || r.Outcomes[0].Name != "gave_up_not_idempotent" || r.Outcomes[0].Kind != "failed" || r.Outcomes[1].Kind != "client_end" {
		t.Errorf("outcomes %+v", r.Outcomes)
	}
	if len(r.Retried) != 1 || r.Retried[0].Name != "status_503" || r.Retried[0].Count != 1 {
		t.Errorf("retried %+v", r.Retried)
	}
	if r.Rule.Upstream != "http://a" {
		t.Errorf("rule %+v", r.Rule)
	}
}

func TestHistoryHasAPointPerStepTheLatestLast(t *testing.T) {
	s := newStage()
	s.steps(3)
	for i := range Points + 5 {
		for range i % 7 {
			s.request("a", policy.OutcomeSuccess, time.Millisecond)
		}
		s.request("a", policy.OutcomeRecovered, time.Second)
		s.steps(1)
	}
	h := s.route(t, "a").History
	if len(h.FirstAttempt) != Points {
		t.Fatalf("%d points", len(h.FirstAttempt))
	}
	for k := range Points {
		if i := k + 5; h.FirstAttempt[k] != uint32(i%7) || h.Recovered[k] != 1 || h.Failed[k] != 0 || h.P99[k] == 0 {
			t.Fatalf("point %d: %d first attempt, %d recovered, p99 %d", k, h.FirstAttempt[k], h.Recovered[k], h.P99[k])
		}
	}
}

// What is older than the window and the step before it is in neither span nor history.
func TestOldRequestsAreForgotten(t *testing.T) {
	s := newStage()
	s.request("a", policy.OutcomeFailFast, time.Millisecond)
	s.steps(Points - 1)
	if l := s.route(t, "a").Last; l.Failed != 1 {
		t.Errorf("forgotten before the window's end: %+v", l)
	}
	s.steps(2)
	r := s.route(t, "a")
	if r.Last.Requests != 0 || len(r.Outcomes) != 0 || slices.Max(r.History.Failed) != 0 {
		t.Errorf("%+v", r)
	}
	if r.Last.Seconds < Window.Seconds() || r.Last.Seconds > (Window+Step).Seconds() {
		t.Errorf("the last minutes are %v s", r.Last.Seconds)
	}
}

func TestRoutesAreBoundedAndGoWithTheConfiguration(t *testing.T) {
	s := newStage()
	s.metrics.Route("unused")
	var names []string
	for i := range maxRoutes + 3 {
		name := fmt.Sprintf("r%02d", i)
		names = append(names, name)
		s.request(name, policy.OutcomeSuccess, time.Millisecond)
	}
	s.steps(1)
	state := s.State(s.now)
	if len(state.Routes) != maxRoutes || state.MoreRoutes != 3 || state.Routes[0].Name != "r00" {
		t.Fatalf("%d routes and %d more", len(state.Routes), state.MoreRoutes)
	}
	s.metrics.Retain(names[maxRoutes:])
	s.steps(1)
	if state = s.State(s.now); len(state.Routes) != 3 || state.MoreRoutes != 0 || state.Routes[2].Name != names[maxRoutes+2] {
		t.Errorf("after a reload %d routes and %d more", len(state.Routes), state.MoreRoutes)
	}
}

func TestUpstreamHistory(t *testing.T) {
	s := newStage()
	up := func(state breaker.State, closed uint64, limit, inFlight int, budget float64) {
		g := breaker.GuardState{Breaker: state, ConcurrencyLimit: limit, InFlight: inFlight, OpenedBy: breaker.OpenedByRefused}
		g.Opened[breaker.OpenedByRefused] = closed
		s.upstreams = []metrics.Upstream{{Name: "http://u", Guard: g, HasBudget: true, BudgetTokens: budget}}
		s.steps(1)
	}
	up(breaker.Closed, 0, 0, 1, 10)
	up(breaker.HalfOpen, 1, 0, 2, 4)
	up(breaker.Closed, 1, 0, 3, 5)
	up(breaker.Closed, 2, 7, 4, 6) // it closed and opened between two looks
	u := s.State(s.now).Upstreams[0]
	last := func(all []string) []string { return all[len(all)-5:] }
	if got := last(u.History.Breaker); !slices.Equal(got, []string{"", "closed", "open", "closed", "open"}) {
		t.Errorf("breaker %q", got)
	}
	if n := len(u.History.Breaker); n != Points || u.History.Limit[n-1] != 7 || u.History.InFlight[n-2] != 3 || u.History.Budget[n-3] != 4 {
		t.Errorf("%+v", u.History)
	}
	if u.Breaker != "closed" || u.OpenedBy != "" || u.Limit != 7 || u.Budget != 6 {
		t.Errorf("%+v", u)
	}
	s.upstreams[0].Guard.Breaker = breaker.Open
	if u := s.State(s.now).Upstreams[0]; u.Breaker != "open" || u.OpenedBy != breaker.OpenedByRefused.Explain() {
		t.Errorf("%+v", u)
	}
	s.upstreams = nil
	for i := range maxUpstreams + 2 {
		s.upstreams = append(s.upstreams, metrics.Upstream{Name: fmt.Sprint(i)})
	}
	s.steps(2)
	if n := len(s.history.upstreams); n != maxUpstreams {
		t.Errorf("%d upstreams kept", n)
	}
}

func TestQuantiles(t *testing.T) {
	var b [metrics.NumBuckets]uint32
	if q := quantile(&b, 0.99); q != 0 {
		t.Errorf("of nothing %d", q)
	}
	b[0] = 50 // up to 1 ms
	b[3] = 50 // 5 to 10 ms
	for q, want := range map[float64]uint32{0.25: 1000, 0.5: 1000, 0.75: 10000, 1: 10000} {
		if got := quantile(&b, q); got != want {
			t.Errorf("%v: %d, expected %d", q, got, want)
		}
	}
	b = [metrics.NumBuckets]uint32{metrics.NumBuckets - 1: 1}
	if got := quantile(&b, 0.5); got != math.MaxUint32 {
		t.Errorf("above all edges: %d", got)
	}
}

// The decision note names these numbers.
func TestMemoryIsAsPromised(t *testing.T) {
	for what, got := range map[string][2]uintptr{
		"route":    {unsafe.Sizeof(routeHistory{}), 29 << 10},
		"upstream": {unsafe.Sizeof(upstreamHistory{}), 2 << 10},
		"request":  {unsafe.Sizeof(proxy.Ended{}) + 8*unsafe.Sizeof(proxy.Step{}) + maxMethod + maxPath + maxID + 3, 1 << 10},
		"page":     {unsafe.Sizeof(Page{}), 2 << 10},
	} {
		t.Logf("%s: %d bytes", what, got[0])
		if got[0] > got[1] {
			t.Errorf("%s: %d bytes, promised are %d at most", what, got[0], got[1])
		}
	}
}

// A sidecar pays for every look.
func TestLookAllocatesLittle(t *testing.T) {
	s := newStage()
	s.request("a", policy.OutcomeSuccess, time.Millisecond)
	s.steps(1)
	if n := testing.AllocsPerRun(50, func() { s.look(noon) }); n > 8 {
		t.Errorf("%v allocations", n)
	}
}

// A route whose match is wrong takes no request, which is only visible if the page names it.
func TestRoutesWithoutRequestsAreNamed(t *testing.T) {
	s := newStage()
	s.options.Route = func(name string) Rule { return Rule{Match: "path /" + name} }
	s.metrics.Route("write")
	s.metrics.Route("read")
	s.request("default", policy.OutcomeSuccess, time.Millisecond)
	if got, want := s.State(s.now).Unused, []Unused{{"read", "path /read"}, {"write", "path /write"}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	s.request("read", policy.OutcomeSuccess, time.Millisecond)
	if got := s.State(s.now).Unused; len(got) != 1 {
		t.Errorf("%v, want one", got)
	}
}
