package advise

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/terminal"
)

// edges are those of the proxy's duration histograms, in seconds.
var edges = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 180, 600}

// spread returns a histogram with that many values in the bucket with that upper edge; 0 is the
// bucket above all edges.
func spread(values map[float64]float64) Histogram {
	h := Histogram{Edges: edges, Counts: make([]float64, len(edges)+1)}
	for edge, n := range values {
		i := slices.Index(edges, edge)
		if i < 0 {
			i = len(edges)
		}
		h.Counts[i] += n
	}
	return h
}

// good returns counts of a route whose attempts all succeeded.
func good(values map[float64]float64) *Counts {
	c := newCounts()
	c.Attempt, c.Request = spread(values), spread(values)
	c.Attempts = c.Attempt.Total()
	c.Good = c.Attempts
	c.Outcomes["success"] = c.Attempts
	return c
}

func one(c *Counts) *Sample { return &Sample{Routes: map[string]*Counts{"default": c}} }

// outbound returns the defaults for a remote service.
func outbound() InForce {
	f := defaults()
	f.QueueTimeout = time.Second
	f.Values = map[string]string{}
	return f
}

func advise(t *testing.T, c *Counts, now InForce, seconds float64) Route {
	t.Helper()
	r, err := Advise(Input{After: one(c), Seconds: seconds, Settings: map[string]InForce{"default": now}})
	if err != nil || len(r.Routes) != 1 {
		t.Fatalf("%v, %+v", err, r)
	}
	return r.Routes[0]
}

// proposed returns the proposed values by setting.
func proposed(r Route) map[string]string {
	m := map[string]string{}
	for _, p := range r.Proposals {
		m[strings.TrimPrefix(p.Setting, "RETRYPROXY_")] = p.Proposed
	}
	return m
}

func TestTheMoreAnswersTheRarerTheTailThatDecides(t *testing.T) {
	for _, tc := range []struct {
		name    string
		answers map[float64]float64
		attempt string // "" for none
		why     string
	}{
		{"nothing", nil, "", ""},
		{"too few", map[float64]float64{0.05: 199}, "", ""},
		{"p95 and two steps", map[float64]float64{0.05: 195, 0.5: 5}, "250ms", "p95: 95 % of the responses come within 50ms; 200 responses say little about rarer ones, so this adds 2 steps"},
		{"p95 of 999", map[float64]float64{0.25: 950, 30: 49}, "1s", "p95: 95 % of the responses come within 250ms"},
		{"p99 and one step", map[float64]float64{0.1: 600, 0.25: 390, 30: 10}, "500ms", "p99: 99 % of the responses come within 250ms; 1000 responses say little about rarer ones, so this adds one step"},
		{"p99 is the next bucket", map[float64]float64{0.1: 989, 0.5: 11}, "1s", "within 500ms"},
		{"p99.9", map[float64]float64{0.1: 5000, 0.5: 4990, 30: 10}, "500ms", "p99.9: 99.9 % of the responses come within 500ms"},
		{"one more is too many", map[float64]float64{0.1: 5000, 0.5: 4989, 1: 11}, "1s", "within 1s"},
		{"a lost packet", map[float64]float64{0.005: 10_000}, "250ms", "not less than 250ms, since a lost packet"},
		{"all alike", map[float64]float64{0.5: 10_000}, "1.5s", "at least 3 times the median, 500ms"},
		{"above the last edge", map[float64]float64{0.5: 9000, 0: 1000}, "none", ""},
		{"a step above the last edge", map[float64]float64{600: 1000}, "none", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := advise(t, good(tc.answers), outbound(), 0)
			if r.Enough != (tc.attempt != "") {
				t.Fatalf("enough: %v, %v", r.Enough, r.Notes)
			}
			got, has := proposed(r)["ATTEMPT_TIMEOUT"]
			switch tc.attempt {
			case "":
				if len(r.Proposals) != 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "too little traffic for advice") || !strings.Contains(r.Notes[0], "200 are needed") {
					t.Errorf("%+v", r)
				}
			case "none":
				if has || !strings.Contains(strings.Join(r.Notes, "\n"), "no ATTEMPT_TIMEOUT is proposed") {
					t.Errorf("%q, %v", got, r.Notes)
				}
			default:
				if got != tc.attempt || !strings.Contains(r.Proposals[0].Why, tc.why) {
					t.Errorf("%q, want %q: %s", got, tc.attempt, r.Proposals[0].Why)
				}
			}
		})
	}
}

func TestFailuresDoNotPassForAnswers(t *testing.T) {
	for _, tc := range []struct {
		name    string
		attempt map[float64]float64
		good    float64
		silent  float64
		retries map[string]float64
		would   map[string]float64
		want    string
	}{
		// Of 10 500 attempts, 500 failed at once; without them, p99.9 is in the bucket up to 1 s.
		{"fast ones make nothing faster", map[float64]float64{0.001: 500, 0.1: 9985, 1: 15}, 10_000, 0, map[string]float64{"status_503": 500}, nil, "1s"},
		{"an upstream that fails as slowly as it answers", map[float64]float64{0.1: 10_400, 0.5: 100}, 10_000, 0, map[string]float64{"status_500": 500}, nil, "500ms"},
		{"timeouts make nothing slower", map[float64]float64{0.1: 9985, 1: 15, 30: 500}, 10_000, 500, map[string]float64{"attempt_timeout": 500}, nil, "1s"},
		{"what hangs while observed", map[float64]float64{0.1: 9985, 1: 15, 30: 500}, 10_000, 500, nil, map[string]float64{"attempt_timeout": 500}, "1s"},
		{"what was reset while observed is not slow", map[float64]float64{0.1: 10_485, 1: 15}, 10_000, 500, nil, map[string]float64{"attempt_timeout": 20, "reset": 500}, "1s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := good(tc.attempt)
			c.Good, c.Silent = tc.good, tc.silent
			maps.Copy(c.Retries, tc.retries)
			maps.Copy(c.Would, tc.would)
			now := outbound()
			now.DryRun = tc.would != nil
			if got := proposed(advise(t, c, now, 0))["ATTEMPT_TIMEOUT"]; got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	few := good(map[float64]float64{0.1: 300})
	few.Good = 199
	if r := advise(t, few, outbound(), 0); r.Enough {
		t.Error("199 answers among 300 attempts were enough")
	}
}

func TestTheRequestHasTimeForItsAttempts(t *testing.T) {
	for _, tc := range []struct {
		name    string
		retries int
		hold    time.Duration
		now     time.Duration
		profile string
		want    string
	}{
		{"three of 500ms, 150ms and 300ms", 3, 0, 30 * time.Second, "", "2s"}, // 1.5 s and up to 100+200 ms
		{"two attempts only", 1, 0, 30 * time.Second, "", "1.5s"},
		{"one attempt", 0, 0, 30 * time.Second, "", "500ms"},
		{"and a hold", 3, 20 * time.Second, 30 * time.Second, "", "25s"},
		{"patient clients keep theirs", 8, 0, 180 * time.Second, "batch", "3m"},
		{"patient by their time alone", 3, 0, 61 * time.Second, "", "1m1s"},
		{"none now", 3, 0, 0, "", "2s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := outbound()
			now.MaxRetries, now.QueueTimeout, now.RequestTimeout, now.Values["PROFILE"] = tc.retries, tc.hold, tc.now, tc.profile
			r := advise(t, good(map[float64]float64{0.1: 9000, 0.5: 1000}), now, 0)
			if got := proposed(r)["REQUEST_TIMEOUT"]; got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	batch := outbound()
	batch.RequestTimeout, batch.Values["PROFILE"] = 3*time.Minute, "batch"
	if r := advise(t, good(map[float64]float64{180: 10_000}), batch, 0); proposed(r)["ATTEMPT_TIMEOUT"] != "1m" || !strings.Contains(r.Proposals[0].Why, "a third of the time that clients wait") {
		t.Errorf("slow answers for patient clients: %+v", r.Proposals)
	}
	c := good(map[float64]float64{0.1: 9000, 0.5: 1000})
	c.Request = spread(map[float64]float64{0.5: 9990, 2.5: 5, 30: 5})
	now := outbound()
	now.QueueTimeout = 0
	if why := advise(t, c, now, 0).Proposals[1].Why; !strings.Contains(why, "at most 0.10 % of the requests took longer") {
		t.Errorf("%q", why) // values up to 2.5 s may be above or below 2 s
	}
}

func TestTheBudgetIsTwiceWhatIsNeeded(t *testing.T) {
	for _, tc := range []struct {
		made, refused, seconds float64
		ratio, perSecond       string
		tooMany                bool
	}{
		{made: 0, seconds: 1000, ratio: "0.1", perSecond: "1"},
		{made: 500, seconds: 1000, ratio: "0.1", perSecond: "1"},
		{made: 501, seconds: 1000, ratio: "0.15", perSecond: "1"},
		{made: 800, seconds: 1000, ratio: "0.2", perSecond: "1"},
		{made: 400, refused: 400, seconds: 1000, ratio: "0.2", perSecond: "1"},
		{made: 1001, seconds: 1000, ratio: "0.2", perSecond: "1", tooMany: true},
		{made: 0, seconds: 4000, ratio: "0.1", perSecond: "0.3"},
		{made: 0, seconds: 1e6, ratio: "0.1", perSecond: "0.1"},
		{made: 0, seconds: 0, ratio: "0.1", perSecond: ""},
	} {
		c := good(map[float64]float64{0.1: 10_000})
		c.Retries["status_503"], c.Outcomes["gave_up_budget_exhausted"] = tc.made, tc.refused
		c.Retries["idle_close"] = 5000 // they cost nothing
		c.Outcomes["success"] -= tc.refused
		r := advise(t, c, outbound(), tc.seconds)
		got := proposed(r)
		if got["BUDGET_RATIO"] != tc.ratio || got["BUDGET_MIN_PER_SECOND"] != tc.perSecond {
			t.Errorf("%+v: %q, %q", tc, got["BUDGET_RATIO"], got["BUDGET_MIN_PER_SECOND"])
		}
		if noted := strings.Contains(strings.Join(r.Notes, "\n"), "more than retries should hide"); noted != tc.tooMany {
			t.Errorf("%+v: notes %v", tc, r.Notes)
		}
	}
}

func TestTheBackoffFollowsAnswersAndClients(t *testing.T) {
	for _, tc := range []struct {
		name   string
		median float64
		why    string
		n      float64
		now    func(*InForce)
		want   map[string]string
	}{
		{"quick answers", 0.005, "", 0, nil, map[string]string{"BACKOFF": "full-jitter", "BACKOFF_BASE": "50ms", "BACKOFF_MAX": "300ms", "BACKOFF_THROTTLED_BASE": ""}},
		{"slow ones", 0.5, "", 0, nil, map[string]string{"BACKOFF": "full-jitter", "BACKOFF_BASE": "500ms", "BACKOFF_MAX": "2s"}},
		{"very slow ones", 10, "", 0, nil, map[string]string{"BACKOFF": "full-jitter", "BACKOFF_BASE": "1s", "BACKOFF_MAX": "30s"}},
		{"patient clients", 0.5, "", 0, func(f *InForce) { f.RequestTimeout = 3 * time.Minute }, map[string]string{"BACKOFF": "additive", "BACKOFF_BASE": "", "BACKOFF_MAX": "32s"}},
		{"mostly 429", 0.5, "status_429", 50, nil, map[string]string{"BACKOFF": "full-jitter", "BACKOFF_THROTTLED_BASE": "1s"}},
		{"mostly 429, quick", 0.005, "status_429", 50, nil, map[string]string{"BACKOFF_THROTTLED_BASE": "300ms"}},
		{"mostly 503", 0.5, "status_503", 200, nil, map[string]string{"BACKOFF_THROTTLED_BASE": ""}},
		{"429 would be", 0.5, "status_429", 50, func(f *InForce) { f.DryRun = true }, map[string]string{"BACKOFF_THROTTLED_BASE": ""}}, // those were real retries, made before
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := good(map[float64]float64{tc.median: 10_000})
			if tc.why != "" {
				c.Retries[tc.why] = tc.n
			}
			now := outbound()
			now.QueueTimeout = 0
			if tc.now != nil {
				tc.now(&now)
			}
			got := proposed(advise(t, c, now, 0))
			for key, want := range tc.want {
				if got[key] != want {
					t.Errorf("%s is %q, want %q", key, got[key], want)
				}
			}
		})
	}
}

// Requests whose response bodies are still in transit are not completed.
func TestRequestsUnderWayAreNoDivisor(t *testing.T) {
	c := good(map[float64]float64{0.1: 10_000})
	c.Outcomes = map[string]float64{}
	if r := advise(t, c, outbound(), 1000); proposed(r)["BUDGET_RATIO"] != "0.1" || strings.Contains(r.Proposals[2].Why, "NaN") {
		t.Errorf("%+v", r.Proposals)
	}
}

func TestRetriesAreWeighed(t *testing.T) {
	c := good(map[float64]float64{0.1: 10_120})
	c.Attempts = 10_120
	c.Outcomes = map[string]float64{"success": 9890, "recovered": 100, "gave_up_retries_exhausted": 7, "gave_up_not_idempotent": 3}
	c.Retries = map[string]float64{"status_503": 100, "reset": 15, "idle_close": 5}
	c.Would = map[string]float64{"status_503": 40, "attempt_timeout": 10}
	if got := advise(t, c, outbound(), 0).Retries; got != (Retries{Made: 115, Recovered: 100, GaveUp: 10, Load: 115. / 10_005}) {
		t.Errorf("retry: %+v", got)
	}
	c.Hedges = 5
	if got := advise(t, c, outbound(), 0).Retries.Load; got != 115./10_000 {
		t.Errorf("with hedges: %v", got)
	}
	now := outbound()
	now.DryRun, now.MaxRetries = true, 4
	c.Outcomes = map[string]float64{"success": 9900, "gave_up_dry_run": 45, "gave_up_not_idempotent": 3}
	if got := advise(t, c, now, 0).Retries; got != (Retries{Made: 50, Recovered: 45, GaveUp: 48, Load: 50. / 10_120, LoadAtMost: 200. / 10_120}) {
		t.Errorf("observe: %+v", got)
	}
}

func TestWhatMakesAdviceDoubtfulIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(c *Counts, now *InForce)
		want   string
	}{
		"a bad day":        {func(c *Counts, _ *InForce) { c.Good -= 1001 }, "this period is not typical"},
		"retries in vain":  {func(c *Counts, _ *InForce) { c.Retries["status_500"], c.Outcomes["recovered"] = 30, 3 }, "30 retries recovered 3 requests: failing requests keep failing"},
		"an empty budget":  {func(c *Counts, _ *InForce) { c.Outcomes["gave_up_budget_exhausted"] = 4 }, "the budget prevented retries of 4 requests"},
		"hedges":           {func(c *Counts, _ *InForce) { c.Overtaken = 7 }, "7 attempts were overtaken by their hedges"},
		"attempts cut off": {func(_ *Counts, now *InForce) { now.AttemptTimeout = 100 * time.Millisecond }, "attempts currently time out after 100ms"},
	} {
		t.Run(name, func(t *testing.T) {
			c, now := good(map[float64]float64{0.1: 10_000}), outbound()
			if notes := advise(t, c, now, 0).Notes; len(notes) != 0 {
				t.Fatalf("before: %v", notes)
			}
			tc.change(c, &now)
			if notes := strings.Join(advise(t, c, now, 0).Notes, "\n"); !strings.Contains(notes, tc.want) {
				t.Errorf("%q", notes)
			}
		})
	}
}

func TestAWindowIsTheDifferenceOfTwoSamples(t *testing.T) {
	before, after := one(good(map[float64]float64{30: 20_000})), one(good(map[float64]float64{30: 20_000, 0.1: 5000, 0.5: 5000}))
	before.Started, after.Started = 77, 77
	after.Routes["new"] = good(map[float64]float64{0.1: 300})
	before.Routes["gone"] = good(map[float64]float64{0.1: 300})
	r, err := Advise(Input{Before: before, After: after, Seconds: 60})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Routes) != 2 || r.Since != "window" || r.Routes[0].Requests != 10_000 || proposed(r.Routes[0])["ATTEMPT_TIMEOUT"] != "500ms" || r.Routes[1].Name != "new" || r.Routes[1].Requests != 300 {
		t.Errorf("%+v", r)
	}
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "the defaults are assumed") {
		t.Errorf("notes %v", r.Notes)
	}
	if len(before.Routes["default"].Attempt.Counts) != 18 || before.Routes["default"].Attempts != 20_000 {
		t.Error("a sample was changed")
	}
	after.Started = 78
	if _, err := Advise(Input{Before: before, After: after}); !errors.Is(err, ErrRestarted) {
		t.Errorf("a restart: %v", err)
	}
	after.Started, after.Routes["default"].Outcomes["success"] = 77, 3
	if _, err := Advise(Input{Before: before, After: after}); !errors.Is(err, ErrRestarted) {
		t.Errorf("counts that fell: %v", err)
	}
}

func TestRoutesAreInOrderAndTheirVariablesTheirOwn(t *testing.T) {
	s := &Sample{Routes: map[string]*Counts{}}
	for _, name := range []string{"b", "default", "a"} {
		s.Routes[name] = good(map[float64]float64{0.1: 300})
	}
	r, err := Advise(Input{After: s})
	if err != nil || len(r.Routes) != 3 || r.Since != "start" {
		t.Fatalf("%v %+v", err, r)
	}
	for i, want := range []string{"RETRYPROXY_ATTEMPT_TIMEOUT", "RETRYPROXY_ROUTE_A_ATTEMPT_TIMEOUT", "RETRYPROXY_ROUTE_B_ATTEMPT_TIMEOUT"} {
		if got := r.Routes[i].Proposals[0].Setting; got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
}

// For any traffic, the proposals are a valid configuration.
func TestWhatIsProposedCanBeSet(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		values := map[float64]float64{}
		for range 1 + r.IntN(4) {
			values[edges[r.IntN(len(edges))]] += float64(r.IntN(20_000))
		}
		c := good(values)
		c.Good -= float64(r.IntN(int(c.Good)/5 + 1))
		c.Retries[[]string{"status_429", "status_503", "attempt_timeout"}[r.IntN(3)]] = float64(r.IntN(2000))
		environ := []string{"RETRYPROXY_UPSTREAM=http://" + []string{"localhost:3000", "example.com"}[r.IntN(2)], "RETRYPROXY_PROFILE=" + []string{"batch", "interactive"}[r.IntN(2)]}
		loaded, _ := config.Load(environ)
		now := defaults()
		now.MaxRetries, now.AttemptTimeout, now.RequestTimeout, now.QueueTimeout = loaded.Default.MaxRetries, loaded.Default.AttemptTimeout.Value(), loaded.Default.RequestTimeout, loaded.Default.QueueTimeout
		now.Values = map[string]string{"PROFILE": loaded.Default.Profile}
		for _, p := range advise(t, c, now, float64(r.IntN(100_000))).Proposals {
			environ = append(environ, p.Setting+"="+p.Proposed)
		}
		if _, problems := config.Load(environ); len(problems) > 0 {
			t.Fatalf("%v\n%v", environ, problems)
		}
	}
}

func TestTheTextFitsItsScreen(t *testing.T) {
	c := good(map[float64]float64{0.1: 10_000, 0.5: 200})
	c.Outcomes["recovered"], c.Outcomes["success"], c.Retries["status_503"] = 80, 10_120, 100
	now := outbound()
	now.Values = map[string]string{"ATTEMPT_TIMEOUT": "10s", "BUDGET_RATIO": "0.1", "BACKOFF": "full-jitter"}
	report, err := Advise(Input{After: one(c), Seconds: 3600, Settings: map[string]InForce{"default": now}})
	if err != nil {
		t.Fatal(err)
	}
	var plain, coloured strings.Builder
	report.Text(&plain, terminal.Screen{Width: 60})
	report.Text(&coloured, terminal.Screen{Width: 60, Color: true})
	for _, want := range []string{
		"route default: 10200 requests, 10200 attempts, 0 of them failed, since the start 1h ago\n",
		"  100 retries recovered 80 requests (0.78 %): +0.99 % load;\n  0 requests still failed\n",
		"  SETTING                           NOW          PROPOSED\n",
		"  RETRYPROXY_ATTEMPT_TIMEOUT        10s          500ms\n    p99.9: 99.9 % of the responses come within 500ms\n",
		"  RETRYPROXY_BACKOFF                full-jitter  full-jitter\n",
		"  RETRYPROXY_BACKOFF_BASE           -            100ms\n",
	} {
		if !strings.Contains(plain.String(), want) {
			t.Errorf("no %q in\n%s", want, plain.String())
		}
	}
	for line := range strings.Lines(plain.String()) {
		if len(line) > 61 && !strings.Contains(line, "route default") {
			t.Errorf("too long: %q", line)
		}
	}
	if strings.Contains(plain.String(), "\x1b") || !strings.Contains(coloured.String(), "\x1b[32m  RETRYPROXY_ATTEMPT_TIMEOUT") ||
		strings.Contains(coloured.String(), "\x1b[32m  RETRYPROXY_BACKOFF  ") || !strings.Contains(coloured.String(), "\x1b[1mroute default\x1b[0m") {
		t.Errorf("colours:\n%q", coloured.String())
	}
}

// The status page counts these as failed too.
func TestARequestWhoseResponseBrokeFailed(t *testing.T) {
	c := good(map[float64]float64{0.1: 10_000})
	c.Outcomes["success"] -= 8
	c.Outcomes["gave_up_retries_exhausted"], c.Outcomes["response_broken"], c.Outcomes["fail_fast"], c.Outcomes["client_gone"], c.Outcomes["refused"] = 3, 1, 2, 1, 1
	if n := advise(t, c, outbound(), 0).Retries.GaveUp; n != 6 {
		t.Errorf("%d failed, expected 6", n)
	}
}

func TestAReasonFitsItsProposal(t *testing.T) {
	c := good(map[float64]float64{0.1: 10_000})
	c.Retries["status_503"] = 1300
	why := map[string]string{}
	for _, p := range advise(t, c, outbound(), 0).Proposals {
		why[strings.TrimPrefix(p.Setting, "RETRYPROXY_")] = p.Why
	}
	if w := why["BUDGET_RATIO"]; strings.Contains(w, "is enough") || !strings.Contains(w, "13 % of the requests; with this ratio an upstream that is down gets at most 1.2 times") {
		t.Error(w)
	}
	if w := why["BACKOFF_MAX"]; !strings.Contains(w, "a third of 1.5s, the request timeout without the time in the queue") {
		t.Error(w)
	}
}
