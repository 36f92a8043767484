package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The conformance cases that Gateway API publishes for retries and timeouts, run against the
// binary. Each has its published name, rules and expectations. Only the backend differs: a
// Service has a name of the cluster's DNS, so the rules here name a Backend with an address.

// conformanceRoutes are the rules of httproute-retry.yaml, httproute-timeout-request.yaml and
// httproute-timeout-backend-request.yaml, and one with a backoff.
const conformanceRoutes = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: retries, namespace: gateway-conformance-infra}
spec:
  parentRefs: [{name: same-namespace}]
  rules:
  - matches: [{path: {type: PathPrefix, value: /retry/code-500-attempts-3}}]
    retry: {codes: [500], attempts: 3}
    backendRefs: [BACKEND]
  - matches: [{path: {type: PathPrefix, value: /retry/code-all-attempts-2}}]
    retry: {codes: [500, 502, 503, 504], attempts: 2}
    backendRefs: [BACKEND]
  - matches: [{path: {type: PathPrefix, value: /retry/code-all-attempts-0}}]
    retry: {codes: [500, 502, 503, 504], attempts: 0}
    backendRefs: [BACKEND]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: request-timeout, namespace: gateway-conformance-infra}
spec:
  parentRefs: [{name: same-namespace}]
  rules:
  - matches: [{path: {type: PathPrefix, value: /request-timeout}}]
    timeouts: {request: 500ms}
    backendRefs: [BACKEND]
  - matches: [{path: {type: PathPrefix, value: /disable-request-timeout}}]
    timeouts: {request: 0s}
    backendRefs: [BACKEND]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: backend-request-timeout, namespace: gateway-conformance-infra}
spec:
  parentRefs: [{name: same-namespace}]
  rules:
  - matches: [{path: {type: PathPrefix, value: /backend-timeout}}]
    timeouts: {backendRequest: 500ms}
    backendRefs: [BACKEND]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: more, namespace: gateway-conformance-infra}
spec:
  parentRefs: [{name: same-namespace}]
  rules:
  - matches: [{path: {type: PathPrefix, value: /backoff}}]
    retry: {codes: [429, 503], attempts: 3, backoff: BACKOFF}
    backendRefs: [BACKEND]
  - matches: [{path: {type: PathPrefix, value: /last}}]
    retry: {codes: [503], attempts: 1}
    timeouts: {request: 10s, backendRequest: 100ms}
    backendRefs: [BACKEND]
  - matches: [{path: {type: PathPrefix, value: /retry-on-connection-errors}}]
    retry: {attempts: 100}
    backendRefs: [{group: gateway.envoyproxy.io, kind: Backend, name: half-broken}]
  - matches: [{path: {type: PathPrefix, value: /old}}]
    filters:
    - type: URLRewrite
      urlRewrite: {hostname: new.example.com, path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}}
    - type: RequestHeaderModifier
      requestHeaderModifier: {set: [{name: X-Set, value: "a, b"}], remove: [X-Remove]}
    backendRefs: [BACKEND]
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: infra-backend-v3, namespace: gateway-conformance-infra}
spec: {endpoints: [{ip: {address: 127.0.0.1, port: PORT}}]}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: half-broken, namespace: gateway-conformance-infra}
spec: {endpoints: [{ip: {address: 127.0.0.1, port: CLOSED}}, {ip: {address: 127.0.0.1, port: PORT}}]}
`

const leastBackoff = 300 * time.Millisecond

// gatewayTest is the binary between a client and the conformance backend.
type gatewayTest struct {
	backend echoBackend
	url     string
}

func startGatewayTest(t *testing.T, environ ...string) *gatewayTest {
	t.Helper()
	g := &gatewayTest{}
	server := httptest.NewServer(&g.backend)
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	file := filepath.Join(t.TempDir(), "httproute.yaml")
	manifest := strings.NewReplacer("BACKEND", "{group: gateway.envoyproxy.io, kind: Backend, name: infra-backend-v3}",
		"BACKOFF", leastBackoff.String(), "PORT", port, "CLOSED", closedPort(t)).Replace(conformanceRoutes)
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	c := spawn(t, nil, nil, append(environ, "HTTPROUTE_FILE="+file, "UPSTREAM=http://127.0.0.1:"+port, "LISTEN=127.0.0.1:0", "ADMIN_LISTEN=off")...)
	for end := time.Now().Add(patience); g.url == ""; time.Sleep(5 * time.Millisecond) {
		for line := range strings.SplitSeq(c.log.String(), "\n") {
			var started struct{ Msg, Listen string }
			if json.Unmarshal([]byte(line), &started) == nil && started.Msg == "started" {
				g.url = "http://" + started.Listen
			}
		}
		if time.Now().After(end) {
			t.Fatalf("not started in %v:\n%s", patience, c.log)
		}
	}
	return g
}

// closedPort returns a port on which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // only needed to find a port
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// echoBackend behaves as the echo server of the conformance suite: delay=1s delays the response, and
// of the requests with one uuid, the first succeedAfter get responseCode.
type echoBackend struct {
	mu   sync.Mutex
	seen map[string][]time.Time // by uuid
}

func (b *echoBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	id := query.Get("uuid")
	b.mu.Lock()
	if b.seen == nil {
		b.seen = map[string][]time.Time{}
	}
	b.seen[id] = append(b.seen[id], time.Now())
	n := len(b.seen[id])
	b.mu.Unlock()
	if delay, err := time.ParseDuration(query.Get("delay")); err == nil {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
		}
	}
	if after, err := strconv.Atoi(query.Get("succeedAfter")); err == nil && n <= after {
		if value := query.Get("retryAfter"); value != "" {
			w.Header().Set("Retry-After", value)
		}
		code, _ := strconv.Atoi(query.Get("responseCode"))
		w.WriteHeader(code)
		return
	}
	fmt.Fprintf(w, "%s %s set=%q remove=%q", r.Host, r.URL.Path, r.Header.Get("X-Set"), r.Header.Get("X-Remove"))
}

// times returns when the backend got the requests with the uuid.
func (b *echoBackend) times(id string) []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen[id]
}

// get returns the status and body of a response.
func (g *gatewayTest) get(t *testing.T, target string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "GET", g.url+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Remove", "me")
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only a test
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// noBudget turns the retry budget off, since Gateway API has none without an XBackendTrafficPolicy.
// The suite makes more retries than requests, which a budget would prevent.
const noBudget = "BUDGET_RATIO=off"

// consecutive is how many requests in a row must get the expected response, as published, and
// convergence is the time limit for that.
const (
	consecutive = 3
	convergence = 30 * time.Second
)

// inARow sends requests until three in a row succeed. The suite allows failures before, so that a
// machine that stalls for half a second fails no case.
func inARow(t *testing.T, send func() (wrong string)) {
	t.Helper()
	right := 0
	for end := time.Now().Add(convergence); right < consecutive; right++ {
		if wrong := send(); wrong != "" {
			t.Log(wrong)
			right = -1
			if time.Now().After(end) {
				t.Fatalf("not %d requests in a row within %v; the last: %s", consecutive, convergence, wrong)
			}
		}
	}
}

func TestConformanceHTTPRouteRetry(t *testing.T) {
	g := startGatewayTest(t, noBudget)
	const three, two = "/retry/code-500-attempts-3", "/retry/code-all-attempts-2"
	for i, tc := range []struct {
		name, path         string
		code, succeedAfter int
		want, attempts     int
	}{
		{"succeeds after 2 retries when retry is configured for status code 500 and max attempts is 3", three, 500, 2, 200, 3},
		{"fails when required retries on 500 exceed max attempts", three, 500, 4, 500, 4},
		{"does not retry on 503 when retry is only configured for status code 500", three, 503, 2, 503, 1},
		{"succeeds after 1 retry on 500 when retry is configured for all status code and max attempts is 2", two, 500, 1, 200, 2},
		{"fails when required retries on 500 exceed max attempts", two, 500, 3, 500, 3},
		{"succeeds after 1 retry on 502 when retry is configured for all status code and max attempts is 2", two, 502, 1, 200, 2},
		{"fails when required retries on 502 exceed max attempts", two, 502, 3, 502, 3},
		{"succeeds after 1 retry on 503 when retry is configured for all status code and max attempts is 2", two, 503, 1, 200, 2},
		{"fails when required retries on 503 exceed max attempts", two, 503, 3, 503, 3},
		{"succeeds after 1 retry on 504 when retry is configured for all status code and max attempts is 2", two, 504, 1, 200, 2},
		{"fails when required retries on 504 exceed max attempts", two, 504, 3, 504, 3},
	} {
		t.Run(fmt.Sprintf("%d request to '%s' %s", i, tc.path, tc.name), func(t *testing.T) {
			t.Parallel()
			n := 0
			inARow(t, func() (wrong string) {
				n++
				id := fmt.Sprint(i, "-", n)
				query := url.Values{"responseCode": {strconv.Itoa(tc.code)}, "succeedAfter": {strconv.Itoa(tc.succeedAfter)}, "uuid": {id}}
				status, _ := g.get(t, tc.path+"?"+query.Encode())
				if attempts := len(g.backend.times(id)); status != tc.want || attempts != tc.attempts {
					return fmt.Sprintf("status %d after %d attempts, expected %d after %d", status, attempts, tc.want, tc.attempts)
				}
				return ""
			})
		})
	}
}

func TestConformanceHTTPRouteTimeoutRequest(t *testing.T) {
	timeoutCases(t, "/request-timeout", "/request-timeout?delay=1s", "/disable-request-timeout?delay=1s")
}

func TestConformanceHTTPRouteTimeoutBackendRequest(t *testing.T) {
	timeoutCases(t, "/backend-timeout", "/backend-timeout?delay=1s")
}

// timeoutCases sends a request to each target. The second one must get a 504.
func timeoutCases(t *testing.T, targets ...string) {
	g := startGatewayTest(t)
	for i, target := range targets {
		want := 200
		if i == 1 {
			want = 504
		}
		t.Run(fmt.Sprintf("%d request to '%s' should receive a %d", i, target, want), func(t *testing.T) {
			t.Parallel()
			inARow(t, func() (wrong string) {
				if status, body := g.get(t, target); status != want {
					return fmt.Sprintf("%d %q", status, body)
				}
				return ""
			})
		})
	}
}

func TestConformanceHTTPRouteRetryConnectionError(t *testing.T) {
	g := startGatewayTest(t)
	for range 10 { // as published: one of two backends refuses connections
		if status, body := g.get(t, "/retry-on-connection-errors"); status != 200 {
			t.Errorf("%d %q", status, body)
		}
	}
}

// No retry begins before the backoff of the rule: not after 429, not if the upstream asks for a
// shorter wait, and not while many clients fail at once.
func TestTheBackoffOfAnHTTPRouteIsTheLeastWait(t *testing.T) {
	g := startGatewayTest(t, noBudget, "BREAKER=off")
	for name, query := range map[string]string{
		"503":                        "responseCode=503",
		"429":                        "responseCode=429",
		"503 with Retry-After 0":     "responseCode=503&retryAfter=0",
		"429 with Retry-After 0":     "responseCode=429&retryAfter=0",
		"503 with a past date":       "responseCode=503&retryAfter=" + url.QueryEscape("Fri, 01 Jan 2021 00:00:00 GMT"),
		"503 with a shorter request": "responseCode=503&retryAfter=0.01",
	} {
		for n := range 3 {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				id := fmt.Sprint(name, n)
				status, _ := g.get(t, "/backoff?succeedAfter=2&uuid="+url.QueryEscape(id)+"&"+query)
				times := g.backend.times(id)
				if status != 200 || len(times) != 3 {
					t.Fatalf("status %d after %d attempts", status, len(times))
				}
				for i := 1; i < len(times); i++ {
					if wait := times[i].Sub(times[i-1]); wait < leastBackoff {
						t.Errorf("retry %d came after %v, expected %v or more", i, wait, leastBackoff)
					}
				}
			})
		}
	}
}

// The last attempt has no more time than the others, and a retry follows an attempt that took too
// long.
func TestBackendRequestLimitsEveryAttempt(t *testing.T) {
	g := startGatewayTest(t)
	began := time.Now()
	status, body := g.get(t, "/last?delay=8s&uuid=last")
	if took := time.Since(began); status != 504 || took > 7*time.Second {
		t.Errorf("status %d after %v: %s", status, took, body)
	}
	if n := len(g.backend.times("last")); n != 2 {
		t.Errorf("%d attempts, expected 2", n)
	}
}

func TestAnHTTPRouteRewritesHostPrefixAndHeaders(t *testing.T) {
	g := startGatewayTest(t)
	for target, path := range map[string]string{"/old": "/new", "/old/": "/new/", "/old/a/b?c": "/new/a/b"} {
		if status, body := g.get(t, target); status != 200 || body != `new.example.com `+path+` set="a, b" remove=""` {
			t.Errorf("%s: %d %s", target, status, body)
		}
	}
	if _, body := g.get(t, "/retry/code-500-attempts-3"); !strings.HasPrefix(body, strings.TrimPrefix(g.url, "http://")+" /retry/") {
		t.Errorf("expected the client's Host, found %s", body)
	}
}
