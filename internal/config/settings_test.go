package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// minimal is the shortest valid configuration.
const minimal = "RETRYPROXY_UPSTREAM=http://example.com"

func mustLoad(t *testing.T, environ ...string) *Settings {
	t.Helper()
	s, problems := Load(append([]string{minimal}, environ...))
	if len(problems) != 0 {
		t.Fatalf("unexpected problems: %v", problems)
	}
	return s
}

// problemsOf loads a configuration and returns the lines of its problems, warnings with the prefix
// "warning: ".
func problemsOf(environ ...string) []string {
	_, problems := Load(environ)
	var lines []string
	for _, p := range problems {
		line := p.String()
		if p.Warning {
			line = "warning: " + line
		}
		lines = append(lines, line)
	}
	return lines
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d problems, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("problem %d:\n got %s\nwant a part %s", i, got[i], want[i])
		}
	}
}

func TestDefaultsHaveNoProblems(t *testing.T) {
	for _, upstream := range []string{"http://example.com", "https://example.com", "http://127.0.0.1:3000", "unix:/run/app.sock"} {
		for _, profile := range []string{"interactive", "batch", "llm"} {
			if got := problemsOf("RETRYPROXY_UPSTREAM="+upstream, "RETRYPROXY_PROFILE="+profile); got != nil {
				t.Errorf("%s, %s: %v", upstream, profile, got)
			}
		}
	}
}

// Every default must be an allowed value, and every tag must be valid.
func TestReferenceIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Reference() {
		id := s.Key
		if s.Scope == ScopeMatcher {
			id = "ROUTE " + id // the default route also has LISTEN
		}
		switch {
		case s.Key == "" || seen[id]:
			t.Errorf("%s %q: no name, or twice", s.field, id)
		case s.Group == "" || s.About == "" || !strings.HasSuffix(s.About, "."):
			t.Errorf("%s: group or sentence missing", s.Key)
		case s.Shown == "":
			t.Errorf("%s: neither a default nor what is shown in its place", s.Key)
		case units[s.Unit] == "":
			t.Errorf("%s: unknown unit %q", s.Key, s.Unit)
		case s.Unit == "word" && len(s.OneOf) < 2:
			t.Errorf("%s: a word without a choice", s.Key)
		case isServiceLink(s.Variable(), "1") || isServiceLink(s.Variable(), "10.0.0.1") || isServiceLink(s.Variable(), "tcp://10.0.0.1:80"):
			t.Errorf("%s: Kubernetes could set this for a Service", s.Key)
		}
		seen[id] = true
		for _, value := range append(slices.Collect(maps.Values(s.Profiles)), s.Default) {
			if value == "" || s.Scope == ScopeMatcher {
				continue
			}
			if got := problemsOf(minimal, s.Variable()+"="+value); len(got) > 0 && !strings.Contains(got[0], "no effect") {
				t.Errorf("%s=%s: %v", s.Variable(), value, got)
			}
		}
	}
}

// otherValues has a value for each setting that is not its default, to detect wrong tags.
var otherValues = map[string]string{
	"LISTEN": ":9000", "POSITION": "inbound", "ADMIN_LISTEN": "127.0.0.1:9000", "ADMIN_ALLOW": "172.16.0.0/12", "ADMIN_TOKEN_FILE": "settings_test.go", "TRUSTED_PROXIES": "10.0.0.0/8,::1/128", "PROXY_PROTOCOL_FROM": "192.0.2.1/32", "ROUTES": "a,b",
	"RETRY_BUFFER_TOTAL_BYTES": "128MiB",
	"DRAIN_DELAY":              "5s", "DRAIN_TIMEOUT": "9s", "ACCESS_LOG": "true",
	"TLS_CERT": "/tls.pem", "TLS_KEY": "/tls-key.pem", "TLS_CLIENT_CA": "/callers.pem", "TLS_MIN_VERSION": "1.3", "LOG_LEVEL": "warn",
	"SHARED":   "rediss+sentinel://a:1,b:2/main/3?scope=payments&password_file=/password&ca=/engines.pem&cert=/engine.pem",
	"UPSTREAM": "https://api.example.com:8443", "UPSTREAM_CA": "/ca.pem", "UPSTREAM_CERT": "/cert.pem", "UPSTREAM_KEY": "/cert-key.pem",
	"UPSTREAM_HOST": "preserve", "BALANCE": "hash:X-User", "HEALTH_PATH": "/healthz?a=1",
	"REQUEST_HEADERS_SET": "X-Env: prod", "REQUEST_HEADERS_REMOVE": "Cookie,X-Debug", "REQUEST_HEADERS_FILE": "/headers", "RESPONSE_HEADERS_SET": "X-A: 1, X-B: 2, 3", "RESPONSE_HEADERS_REMOVE": "Server", "PROFILE": "batch", "RETRY_ON": "503",
	"MAX_RETRIES": "5", "RETRY_METHODS": "GET,HEAD", "RETRY_REJECTED": "429,503,529", "FATAL_ERROR_CODES": "out_of_beans,!insufficient_quota", "LAYERED_RETRIES": "deny", "BACKOFF": "normal:jitter=0.2:factor=3",
	"BACKOFF_BASE": "50ms", "BACKOFF_MAX": "4s", "BACKOFF_THROTTLED_BASE": "2s", "BUDGET_RATIO": "0.5",
	"BUDGET_MIN_PER_SECOND": "2.5", "BUDGET_BURST": "20", "REQUEST_TIMEOUT": "1m", "ATTEMPT_TIMEOUT": "15s hard", "FIRST_CONTENT_TIMEOUT": "20s", "BODY_IDLE_TIMEOUT": "30s",
	"BREAKER":       "fail-fast",
	"QUEUE_TIMEOUT": "3s",
	"QUEUE_MAX":     "17",
	"BREAKER_ON":    "5xx,reset", "BREAKER_AFTER": "1", "BREAKER_BACKOFF": "slots:base=10ms:slots=10", "QUEUE_ORDER": "oldest",
	"CONCURRENCY_LIMIT":    "23",
	"FALLBACK":             "503:busy: later",
	"HEDGE_AFTER":          "p90",
	"RATE_LIMIT_PAUSE_KEY": "header:X-Api-Key",
	"RATE_LIMIT_PAUSE_MAX": "2m",
	"RATE_LIMIT":           "600/m",
	"RATE_LIMIT_KEY":       "header:Authorization",
	"RATE_LIMIT_WAIT":      "3s",
	"TOKEN_LIMIT":          "200000/m",
	"RETRY_BUFFER_BYTES":   "2MiB",
	"DRY_RUN":              "true",
}

func TestEverySettingIsRead(t *testing.T) {
	for _, setting := range Reference() {
		if setting.Key == "CONFIG_FILE" || setting.Scope == ScopeMatcher {
			continue // they have their own tests
		}
		value, known := otherValues[setting.Key]
		if !known {
			t.Errorf("%s: no value in this test", setting.Key)
			continue
		}
		base, _ := Load([]string{"RETRYPROXY_UPSTREAM=https://example.com"})
		s, _ := Load([]string{"RETRYPROXY_UPSTREAM=https://example.com", setting.Variable() + "=" + value})
		if got := find(s.Values(), s.Default.Values(), setting.Key); got.Text != value || got.Variable != setting.Variable() {
			t.Errorf("%s: effective %+v, want %q", setting.Key, got, value)
		}
		if before := find(base.Values(), base.Default.Values(), setting.Key); before.Text == value && setting.Key != "UPSTREAM" {
			t.Errorf("%s: the test sets the default %q", setting.Key, value)
		}
	}
}

func find(global, shared []Value, key string) Value {
	for _, v := range append(global, shared...) {
		if v.Key == key {
			return v
		}
	}
	return Value{}
}

func TestEverySharedSettingCanBeSetForARoute(t *testing.T) {
	for _, setting := range sharedSettings {
		value := otherValues[setting.Key]
		variable := "RETRYPROXY_ROUTE_A_" + setting.Key
		s, _ := Load([]string{"RETRYPROXY_UPSTREAM=https://example.com", "RETRYPROXY_ROUTES=a,b", "RETRYPROXY_ROUTE_A_PATH=/a", "RETRYPROXY_ROUTE_B_PATH=/b", variable + "=" + value})
		if got := find(nil, s.Routes[0].Values(), setting.Key); got.Text != value || got.Variable != variable {
			t.Errorf("%s: route has %+v, want %q", setting.Key, got, value)
		}
		if got := find(nil, s.Routes[1].Values(), setting.Key); got.Text == value && setting.Key != "UPSTREAM" || got.Variable == variable {
			t.Errorf("%s: the other route has it too: %+v", setting.Key, got)
		}
	}
}

func TestRouteFallsBackToGlobal(t *testing.T) {
	for _, setting := range sharedSettings {
		value := otherValues[setting.Key]
		environ := []string{"RETRYPROXY_UPSTREAM=https://example.com", "RETRYPROXY_ROUTES=a", "RETRYPROXY_ROUTE_A_PATH=/a", "RETRYPROXY_ROUTE_A_QUEUE_MAX=3", setting.Variable() + "=" + value}
		if setting.Key == "QUEUE_MAX" {
			environ[3] = "RETRYPROXY_ROUTE_A_MAX_RETRIES=1"
		}
		s, _ := Load(environ)
		if got := find(nil, s.Routes[0].Values(), setting.Key); got.Text != value || got.Variable != setting.Variable() {
			t.Errorf("%s: route has %+v, want the global %q", setting.Key, got, value)
		}
	}
}

func TestHostOfARouteIsAMatcher(t *testing.T) {
	s := mustLoad(t, "RETRYPROXY_UPSTREAM_HOST=preserve", "RETRYPROXY_ROUTES=a,b", "RETRYPROXY_ROUTE_A_HOST=a.example.com",
		"RETRYPROXY_ROUTE_B_PATH=/b/*", "RETRYPROXY_ROUTE_B_UPSTREAM_HOST=b.internal:81")
	if a := &s.Routes[0]; a.Matcher.Host != "a.example.com" || a.Shared.UpstreamHost.Mode != forward.HostPreserve {
		t.Errorf("route a: matcher %q, rule %+v", a.Matcher.Host, a.Shared.UpstreamHost)
	}
	if b := &s.Routes[1]; b.Matcher.Host != "" || b.Shared.UpstreamHost.Name != "b.internal:81" {
		t.Errorf("route b: matcher %q, rule %+v", b.Matcher.Host, b.Shared.UpstreamHost)
	}
}

func TestSideAndListenAreInferred(t *testing.T) {
	for upstream, want := range map[string]string{
		"http://localhost:3000":    "inbound :8080",
		"http://app.localhost:300": "inbound :8080",
		"http://127.9.9.9:3000":    "inbound :8080",
		"http://[::1]:3000":        "inbound :8080",
		"unix:/run/app.sock":       "inbound :8080",
		"https://example.com":      "outbound 127.0.0.1:8080",
		"http://10.0.0.1":          "outbound 127.0.0.1:8080",
		"http://notlocalhost":      "outbound 127.0.0.1:8080",
	} {
		s, problems := Load([]string{"RETRYPROXY_UPSTREAM=" + upstream})
		if got := s.Position + " " + string(s.Default.Listen); got != want || problems != nil {
			t.Errorf("%s: %s, want %s (%v)", upstream, got, want, problems)
		}
	}
	s := mustLoad(t, "RETRYPROXY_POSITION=inbound")
	if string(s.Default.Listen) != ":8080" {
		t.Errorf("a side that was set does not pick the listener: %s", s.Default.Listen)
	}
	if s = mustLoad(t, "RETRYPROXY_LISTEN=:81"); string(s.Default.Listen) != ":81" || s.Position != "outbound" {
		t.Errorf("a listener that was set: %s %s", s.Position, s.Default.Listen)
	}
}

func TestProfileFillsWhatTheNearestLevelLeavesOpen(t *testing.T) {
	type want struct {
		retries int
		timeout time.Duration
		backoff string
	}
	interactive, batch := want{3, 30 * time.Second, "full-jitter"}, want{8, 180 * time.Second, "additive"}
	tests := map[string]struct {
		environ []string
		def, a  want
	}{
		"none":                    {nil, interactive, interactive},
		"global":                  {[]string{"PROFILE=batch"}, batch, batch},
		"global with own count":   {[]string{"PROFILE=batch", "MAX_RETRIES=4"}, want{4, 180 * time.Second, "additive"}, want{4, 180 * time.Second, "additive"}},
		"route":                   {[]string{"ROUTE_A_PROFILE=batch"}, interactive, batch},
		"route over global value": {[]string{"MAX_RETRIES=4", "ROUTE_A_PROFILE=batch"}, want{4, 30 * time.Second, "full-jitter"}, batch},
		"route value over both":   {[]string{"MAX_RETRIES=4", "ROUTE_A_PROFILE=batch", "ROUTE_A_MAX_RETRIES=6"}, want{4, 30 * time.Second, "full-jitter"}, want{6, 180 * time.Second, "additive"}},
		"route for a model":       {[]string{"PROFILE=batch", "ROUTE_A_PROFILE=llm"}, batch, want{8, 10 * time.Minute, "additive"}},
		"route back again":        {[]string{"PROFILE=batch", "ROUTE_A_PROFILE=interactive"}, batch, interactive},
	}
	for name, tt := range tests {
		environ := []string{"RETRYPROXY_ROUTES=a", "RETRYPROXY_ROUTE_A_PATH=/a"}
		for _, e := range tt.environ {
			environ = append(environ, "RETRYPROXY_"+e)
		}
		s := mustLoad(t, environ...)
		for route, want := range map[*Route]want{&s.Default: tt.def, &s.Routes[0]: tt.a} {
			if route.MaxRetries != want.retries || route.RequestTimeout != want.timeout || route.Backoff.Name() != want.backoff {
				t.Errorf("%s, route %s: %d %v %s, want %+v", name, route.Name, route.MaxRetries, route.RequestTimeout, route.Backoff, want)
			}
		}
	}
}

// Every retry of a profile can begin if attempts take as long as a slow one.
func TestProfilesLeaveTimeForAllRetries(t *testing.T) {
	for _, name := range Profiles() {
		r := Defaults(name)
		p, err := r.Policy()
		if err != nil || r.Profile != name {
			t.Fatalf("%s: %v, %s", name, err, r.Profile)
		}
		if w := p.Worst(r.RequestTimeout, 5*time.Second); w.Attempts != 1+p.MaxRetries || w.SlowAttempts != w.Attempts || w.Total != r.RequestTimeout {
			t.Errorf("%s: %+v", name, w)
		}
	}
}

// What the packages below do without being told is what the tags say.
func TestDefaultsOfPackagesAreThoseOfTheTags(t *testing.T) {
	r := Defaults("interactive")
	if (policy.MethodSet{}).String() != r.RetryMethods.String() {
		t.Errorf("methods %s", r.RetryMethods)
	}
	if got := (budget.Config{Ratio: r.BudgetRatio.Value(), MinPerSecond: r.BudgetMinPerSecond, Burst: r.BudgetBurst}); got != budget.Default() {
		t.Errorf("budget %+v", got)
	}
	if r.dialTimeout() != upstream.DefaultDialTimeout {
		t.Errorf("dial timeout %v", r.dialTimeout())
	}
}

func TestRouteWithItsOwnUpstreamTakesNoCertificatesOfTheGlobalOne(t *testing.T) {
	s := mustLoad(t, "RETRYPROXY_UPSTREAM=https://example.com", "RETRYPROXY_UPSTREAM_CA=/ca", "RETRYPROXY_UPSTREAM_CERT=/c", "RETRYPROXY_UPSTREAM_KEY=/k",
		"RETRYPROXY_ROUTES=a,b", "RETRYPROXY_ROUTE_A_PATH=/a", "RETRYPROXY_ROUTE_A_UPSTREAM=https://other.example", "RETRYPROXY_ROUTE_B_PATH=/b", "RETRYPROXY_ROUTE_B_QUEUE_MAX=3")
	if a := &s.Routes[0]; a.UpstreamCA+a.UpstreamCert+a.UpstreamKey != "" || a.Variable("UPSTREAM_CERT") != "" {
		t.Errorf("route a: %+v", a.Shared)
	}
	if b := &s.Routes[1]; b.UpstreamCA != "/ca" || b.UpstreamCert != "/c" || b.UpstreamKey != "/k" {
		t.Errorf("route b: %+v", b.Shared)
	}
}

func TestDefaultsGiveWayToWhatIsSet(t *testing.T) {
	s := mustLoad(t, "RETRYPROXY_REQUEST_TIMEOUT=3s", "RETRYPROXY_RETRY_BUFFER_TOTAL_BYTES=32KiB", "RETRYPROXY_BACKOFF_MAX=200ms")
	r := &s.Default
	if r.dialTimeout() != time.Second || r.RetryBufferBytes != 32<<10 || r.BackoffThrottledBase != 200*time.Millisecond {
		t.Errorf("%v %v %v", r.dialTimeout(), r.RetryBufferBytes, r.BackoffThrottledBase)
	}
	if s = mustLoad(t, "RETRYPROXY_ATTEMPT_TIMEOUT=2s"); s.Default.dialTimeout() != 2*time.Second {
		t.Errorf("with a short attempt timeout: %v to connect", s.Default.dialTimeout())
	}
}

func TestAnAttemptTimeoutSetByHandMeansWhatItSays(t *testing.T) {
	for value, want := range map[string]time.Duration{"": 0, "auto": 0, "AUTO": 0, "0s": 0, "15s": 15 * time.Second} {
		s := mustLoad(t, "RETRYPROXY_ATTEMPT_TIMEOUT="+value)
		a := s.Default.AttemptTimeout
		if a.Value() != want || a.Auto() != (value != "0s" && want == 0) {
			t.Errorf("%q: %v, auto %v", value, a.Value(), a.Auto())
		}
	}
}

func TestEmptyValueIsNotSet(t *testing.T) {
	s := mustLoad(t, "RETRYPROXY_MAX_RETRIES=", "RETRYPROXY_LISTEN= ", "RETRYPROXY_TYPO=")
	if s.Default.MaxRetries != 3 || s.Default.Variable("MAX_RETRIES") != "" {
		t.Errorf("%d %q", s.Default.MaxRetries, s.Default.Variable("MAX_RETRIES"))
	}
}

func TestErrIsAllErrorsAndNoWarning(t *testing.T) {
	_, problems := Load([]string{"RETRYPROXY_MAX_RETRIES=x", "RETRYPROXY_RETRY_METHODS=POST", "RETRYPROXY_UPSTREEM=http://a"})
	err := problems.Err()
	if !errors.Is(err, ErrInvalid) || strings.Count(err.Error(), "\n") != 3 || strings.Contains(err.Error(), "RETRY_METHODS") {
		t.Errorf("%v", err)
	}
	if len(problems.Warnings()) != 1 {
		t.Errorf("warnings: %v", problems.Warnings())
	}
	if Problems(problems.Warnings()).Err() != nil {
		t.Error("warnings alone are an error")
	}
}

func TestFilesNamesWhatAReloadReads(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("RETRYPROXY_UPSTREAM_CA=/ca.pem\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, problems := Load([]string{"RETRYPROXY_UPSTREAM=https://example.com", "RETRYPROXY_CONFIG_FILE=" + file, "RETRYPROXY_UPSTREAM_CERT=/c.pem",
		"RETRYPROXY_TLS_CERT=/fullchain.pem", "RETRYPROXY_TLS_KEY=/privkey.pem", "RETRYPROXY_ROUTES=a", "RETRYPROXY_ROUTE_A_PATH=/a", "RETRYPROXY_ROUTE_A_UPSTREAM_KEY=/a.pem"})
	if want := []string{file, "/fullchain.pem", "/privkey.pem", "/ca.pem", "/c.pem", "/c.key", "/a.pem"}; problems != nil || !reflect.DeepEqual(s.Files(), want) {
		t.Errorf("got %v, want %v (%v)", s.Files(), want, problems)
	}
}

func BenchmarkLoad10000Routes(b *testing.B) {
	environ := []string{minimal}
	var names []string
	for i := range 10_000 {
		name := fmt.Sprintf("r%d", i)
		names = append(names, name)
		environ = append(environ, fmt.Sprintf("RETRYPROXY_ROUTE_R%d_PATH=/%d/*", i, i), fmt.Sprintf("RETRYPROXY_ROUTE_R%d_MAX_RETRIES=2", i))
	}
	environ = append(environ, "RETRYPROXY_ROUTES="+strings.Join(names, ","))
	for b.Loop() {
		if _, problems := Load(environ); problems != nil {
			b.Fatal(problems)
		}
	}
}

// Each strategy can be selected with all of its options, and then equals the one that package
// policy makes of them.
func TestEveryStrategyCanBeSet(t *testing.T) {
	for name, c := range map[string]struct {
		options string
		want    backoff.Strategy
	}{
		"full-jitter":  {"base=3ms factor=3 max=1s", backoff.FullJitter{Base: 3 * time.Millisecond, Factor: 3, Max: time.Second}},
		"equal-jitter": {"base=3ms factor=3 max=1s", backoff.EqualJitter{Base: 3 * time.Millisecond, Factor: 3, Max: time.Second}},
		"decorrelated": {"base=3ms factor=4 max=1s", backoff.Decorrelated{Base: 3 * time.Millisecond, Factor: 4, Max: time.Second}},
		"fixed":        {"base=3ms", backoff.Fixed{Base: 3 * time.Millisecond}},
		"none":         {"", backoff.None{}},
		"additive":     {"base=1s factor=2 spread=500ms max=4s", backoff.Additive{Base: time.Second, Factor: 2, Spread: 500 * time.Millisecond, Max: 4 * time.Second}},
		"normal":       {"base=100ms factor=2.7 jitter=0.2 max=5s", backoff.Normal{Base: 100 * time.Millisecond, Factor: 2.7, Jitter: 0.2, Max: 5 * time.Second}},
		"slots":        {"base=5ms slots=7 stay=true max=1s", backoff.Slots{Slot: 5 * time.Millisecond, Ceiling: 7, Stay: true, Max: time.Second}},
		"ratio":        {"base=200ms ratio=0.5 max=5s", backoff.Ratio{First: 200 * time.Millisecond, Ratio: 0.5, Max: 5 * time.Second}},
	} {
		text := strings.Join(append([]string{name}, strings.Fields(c.options)...), ":")
		environ := []string{"RETRYPROXY_ROUTES=a", "RETRYPROXY_ROUTE_A_PATH=/a", "RETRYPROXY_ROUTE_A_BACKOFF=" + text}
		s := mustLoad(t, environ...)
		usual, throttled, err := s.Routes[0].Backoffs()
		if err != nil || usual != c.want || throttled == nil {
			t.Errorf("%s: %v, %v; want %v", name, usual, err, c.want)
		}
		if usual, _, err := s.Default.Backoffs(); err != nil || reflect.TypeOf(usual) != reflect.TypeFor[backoff.FullJitter]() {
			t.Errorf("%s: the default route has %v, %v", name, usual, err)
		}
	}
	for _, name := range backoff.Strategies() {
		s := mustLoad(t, "RETRYPROXY_BACKOFF="+name+":extra=7ms")
		usual, _, err := s.Default.Backoffs()
		if want := "plus up to 7ms"; err != nil || !strings.Contains(fmt.Sprint(usual), want) {
			t.Errorf("%s: %v, %v; want %q", name, usual, err, want)
		}
	}
}

// The nearest base and max apply, whether they are options of BACKOFF or settings.
func TestTheNearestFirstWaitApplies(t *testing.T) {
	for _, c := range []struct{ global, route, want string }{
		{"BACKOFF=normal:base=1s", "MAX_RETRIES=1", "normal base=1s"},
		{"BACKOFF=normal:base=1s", "BACKOFF_BASE=2s", "normal base=2s"},
		{"BACKOFF_BASE=2s", "BACKOFF=normal:base=1s", "normal base=1s"},
		{"BACKOFF_BASE=2s", "BACKOFF=normal:jitter=0.5", "normal base=2s"},
		{"BACKOFF=normal:base=1s", "BACKOFF=fixed", "fixed base=100ms"}, // its own
		{"BACKOFF=normal:base=3s", "PROFILE=batch", "additive base=1s"},
	} {
		s := mustLoad(t, "RETRYPROXY_"+c.global, "RETRYPROXY_REQUEST_TIMEOUT=10m", "RETRYPROXY_ROUTES=a", "RETRYPROXY_ROUTE_A_PATH=/a", "RETRYPROXY_ROUTE_A_"+c.route)
		if usual, _, err := s.Routes[0].Backoffs(); err != nil || !strings.HasPrefix(fmt.Sprint(usual), c.want) {
			t.Errorf("%s, route a with %s: %v, %v; want %s", c.global, c.route, usual, err, c.want)
		}
	}
}

// The effective settings show the first and the longest wait of the strategy.
func TestWaitsOfAStrategyAreShown(t *testing.T) {
	for name, want := range map[string]map[string]string{
		"normal":                  {"BACKOFF": "normal", "BACKOFF_BASE": "100ms", "BACKOFF_MAX": "15m"},
		"normal:factor=3:max=20s": {"BACKOFF": "normal:factor=3:max=20s", "BACKOFF_BASE": "100ms", "BACKOFF_MAX": "20s"},
		"slots":                   {"BACKOFF_BASE": "10ms"},
		"fixed:base=2s":           {"BACKOFF_BASE": "2s", "BACKOFF_MAX": ""},
	} {
		s := mustLoad(t, "RETRYPROXY_BACKOFF="+name)
		for key, text := range want {
			if got := find(s.Values(), s.Default.Values(), key); got.Text != text {
				t.Errorf("%s: %s is %q, want %q", name, key, got.Text, text)
			}
		}
	}
}

// The examples of the usual settings can be set together without a warning.
func TestExamplesOfSettingsAreValid(t *testing.T) {
	var environ []string
	n := 0
	for _, s := range Reference() {
		switch {
		case s.Example == "":
			continue
		case s.Key == "ROUTES": // needs matchers
			environ = append(environ, "ROUTE_SEARCH_PATH=/search/*", "ROUTE_UPLOAD_PATH=/upload")
		}
		n++
		environ = append(environ, s.Key+"="+s.Example)
		if s.Example == s.Default {
			t.Errorf("%s: the example is the default", s.Key)
		}
	}
	if n < 8 || n > 14 {
		t.Errorf("%d settings that most people need", n)
	}
	configOf(t, environ...)
}
