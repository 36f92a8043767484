package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
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
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

func load(t *testing.T, environ ...string) *Settings {
	t.Helper()
	for i := range environ {
		environ[i] = "RETRYPROXY_" + environ[i]
	}
	s, problems := Load(environ)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return s
}

func configOf(t *testing.T, environ ...string) *proxy.Config {
	t.Helper()
	c, err := Build(load(t, environ...))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proxy.New(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// Every value differs from its neighbours, so that a value in the wrong field is noticed.
func TestEverySettingReachesTheProxy(t *testing.T) {
	c := configOf(t, "UPSTREAM=http://app.internal:81", "LISTEN=10.1.1.1:82", "TRUSTED_PROXIES=10.0.0.0/8", "PROXY_PROTOCOL_FROM=192.0.2.1,192.0.2.2",
		"RETRY_BUFFER_TOTAL_BYTES=18MiB",
		"DRAIN_TIMEOUT=19s", "ACCESS_LOG=true",
		"UPSTREAM_HOST=preserve", "RESPONSE_HEADERS_REMOVE=X-Retryproxy-Attempts",
		"RETRY_ON=503", "MAX_RETRIES=2", "RETRY_METHODS=GET", "LAYERED_RETRIES=deny",
		"BACKOFF=fixed", "BACKOFF_BASE=23ms", "BACKOFF_THROTTLED_BASE=240ms", "BUDGET_RATIO=0.25", "BUDGET_MIN_PER_SECOND=26", "BUDGET_BURST=27",
		"REQUEST_TIMEOUT=28s", "ATTEMPT_TIMEOUT=9s", "BODY_IDLE_TIMEOUT=29s", "RETRY_BUFFER_BYTES=30KiB",
		"HEDGE_AFTER=33ms", "RATE_LIMIT_PAUSE_KEY=header:X-Key", "RATE_LIMIT_PAUSE_MAX=32s", "RATE_LIMIT=35/s", "RATE_LIMIT_KEY=header:X-Account", "RATE_LIMIT_WAIT=36s", "HEALTH_PATH=/ready", "DRY_RUN=true")
	r := c.Default
	for name, ok := range map[string]bool{
		"listen":      slices.Equal(c.Listen, []string{"10.1.1.1:82"}),
		"trusted":     len(c.TrustedProxies) == 1,
		"announcers":  len(c.ProxyProtocolFrom) == 2,
		"forwarding":  c.ForwardProxy,
		"connections": c.MaxConnections == maxConnections(),
		"limits":      c.Limits == http1.Limits{HeaderBytes: 64 << 10, Headers: 100},
		"times":       c.ReadHeaderTimeout == 10*time.Second && c.ClientIdleTimeout == 70*time.Minute && c.WriteTimeout == time.Minute && c.TunnelIdleTimeout == time.Hour && c.DrainTimeout == 19*time.Second,
		"rate":        c.MinBodyRate == 256,
		"total":       c.RetryBufferTotalBytes == 18<<20,
		"logs":        c.AccessLog && c.GaveUpLogPerMinute == 10,
		"upstream":    r.Upstream.Address == "app.internal:81" && r.DialTimeout == 3*time.Second,
		"forward":     r.Forward.Host.Mode == forward.HostPreserve && r.Forward.UpstreamHost == "app.internal:81" && slices.Contains(r.Forward.OwnHosts, "10.1.1.1:82"),
		"key":         !r.GenerateKey,
		"headers":     reflect.DeepEqual(r.ResponseChanges, forward.NewHeaderChanges(nil, []string{"X-Retryproxy-Attempts"})),
		"bodies":      r.RetryBufferBytes == 30<<10 && r.ResponseBufferBytes == 64<<10,
		"retry on":    r.Policy.RetryOn.Code(503) && !r.Policy.RetryOn.Code(500),
		"policy":      r.Policy.MaxRetries == 2 && !r.Policy.Unsafe && !r.Policy.Methods.Has([]byte("PUT")) && r.Policy.Methods.Has([]byte("GET")),
		"layered":     r.LayeredRetries == policy.LayeredDeny,
		"backoff":     r.Policy.Backoff.Wait(backoff.Step{}, backoff.Shared()) == 23*time.Millisecond && r.Policy.Throttled.Wait(backoff.Step{}, backoff.Shared()) == 240*time.Millisecond,
		"budget":      !r.NoBudget && r.Budget == budget.Config{Ratio: 0.25, MinPerSecond: 26, Burst: 27},
		"mode":        r.DryRun,
		"hedge":       r.HedgeAfter.Fixed == 33*time.Millisecond,
		"cool-downs":  r.RateLimitPause == proxy.RateLimitPause{SharedBy: admission.Sharing{Header: "X-Key"}, Max: 32 * time.Second},
		"quota":       r.RateLimit == admission.RateLimit{Rate: ratelimit.Rate{Count: 35, Per: time.Second}, Wait: 36 * time.Second, SharedBy: admission.Sharing{Header: "X-Account"}},
		"probe":       r.Probe == admission.Probe{Path: "/ready"},
		"timeouts":    r.RequestTimeout == 28*time.Second && r.AttemptTimeout == 9*time.Second && r.BodyIdleTimeout == 29*time.Second,
	} {
		if !ok {
			t.Errorf("%s is wrong in %+v", name, r)
		}
	}
}

func TestRoutes(t *testing.T) {
	c := configOf(t, "UPSTREAM=http://a", "ROUTES=search,up", "ROUTE_SEARCH_PATH=/s/*", "ROUTE_SEARCH_HOST=x.example", "ROUTE_SEARCH_METHODS=GET", "ROUTE_SEARCH_HEADER=K=v",
		"ROUTE_SEARCH_STRIP_PREFIX=/s", "ROUTE_SEARCH_UPSTREAM=http://b", "ROUTE_UP_LISTEN=:81", "ROUTE_UP_BUDGET_RATIO=off", "ROUTE_UP_UPSTREAM_HOST=up.example", "HEALTH_PATH=/up")
	search, up := c.Routes[0], c.Routes[1]
	if m := search.Match; search.Name != "search" || m.Path != "/s/*" || m.Host != "x.example" || m.Header != "K=v" || !slices.Equal(m.Methods, []string{"GET"}) || m.Listen != "" {
		t.Errorf("%+v", m)
	}
	if search.Forward.StripPrefix != "/s" || search.Forward.UpstreamHost != "b" || search.Upstream.Address != "b:80" {
		t.Errorf("%+v", search.Forward)
	}
	if up.Match.Listen != ":81" || !slices.Equal(c.Listen, []string{"127.0.0.1:8080", ":81"}) || !up.NoBudget {
		t.Errorf("%+v %v", up.Match, c.Listen)
	}
	if (search.Probe != admission.Probe{}) || (up.Probe != admission.Probe{Path: "/up", Host: "up.example"}) {
		t.Errorf("probes %+v and %+v: a path belongs to the upstream it was set for", search.Probe, up.Probe)
	}
	if up.Forward.Host.Name != "up.example" {
		t.Errorf("%+v", up.Forward)
	}
}

func TestTheHostOfAListVaries(t *testing.T) {
	for upstreams, want := range map[string]bool{"https://a": false, "https://a,https://b": true, "http://a:81,http://a:82": true, "unix:/a,unix:/b": false} {
		if got := configOf(t, "UPSTREAM="+upstreams).Default.Forward.HostVaries; got != want {
			t.Errorf("%s: %t", upstreams, got)
		}
	}
}

func TestFallbacks(t *testing.T) {
	if f := configOf(t, "UPSTREAM=http://a").Default.Fallbacks; f != nil {
		t.Errorf("%+v without a setting", f)
	}
	if f := configOf(t, "UPSTREAM=http://a", "FALLBACK=503:later: really").Default.Fallbacks[0]; f.Status != 503 || string(f.Body) != "later: really" {
		t.Errorf("%+v", f)
	}
	c := configOf(t, "UPSTREAM=https://a", "UPSTREAM_HOST=name.of.a", "ATTEMPT_TIMEOUT=2s", "FALLBACK=https://b:82", "ROUTES=x,y", "ROUTE_X_PATH=/x", "ROUTE_X_FALLBACK=none",
		"ROUTE_Y_PATH=/y/*", "ROUTE_Y_STRIP_PREFIX=/y", "ROUTE_Y_UPSTREAM_HOST=preserve")
	f := c.Default.Fallbacks[0]
	if u := f.Upstream; f.Status != 0 || u.Address != "b:82" || u.TLS.ServerName != "b" || c.Default.DialTimeout != 2*time.Second {
		t.Errorf("%+v", u)
	}
	if f.Forward.Host.Mode != forward.HostUpstream || f.Forward.UpstreamHost != "b:82" {
		t.Errorf("%+v", f.Forward)
	}
	if c.Routes[0].Fallbacks != nil {
		t.Error("none did not switch it off")
	}
	if f := c.Routes[1].Fallbacks[0].Forward; f.Host.Mode != forward.HostPreserve || f.StripPrefix != "/y" {
		t.Errorf("%+v", f)
	}
}

// A fallback to a route has everything that its upstream needs, and the prefix of the matched path
// is stripped.
func TestFallbacksToRoutes(t *testing.T) {
	c := configOf(t, "UPSTREAM=https://a", "FALLBACK=route:spare", "UPSTREAM_HOST=name.of.a", "ROUTES=x,spare", "ROUTE_X_PATH=/x/*", "ROUTE_X_STRIP_PREFIX=/x",
		"ROUTE_SPARE_UPSTREAM=https://b/v2", "ROUTE_SPARE_UPSTREAM_HOST=name.of.b", "ROUTE_SPARE_REQUEST_HEADERS_SET=K: 1")
	for name, want := range map[string]string{"default": "", "x": "/x"} {
		f := c.Default.Fallbacks[0]
		if name == "x" {
			f = c.Routes[0].Fallbacks[0]
		}
		if f.Upstream.Address != "b:443" || f.Upstream.TLS.ServerName != "name.of.b" || f.Forward.BasePath != "/v2" || f.Forward.Host.Name != "name.of.b" || f.Forward.StripPrefix != want {
			t.Errorf("%s: %+v", name, f)
		}
		if want := forward.NewHeaderChanges([]http1.Header{http1.NewHeader("K", "1")}, nil); !reflect.DeepEqual(f.Forward.Changes, want) {
			t.Errorf("%s: %q", name, f.Forward.Changes)
		}
	}
	if spare := c.Routes[1]; spare.Fallbacks != nil || !spare.Match.Never {
		t.Errorf("the route that is only a fallback: %+v", spare)
	}
	if c.Routes[0].Match.Never {
		t.Error("a route with a matcher matches nothing")
	}
}

// Routes of a list fall back to the routes after them, and none to itself.
func TestFallbackLists(t *testing.T) {
	c := configOf(t, "UPSTREAM=http://a", "FALLBACK=route:second, http://c1,http://c2,route:third,503:sorry, later", "ROUTES=second,third,own", "ROUTE_SECOND_UPSTREAM=http://b", "ROUTE_THIRD_UPSTREAM=http://d",
		"ROUTE_OWN_PATH=/own", "ROUTE_OWN_FALLBACK=http://e,200:")
	shown := func(list []proxy.Fallback) (all []string) {
		for i := range list {
			if f := &list[i]; f.Status != 0 {
				all = append(all, fmt.Sprint(f.Status, string(f.Body)))
			} else {
				all = append(all, f.Upstream.String())
			}
		}
		return all
	}
	for name, is := range map[string][2][]string{
		"default": {shown(c.Default.Fallbacks), {"http://b:80", "http://c1:80,http://c2:80", "http://d:80", "503sorry, later"}},
		"second":  {shown(c.Routes[0].Fallbacks), {"http://c1:80,http://c2:80", "http://d:80", "503sorry, later"}},
		"third":   {shown(c.Routes[1].Fallbacks), {"503sorry, later"}},
		"own":     {shown(c.Routes[2].Fallbacks), {"http://e:80", "200"}},
	} {
		if !slices.Equal(is[0], is[1]) {
			t.Errorf("%s: %q, want %q", name, is[0], is[1])
		}
	}
}

func TestWhatRequestsShareALimitOrAPauseBy(t *testing.T) {
	for word, want := range map[string]admission.Sharing{
		"upstream": {}, "none": {}, "route": {Route: true}, "header:X": {Header: "X"}, "json:model": {Model: true}, "header:X,json:model": {Header: "X", Model: true},
	} {
		if word != "none" {
			if got := configOf(t, "UPSTREAM=http://a", "RATE_LIMIT=1/s", "RATE_LIMIT_KEY="+word).Default.RateLimit.SharedBy; got != want {
				t.Errorf("a limit by %s: %+v", word, got)
			}
		}
		if word != "upstream" {
			if got := configOf(t, "UPSTREAM=http://a", "RATE_LIMIT_PAUSE_KEY="+word).Default.RateLimitPause.SharedBy; got != want {
				t.Errorf("a pause by %s: %+v", word, got)
			}
		}
	}
}

func TestLimitsOfTokens(t *testing.T) {
	r := configOf(t, "UPSTREAM=http://a", "RATE_LIMIT=auto", "RATE_LIMIT_KEY=header:Authorization,json:model", "TOKEN_LIMIT=200000/m", "RATE_LIMIT_PAUSE_KEY=json:model",
		"ROUTES=b", "ROUTE_B_MODEL=gpt-4o,o3", "ROUTE_B_RATE_LIMIT=off", "ROUTE_B_TOKEN_LIMIT=off")
	want := admission.RateLimit{Learn: true, Probe: time.Minute, Tokens: ratelimit.Rate{Count: 200000, Per: time.Minute}, Wait: time.Second, SharedBy: admission.Sharing{Header: "Authorization", Model: true}}
	if got := r.Default.RateLimit; got != want || !r.Default.CountTokens || !r.Default.RateLimitPause.SharedBy.Model {
		t.Errorf("%+v, pauses %+v, counts %v", got, r.Default.RateLimitPause, r.Default.CountTokens)
	}
	if b := r.Routes[0]; b.RateLimit.Limited() || b.CountTokens || b.Match.Model != "gpt-4o,o3" {
		t.Errorf("route b: %+v %q", b.RateLimit, b.Match.Model)
	}
}

func TestRouteOnTheMainListenerByItsAddress(t *testing.T) {
	c := configOf(t, "UPSTREAM=http://a", "LISTEN=:80", "ROUTES=a", "ROUTE_A_LISTEN=:80", "ROUTE_A_PATH=/a")
	if c.Routes[0].Match.Listen != "" || len(c.Listen) != 1 {
		t.Errorf("%+v %v", c.Routes[0].Match, c.Listen)
	}
}

func TestCertificateErrorsNameRouteAndFile(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(bad, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Build(load(t, "UPSTREAM=https://a", "UPSTREAM_CA="+bad, "ROUTES=x,y", "ROUTE_X_PATH=/x", "ROUTE_X_UPSTREAM=https://b", "ROUTE_X_UPSTREAM_CA=/nowhere.pem", "ROUTE_Y_PATH=/y"))
	problems := ProblemsOf(err)
	if len(problems) != 2 || problems[0].Variable != "RETRYPROXY_UPSTREAM_CA" || problems[0].Value != bad ||
		problems[1].Variable != "RETRYPROXY_ROUTE_X_UPSTREAM_CA" || !strings.Contains(problems[1].Message, "/nowhere.pem") {
		t.Errorf("%v", problems)
	}
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), bad) {
		t.Errorf("%v", err)
	}
}

func TestEveryFileIsToldWithItsOwnVariable(t *testing.T) {
	missing := func(vars ...string) string {
		_, err := Build(load(t, append(vars, "UPSTREAM=https://a")...))
		if all := ProblemsOf(err); len(all) == 1 {
			return all[0].Variable
		}
		return fmt.Sprint(err)
	}
	cert, key := selfSigned(t)
	lone, gone := selfSigned(t)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	for want, vars := range map[string][]string{
		"RETRYPROXY_TLS_CERT":      {"TLS_CERT=" + lone},
		"RETRYPROXY_TLS_KEY":       {"TLS_CERT=" + cert, "TLS_KEY=/no"},
		"RETRYPROXY_UPSTREAM_KEY":  {"UPSTREAM_CERT=" + lone, "UPSTREAM_KEY=" + key},
		"RETRYPROXY_TLS_CLIENT_CA": {"TLS_CERT=" + cert, "TLS_CLIENT_CA=/no"},
		"RETRYPROXY_UPSTREAM_CERT": {"UPSTREAM_CERT=/no"},
		"RETRYPROXY_UPSTREAM_CA":   {"UPSTREAM_CA=" + key}, // not a certificate
	} {
		if got := missing(vars...); got != want {
			t.Errorf("%v: blamed %s", vars, got)
		}
	}
}

// A key and a certificate that are not of each other keep the process from starting. The error names
// both.
func TestAKeyOfAnotherCertificateIsAnError(t *testing.T) {
	cert, key := selfSigned(t)
	other, _ := selfSigned(t)
	for prefix, vars := range map[string][]string{"TLS_": {"UPSTREAM=http://a"}, "UPSTREAM_": {"UPSTREAM=https://a"}} {
		if _, err := Build(load(t, append(vars, prefix+"CERT="+cert, prefix+"KEY="+key)...)); err != nil {
			t.Errorf("%s, of each other: %v", prefix, err)
		}
		_, err := Build(load(t, append(vars, prefix+"CERT="+other, prefix+"KEY="+key)...))
		all := ProblemsOf(err)
		if len(all) != 1 || all[0].Variable != "RETRYPROXY_"+prefix+"KEY" || !strings.Contains(all[0].Message, "certificate "+other+" with key "+key+": tls: private key does not match public key") {
			t.Errorf("%s: %v", prefix, all)
		}
	}
}

// A route takes the key of its own certificate, not that of the global one.
func TestARouteWithItsOwnCertificateHasItsOwnKey(t *testing.T) {
	cert, key := selfSigned(t)
	own, _ := selfSigned(t)
	s := load(t, "UPSTREAM=https://a", "UPSTREAM_CERT="+cert, "UPSTREAM_KEY="+key, "ROUTES=x", "ROUTE_X_PATH=/x", "ROUTE_X_UPSTREAM_CERT="+own)
	if _, err := Build(s); err != nil || s.Routes[0].UpstreamKey != "" {
		t.Errorf("%q: %v", s.Routes[0].UpstreamKey, err)
	}
}

// selfSigned writes a self-signed certificate and its key.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	private, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, _ := x509.MarshalPKCS8PrivateKey(private)
	cert, key = filepath.Join(t.TempDir(), "tls.crt"), ""
	key = strings.TrimSuffix(cert, ".crt") + ".key"
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// Routes to one upstream share its pool and budget, which requires equal targets. A reload keeps
// them, which requires targets to stay equal over time.
func TestSameUpstreamIsTheSameTarget(t *testing.T) {
	environ := []string{"UPSTREAM=https://a", "UPSTREAM_HOST=n:8443", "ROUTES=x", "ROUTE_X_PATH=/x", "ROUTE_X_MAX_RETRIES=1", "ROUTE_X_REQUEST_TIMEOUT=3s", "ROUTE_X_ATTEMPT_TIMEOUT=2s"}
	c, again := configOf(t, slices.Clone(environ)...), configOf(t, slices.Clone(environ)...)
	if c.Default.Upstream.Key() != c.Routes[0].Upstream.Key() || c.Default.Upstream.Key() != again.Default.Upstream.Key() {
		t.Errorf("%s, %s, %s", c.Default.Upstream.Key(), c.Routes[0].Upstream.Key(), again.Default.Upstream.Key())
	}
	if c.Default.Upstream.TLS.ServerName != "n" {
		t.Errorf("server name %s", c.Default.Upstream.TLS.ServerName)
	}
}

func TestClientsForDescriptors(t *testing.T) {
	for descriptors, want := range map[uint64]int{0: 1, 20: 1, 24: 2, 32: 6, 40: 10, 64: 16, 100: 25, 128: 32, 1024: 480, 1 << 20: 524256, 1<<64 - 1: 1 << 20} {
		if got := clientsFor(descriptors); got != want {
			t.Errorf("%d: %d, want %d", descriptors, got, want)
		}
	}
	const atRest = 11
	for descriptors := uint64(16); descriptors < 2000; descriptors++ {
		if need := perClient*clientsFor(descriptors) + atRest; uint64(need) > descriptors {
			t.Errorf("%d descriptors: %d would be open with a connection to the upstream for every client", descriptors, need)
		}
	}
	if n := configOf(t, "UPSTREAM=http://a").MaxConnections; n < fewestClients || n > mostClients {
		t.Errorf("auto gives %d", n)
	}
}

// A slow attempt gets a second one beside it by default, unless nothing is retried.
func TestNothingIsSentTwiceWithRetryOnNone(t *testing.T) {
	if configOf(t, "UPSTREAM=http://app:81").Default.HedgeAfter.Off() {
		t.Error("off by default")
	}
	if !configOf(t, "UPSTREAM=http://app:81", "RETRY_ON=none").Default.HedgeAfter.Off() {
		t.Error("on with RETRY_ON=none")
	}
	if configOf(t, "UPSTREAM=http://app:81", "RETRY_ON=none", "HEDGE_AFTER=1s").Default.HedgeAfter.Off() {
		t.Error("off with HEDGE_AFTER=1s")
	}
}

// In front of an application, load matters more than a single request; in front of a remote service,
// whoever can wait waits.
func TestOutboundRetriesWaitForTheirBudget(t *testing.T) {
	for position, want := range map[string]bool{"inbound": false, "outbound": true} {
		c := configOf(t, "UPSTREAM=http://app.internal:81", "POSITION="+position, "ROUTES=a", "ROUTE_A_PATH=/a")
		for _, r := range []proxy.Route{c.Default, c.Routes[0]} {
			if got := r.Policy.QueueForBudget; got != want {
				t.Errorf("%s, route %s: %v, want %v", position, r.Name, got, want)
			}
		}
	}
}

func TestEveryVersionOfTLSIsKnown(t *testing.T) {
	for _, word := range globalKeys()["TLS_MIN_VERSION"].OneOf {
		if tlsVersions[word] == 0 {
			t.Errorf("no version for %s", word)
		}
	}
}
