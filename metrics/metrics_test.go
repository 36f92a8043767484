package metrics

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/policy/tokens"
)

func TestWhatTheProxyHoldsIsReadAtEachScrape(t *testing.T) {
	m := New(Options{DialErrorKinds: []string{"other", "refused", "timeout"}})
	expiry := time.Unix(1900000000, 0)
	calls := 0
	m.Watch(func() Snapshot {
		calls++
		return Snapshot{
			Connections: 7, AcceptPauses: 2, LogLinesDropped: 5, EvictedStalled: 4, Faults: 3, HandshakeFailures: 8, HeaderFailures: map[string]uint64{"slow": 9}, Draining: true, RetryBufferBytes: 4096, RetryBufferLimitBytes: 64 << 20,
			RetryPercent:    30,
			RateLimitPauses: ratelimit.PauseState{Begun: 11, Dropped: 12}, Paused: 4,
			RateLimits: []RateLimit{{Upstream: "http://api:80", Rate: "100/s", Queued: 31, Keys: 35, State: ratelimit.State{Leased: 32, Own: 33, Expired: 34}}},
			Shared:     &Shared{Up: true, Lost: 21, Processes: 22, Commands: 23, Errors: 24, PausesSent: 25, PausesReceived: 26, PausesDropped: 27},
			Upstreams: []Upstream{
				{Name: "http://api:80", Idle: 3, Active: calls, Dialing: 1, Dials: 20, Reuses: 70,
					DialErrors: []uint64{0, 5, 6}, IdleCloses: 4, HasBudget: true, BudgetTokens: 9.5,
					HasProbe: true, Probed: [breaker.NumProbeResults]uint64{breaker.ProbeBack: 1, breaker.ProbeFailing: 8}},
				{Name: "unix:/run/\xff", DialErrors: []uint64{1, 2, 3, 4, 5}},
			},
			Certificates: []Certificate{{Kind: "client", Name: "tls.crt", NotAfter: expiry}},
		}
	})
	scrape(t, m).want(t, map[string]string{
		`retryproxy_connections`:                                "7",
		`retryproxy_faults_total`:                               "3",
		`retryproxy_handshake_failures_total`:                   "8",
		`retryproxy_draining`:                                   "1",
		`retryproxy_proxy_header_failures_total{reason="slow"}`: "9",
		`retryproxy_accept_pauses_total`:                        "2",
		`retryproxy_log_lines_dropped_total`:                    "5",
		`retryproxy_clients_evicted_total{state="stalled"}`:     "4",
		`retryproxy_retry_buffer_bytes`:                         "4096",
		`retryproxy_retry_buffer_limit_bytes`:                   "6.7108864e+07",
		`retryproxy_retries_enabled_ratio`:                      "0.3",
		`retryproxy_rate_limit_pauses_total`:                    "11",
		`retryproxy_rate_limit_pauses_dropped_total`:            "12",
		`retryproxy_rate_limit_paused_requests`:                 "4",
		`retryproxy_shared_up`:                                  "1",
		`retryproxy_rate_limit_slots_total{from="leased",rate_limit="100/s",upstream="http://api:80"}`:  "32",
		`retryproxy_rate_limit_slots_total{from="own",rate_limit="100/s",upstream="http://api:80"}`:     "33",
		`retryproxy_rate_limit_slots_total{from="expired",rate_limit="100/s",upstream="http://api:80"}`: "34",
		`retryproxy_rate_limit_queued{rate_limit="100/s",upstream="http://api:80"}`:                     "31",
		`retryproxy_rate_limit_keys{rate_limit="100/s",upstream="http://api:80"}`:                       "35",
		`retryproxy_shared_lost_total`:                                                            "21",
		`retryproxy_shared_processes`:                                                             "22",
		`retryproxy_shared_commands_total`:                                                        "23",
		`retryproxy_shared_errors_total`:                                                          "24",
		`retryproxy_shared_rate_limit_pauses_total{way="told"}`:                                   "25",
		`retryproxy_shared_rate_limit_pauses_total{way="learnt"}`:                                 "26",
		`retryproxy_shared_rate_limit_pauses_total{way="dropped"}`:                                "27",
		`retryproxy_upstream_connections{state="idle",upstream="http://api:80"}`:                  "3",
		`retryproxy_upstream_connections{state="active",upstream="http://api:80"}`:                "1",
		`retryproxy_upstream_connections{state="dialing",upstream="http://api:80"}`:               "1",
		`retryproxy_upstream_dials_total{upstream="http://api:80"}`:                               "20",
		`retryproxy_upstream_reuses_total{upstream="http://api:80"}`:                              "70",
		`retryproxy_upstream_idle_closes_total{upstream="http://api:80"}`:                         "4",
		`retryproxy_upstream_dial_errors_total{kind="refused",upstream="http://api:80"}`:          "5",
		`retryproxy_upstream_dial_errors_total{kind="timeout",upstream="http://api:80"}`:          "6",
		`retryproxy_upstream_dial_errors_total{kind="timeout",upstream="unix:/run/` + "\uFFFD\"}": "3",
		`retryproxy_budget_tokens{upstream="http://api:80"}`:                                      "9.5",
		`retryproxy_budget_tokens{upstream="unix:/run/` + "\uFFFD\"}":                             "",
		`retryproxy_path_probes_total{result="failing",upstream="http://api:80"}`:                 "8",
		`retryproxy_path_probes_total{result="back",upstream="unix:/run/` + "\uFFFD\"}":           "",
		`retryproxy_certificate_expiry_timestamp_seconds{kind="client",name="tls.crt"}`:           "1.9e+09",
	})
	scrape(t, m).want(t, map[string]string{
		`retryproxy_upstream_connections{state="active",upstream="http://api:80"}`: "2",
	})
}

func TestNothingIsShownOfAProxyNotWatched(t *testing.T) {
	scrape(t, New(Options{})).want(t, map[string]string{`retryproxy_connections`: "", `retryproxy_retry_buffer_bytes`: ""})
}

func TestRefusalsKeepToTheirList(t *testing.T) {
	m := New(Options{Refusals: []string{"bare_lf", "obs_fold"}})
	for _, reason := range []int{0, 0, -1, 2} {
		m.Refused(reason)
	}
	p := scrape(t, m)
	p.want(t, map[string]string{
		`retryproxy_parse_refusals_total{reason="bare_lf"}`:  "2",
		`retryproxy_parse_refusals_total{reason="obs_fold"}`: "0",
	})
	if got := p.sum(t, "retryproxy_parse_refusals_total"); got != 2 {
		t.Errorf("refusals add up to %v, want 2", got)
	}
}

func TestARefusedConfigurationKeepsTheTimeOfTheGoodOne(t *testing.T) {
	m := New(Options{})
	scrape(t, m).want(t, map[string]string{
		`retryproxy_config_last_reload_successful`:                "0",
		`retryproxy_config_last_reload_success_timestamp_seconds`: "0",
	})
	m.ConfigLoaded(true, time.UnixMilli(1700000000500))
	m.ConfigLoaded(false, time.UnixMilli(1700000009000))
	scrape(t, m).want(t, map[string]string{
		`retryproxy_config_last_reload_successful`:                "0",
		`retryproxy_config_last_reload_success_timestamp_seconds`: "1.7000000005e+09",
		`retryproxy_config_reloads_total{result="failure"}`:       "1",
		`retryproxy_config_reloads_total{result="success"}`:       "1",
	})
	m.ConfigLoaded(true, time.UnixMilli(1700000010000))
	scrape(t, m).want(t, map[string]string{`retryproxy_config_last_reload_successful`: "1"})
}

func TestBuildAndRuntimeAreShown(t *testing.T) {
	m := New(Options{Version: "v1.2.3", Revision: "abc"})
	p := scrape(t, m)
	p.want(t, map[string]string{
		`retryproxy_build_info{goversion="` + runtime.Version() + `",revision="abc",version="v1.2.3"}`: "1",
	})
	for _, name := range []string{"go_goroutines", "process_open_fds", "process_resident_memory_bytes"} {
		if runtime.GOOS == "linux" && p[name] == "" {
			t.Errorf("%s is not shown", name)
		}
	}
}

func TestKnownOutcomesBeginAtZeroForFewRoutes(t *testing.T) {
	m := New(Options{})
	m.Route("unused")
	p := scrape(t, m)
	for _, o := range policy.AllOutcomes() {
		p.want(t, map[string]string{fmt.Sprintf(`retryproxy_outcomes_total{outcome=%q,route="unused"}`, o): "0"})
	}
	for _, reason := range policy.AllReasons() {
		want := ""
		if reason.ForRetry() {
			want = "0"
		}
		p.want(t, map[string]string{fmt.Sprintf(`retryproxy_retries_total{reason=%q,route="unused"}`, reason): want})
	}
}

// What a route does not use costs no series.
func TestAScrapeHasFewSeriesOfWhatIsNotUsed(t *testing.T) {
	m := New(Options{})
	m.Route("unused")
	used := m.Route("used").Near()
	used.RequestBegan()
	used.AttemptDone(policy.ClassNone, 200, 0)
	used.RequestDone([]byte("GET"), 200, policy.OutcomeSuccess, 0, 0, 1)
	p := scrape(t, m)
	of := map[string]int{}
	for name := range p {
		for _, route := range []string{"unused", "used"} {
			if strings.Contains(name, `route="`+route+`"`) {
				of[route]++
			}
		}
	}
	if of["unused"] > 70 || of["used"] > 130 {
		t.Errorf("series by route: %v", of)
	}
}

func TestManyRoutesAreShownOnceUsed(t *testing.T) {
	m := New(Options{})
	var last *Route
	for i := range zeroRoutes + 1 {
		last = m.Route(fmt.Sprintf("r%d", i))
	}
	last.Near().RequestBegan()
	last.Near().RequestDone([]byte("GET"), 200, policy.OutcomeSuccess, 0, 0, 1)
	seen := 0
	for name := range scrape(t, m) {
		if !strings.Contains(name, `route="`) {
			continue
		}
		seen++
		if !strings.Contains(name, `route="r100"`) {
			t.Errorf("%s is shown without a use", name)
		}
	}
	if seen == 0 {
		t.Error("the route that was used is not shown")
	}
}

func TestARouteIsTheSameForTheSameName(t *testing.T) {
	m := New(Options{})
	a, b := m.Route("a"), m.Route("b")
	if m.Route("a") != a || a == b {
		t.Error("routes are not one per name")
	}
}

func TestAnyNameIsMadeFitForALabel(t *testing.T) {
	m := New(Options{Version: "\xfe"})
	m.Route("a\xffb").Near().RequestBegan()
	p := scrape(t, m)
	p.want(t, map[string]string{"retryproxy_requests_in_flight{route=\"a\uFFFDb\"}": "1"})
	if p.sum(t, "retryproxy_build_info", "version=\"\uFFFD\"") != 1 {
		t.Error("the version is not shown")
	}
}

// The first routes use every stripe, later ones only one.
func TestStripesAreUsed(t *testing.T) {
	r := newRoute("a", 4, new(beginning))
	for i := range uint(maxStripes) {
		r.stripe(i).began.Add(1)
	}
	for i := range r.stripes {
		if c := r.stripes[i].Load(); c == nil || c.began.Load() != 4 {
			t.Errorf("stripe %d is not used as the others are", i)
		}
	}
	if got := r.InFlight(); got != maxStripes {
		t.Errorf("the stripes add up to %d, want %d", got, maxStripes)
	}
}

func TestRetainDropsRoutesThatAreGone(t *testing.T) {
	m := New(Options{})
	kept, gone := m.Route("kept"), m.Route("gone")
	for _, r := range []*Route{kept, gone} {
		r.Near().RequestBegan()
		r.Near().RequestDone([]byte("GET"), 200, policy.OutcomeSuccess, 0, 0, 1)
	}
	m.Retain([]string{"kept", "never seen"})
	gone.Near().RequestBegan() // a request that still runs must not crash
	scrape(t, m).want(t, map[string]string{
		`retryproxy_outcomes_total{outcome="success",route="kept"}`: "1",
		`retryproxy_outcomes_total{outcome="success",route="gone"}`: "",
	})
	if m.Route("kept") != kept || m.Route("gone") == gone {
		t.Error("Retain kept or dropped the wrong one")
	}
}

// full returns metrics with a value in every family.
func full() *Metrics {
	m := New(Options{
		Refusals:       []string{"bare_lf"},
		DialErrorKinds: []string{"refused"},
		DeadlineFields: []string{"grpc-timeout"},
	})
	r := m.Route("a").Near()
	r.AttemptDone(policy.ClassNone, 200, 0)
	r.TokensUsed(tokens.Count{Input: 1}, tokens.Delivered)
	r.RequestDone([]byte("GET"), 200, policy.OutcomeSuccess, 2, 1, 2)
	r.WouldRetry(policy.ReasonReset)
	r.WaitBegan()
	r.WaitEnded(0)
	r.Queued(0)
	r.Hedged()
	r.FallbackFailed()
	m.Watch(func() Snapshot {
		return Snapshot{
			Shared: &Shared{}, HeaderFailures: map[string]uint64{"cut": 1},
			RateLimits:   []RateLimit{{Upstream: "u", Rate: "1/s", Tokens: 1}},
			Upstreams:    []Upstream{{Name: "u", DialErrors: []uint64{1}, HasBudget: true, HasProbe: true, EachEndpoint: []Endpoint{{Name: "a"}}}},
			Certificates: []Certificate{{Kind: "client", Name: "c"}},
		}
	})
	return m
}

// Prometheus has rules for names, units and help texts.
func TestExpositionPassesTheLinter(t *testing.T) {
	problems, err := testutil.GatherAndLint(full().registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// A pedantic registry rejects what was not described.
func TestReferenceIsExactlyWhatIsShown(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector{full()})
	shown, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]Row)
	for _, row := range Reference() {
		rows[row.Name] = row
	}
	for _, f := range shown {
		row, found := rows[f.GetName()]
		if !found {
			t.Errorf("%s is not in the reference", f.GetName())
			continue
		}
		if want := strings.ToUpper(row.Type.String()); f.GetType().String() != want {
			t.Errorf("%s is a %s, the reference says %s", row.Name, f.GetType(), want)
		}
		if got := len(f.GetMetric()[0].GetLabel()); got != len(row.Labels) {
			t.Errorf("%s has %d labels, the reference says %v", row.Name, got, row.Labels)
		}
		delete(rows, f.GetName())
	}
	for name := range rows {
		t.Errorf("%s is in the reference but not shown", name)
	}
}

func TestReferenceRowsAreWhole(t *testing.T) {
	for _, row := range Reference() {
		if !strings.HasPrefix(row.Name, "retryproxy_") || !strings.HasSuffix(row.Help, ".") || !strings.HasSuffix(row.Question, "?") {
			t.Errorf("%+v", row)
		}
	}
}

// Dashboards and alerts depend on these names and labels.
func TestNamesAndLabelsAreKept(t *testing.T) {
	want := map[string]string{
		"retryproxy_requests_total":           "route method code",
		"retryproxy_outcomes_total":           "route outcome",
		"retryproxy_attempts_total":           "route class code",
		"retryproxy_retries_total":            "route reason",
		"retryproxy_request_duration_seconds": "route code_class",
		"retryproxy_attempt_duration_seconds": "route code_class",
		"retryproxy_backoff_seconds":          "route",
		"retryproxy_added_latency_seconds":    "route",
		"retryproxy_attempts_per_request":     "route",
		"retryproxy_budget_tokens":            "upstream",
		"retryproxy_upstream_connections":     "upstream state",
	}
	for _, row := range Reference() {
		if labels, known := want[row.Name]; known && strings.Join(row.Labels, " ") != labels {
			t.Errorf("%s has labels %v, want %s", row.Name, row.Labels, labels)
		}
		delete(want, row.Name)
	}
	if len(want) > 0 {
		t.Errorf("not in the reference: %v", want)
	}
}

func TestEverythingMayHappenAtOnce(t *testing.T) {
	m := full()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 50 {
				m.Route(fmt.Sprintf("r%d", i%7)).Near().RequestBegan()
				m.Refused(0)
				m.ConfigLoaded(i%2 == 0, time.Unix(int64(i), 0))
				m.Watch(func() Snapshot { return Snapshot{Connections: i} })
				if i%10 == w {
					m.Retain([]string{"a"})
					scrape(t, m)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkScrapeThousandRoutes(b *testing.B) {
	m := full()
	for i := range 1000 {
		r := m.Route(fmt.Sprintf("r%d", i)).Near()
		r.AttemptDone(policy.ClassNone, 200, 0)
		r.RequestDone([]byte("GET"), 200, policy.OutcomeSuccess, 0, 0, 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestBadDeadlinesAreCountedByField(t *testing.T) {
	m := New(Options{DeadlineFields: []string{"a", "b"}})
	for _, field := range []int{1, 1, -1, 2} {
		m.BadDeadline(field)
	}
	p := scrape(t, m)
	p.want(t, map[string]string{
		`retryproxy_bad_deadlines_total{field="a"}`: "0",
		`retryproxy_bad_deadlines_total{field="b"}`: "2",
	})
	if got := p.sum(t, "retryproxy_bad_deadlines_total"); got != 2 {
		t.Errorf("they add up to %v, want 2", got)
	}
}

// startTight starts a server whose sockets buffer little. By default they may grow to hold a whole
// scrape.
func startTight(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			_ = c.(*net.TCPConn).SetWriteBuffer(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close) // after the connections
	return server
}

// unread asks for scrapes and reads none.
func unread(t *testing.T, server *httptest.Server, scrapes int) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.(*net.TCPConn).SetReadBuffer(1)
	if _, err := io.WriteString(c, strings.Repeat("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", scrapes)); err != nil {
		t.Fatal(err)
	}
	return c
}

// Each unread answer takes its memory, so there are few of them: the oldest is cut off for the next.
func TestConcurrentScrapesAreLimited(t *testing.T) {
	m := New(Options{})
	for i := range 100 {
		m.Route(strings.Repeat("r", 50) + strconv.Itoa(i))
	}
	var begun, ended atomic.Int64
	scrape := m.Handler()
	server := startTight(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun.Add(1)
		scrape.ServeHTTP(w, r)
		ended.Add(1)
	}))
	const more = 3
	for range maxScrapesInFlight + more {
		unread(t, server, 1)
	}
	for end := time.Now().Add(time.Minute); ended.Load() < more && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond) // in which no other may end
	if b, e := begun.Load(), ended.Load(); b != maxScrapesInFlight+more || e != more {
		t.Errorf("%d of %d unread answers ended, want %d", e, b, more)
	}
}

func TestAScrapeThatNobodyReadsDelaysNoOther(t *testing.T) {
	m := New(Options{})
	for i := range 100 { // more text than sockets take
		m.Route(strings.Repeat("r", 50) + strconv.Itoa(i))
	}
	server := startTight(t, m.Handler())
	for range 5 {
		unread(t, server, 4)
	}
	client := server.Client()
	defer client.CloseIdleConnections()
	for range 3 {
		resp, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%d %v", resp.StatusCode, err)
		}
		_ = resp.Body.Close()
	}
}
