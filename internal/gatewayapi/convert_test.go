package gatewayapi

import (
	"fmt"
	"strings"
	"testing"
)

// conversions are rules, the equivalent settings, and what has no equivalent.
var conversions = []struct {
	name    string
	objects string
	want    string // NAME=VALUE without the prefix, one per line; then what is lost
}{
	{"a rule without matches takes everything", routeOf(`
  - backendRefs: [{name: app, port: 80}]`), `
ROUTE_R_0_PATH=/*
ROUTE_R_0_UPSTREAM_HOST=preserve
ROUTE_R_0_UPSTREAM=http://app.default.svc.cluster.local:80
catch-all http://app.default.svc.cluster.local:80`},
	{"retry and timeouts", routeOf(`
  - name: slow
    matches: [{path: {value: /slow}}]
    retry: {codes: [500, 503], attempts: 2, backoff: 250ms}
    timeouts: {request: 10s, backendRequest: 2s}
    backendRefs: [{name: app, namespace: other, port: 8080}]`), `
ROUTE_R_SLOW_PATH=/slow/*
ROUTE_R_SLOW_UPSTREAM_HOST=preserve
ROUTE_R_SLOW_UPSTREAM=http://app.other.svc.cluster.local:8080
ROUTE_R_SLOW_REQUEST_TIMEOUT=10s
ROUTE_R_SLOW_ATTEMPT_TIMEOUT=2s hard
ROUTE_R_SLOW_RETRY_ON=500,503,connect-failure,reset,attempt-timeout
ROUTE_R_SLOW_MAX_RETRIES=2
ROUTE_R_SLOW_BACKOFF=fixed
ROUTE_R_SLOW_BACKOFF_BASE=250ms
ROUTE_R_SLOW_BACKOFF_EXTRA=250ms
ROUTE_R_SLOW_HEDGE_AFTER=off`},
	{"no timeouts, no retries", routeOf(`
  - matches: [{path: {type: Exact, value: /a}}]
    retry: {attempts: 0}
    timeouts: {request: 0s, backendRequest: 0s}
    backendRefs: [{name: app, port: 80}]`), `
ROUTE_R_0_PATH=/a
ROUTE_R_0_UPSTREAM_HOST=preserve
ROUTE_R_0_UPSTREAM=http://app.default.svc.cluster.local:80
ROUTE_R_0_REQUEST_TIMEOUT=0s
ROUTE_R_0_ATTEMPT_TIMEOUT=0s
ROUTE_R_0_MAX_RETRIES=0`},
	{"matches with other methods and headers are routes of their own", routeOf(`
  - matches:
    - {path: {value: /a}, method: GET}
    - {path: {value: /b}, method: GET}
    - {path: {value: "/c,d/*"}, headers: [{name: X-A, value: "1"}, {name: x-a, value: "2"}]}
    backendRefs: [{name: app, port: 80}, {name: canary, port: 80, weight: 0}]`), `
ROUTE_R_0_0_PATH=/a/*,/b/*
ROUTE_R_0_0_METHODS=GET
ROUTE_R_0_0_UPSTREAM_HOST=preserve
ROUTE_R_0_0_UPSTREAM=http://app.default.svc.cluster.local:80
ROUTE_R_0_1_PATH=/c%2Cd/%2A/*
ROUTE_R_0_1_HEADER=X-A=1
ROUTE_R_0_1_UPSTREAM_HOST=preserve
ROUTE_R_0_1_UPSTREAM=http://app.default.svc.cluster.local:80`},
	{"a prefix, a host and headers are rewritten", routeOf(`
  - matches: [{path: {value: /old/}}]
    filters:
    - {type: URLRewrite, urlRewrite: {hostname: a.example.com, path: {type: ReplacePrefixMatch, replacePrefixMatch: /new/}}}
    - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: A, value: "1"}, {name: B, value: "2"}]}}
    backendRefs:
    - {name: app, port: 80, filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [C, D]}}]}`), `
ROUTE_R_0_PATH=/old/*
ROUTE_R_0_RESPONSE_HEADERS_REMOVE=C,D
ROUTE_R_0_REQUEST_HEADERS_SET=A: 1, B: 2
ROUTE_R_0_STRIP_PREFIX=/old
ROUTE_R_0_UPSTREAM_HOST=a.example.com
ROUTE_R_0_UPSTREAM=http://app.default.svc.cluster.local:80/new`},
	{"a retry budget is that of the Service", routeOf(`
  - matches: [{path: {value: /a}}]
    backendRefs: [{name: app, port: 80}]`) + `
---
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XBackendTrafficPolicy
metadata: {name: p}
spec:
  targetRefs: [{group: "", kind: Service, name: app}]
  retryConstraint: {budget: {percent: 30, interval: 10s}, minRetryRate: {count: 5, interval: 2s}}`, `
ROUTE_R_0_PATH=/a/*
ROUTE_R_0_BUDGET_RATIO=30%
ROUTE_R_0_BUDGET_MIN_PER_SECOND=2.5
ROUTE_R_0_BUDGET_BURST=5
ROUTE_R_0_UPSTREAM_HOST=preserve
ROUTE_R_0_UPSTREAM=http://app.default.svc.cluster.local:80`},
	{"a retry budget has the defaults of GEP-3388", routeOf(`
  - backendRefs: [{name: app, port: 80}]`) + `
---
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XBackendTrafficPolicy
metadata: {name: p}
spec: {targetRefs: [{group: "", kind: Service, name: app}], retryConstraint: {budget: {interval: 1m}}, sessionPersistence: {}}`, `
ROUTE_R_0_PATH=/*
ROUTE_R_0_BUDGET_RATIO=20%
ROUTE_R_0_BUDGET_MIN_PER_SECOND=10
ROUTE_R_0_BUDGET_BURST=10
ROUTE_R_0_UPSTREAM_HOST=preserve
ROUTE_R_0_UPSTREAM=http://app.default.svc.cluster.local:80
catch-all http://app.default.svc.cluster.local:80
lost document 2, XBackendTrafficPolicy p, spec.sessionPersistence (line 11): retryproxy has nothing for this field; the field
lost document 2, XBackendTrafficPolicy p, spec.retryConstraint.budget.interval (line 11): the retry budget counts over 10s, not 1m0s; the interval`},
	{"a Backend with fallback is the fallback", routeOf(`
  - backendRefs:
    - {group: gateway.envoyproxy.io, kind: Backend, name: second}
    - {group: gateway.envoyproxy.io, kind: Backend, name: first}`) + `
---
apiVersion: v1
kind: List
items:
- apiVersion: gateway.envoyproxy.io/v1alpha1
  kind: Backend
  metadata: {name: first}
  spec: {endpoints: [{fqdn: {hostname: a.example.com, port: 80}}, {ip: {address: "::1", port: 81}}]}
- apiVersion: gateway.envoyproxy.io/v1alpha1
  kind: Backend
  metadata: {name: second}
  spec: {fallback: true, endpoints: [{fqdn: {hostname: b.example.com, port: 80}}]}`, `
ROUTE_R_0_PATH=/*
ROUTE_R_0_FALLBACK=http://b.example.com:80
ROUTE_R_0_UPSTREAM_HOST=preserve
ROUTE_R_0_UPSTREAM=http://a.example.com:80,http://[::1]:81
catch-all http://a.example.com:80,http://[::1]:81`},
	{"an equal match of a later rule gets no requests", routeOf(`
  - {matches: [{path: {value: /a}}], backendRefs: [{name: app, port: 80}]}
  - {matches: [{path: {value: /a/}}], backendRefs: [{name: other, port: 80}]}`), `
ROUTE_R_0_PATH=/a/*
ROUTE_R_0_UPSTREAM_HOST=preserve
ROUTE_R_0_UPSTREAM=http://app.default.svc.cluster.local:80`},
	{"what has no equivalent", routeOf(`
  - matches:
    - {path: {type: RegularExpression, value: "/a.*"}}
    - {queryParams: [{name: a, value: b}]}
    - {headers: [{name: a, value: b}, {name: c, value: d}]}
    - {headers: [{name: a, type: RegularExpression, value: b}]}
    - {path: {value: /a;b}}
    - {path: {value: /ok}}
    backendRefs: [{name: app, port: 80}]
  - backendRefs: [{name: app, port: 80, weight: 9}, {name: canary, port: 80}]
  - backendRefs: [{name: app, port: 80}]
    filters: [{type: RequestMirror, requestMirror: {backendRef: {name: b}}}]
  - filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]
  - backendRefs: [{name: app, port: 80}]
    filters:
    - {type: RequestHeaderModifier, requestHeaderModifier: {add: [{name: a, value: b}], set: [{name: a, value: "b, c: d"}]}}
    - {type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /}}}
  - {sessionPersistence: {}, backendRefs: [{kind: ServiceImport, group: multicluster.x-k8s.io, name: app, port: 80}]}
  - {backendRefs: []}`), `
ROUTE_R_0_PATH=/ok/*
ROUTE_R_0_UPSTREAM_HOST=preserve
ROUTE_R_0_UPSTREAM=http://app.default.svc.cluster.local:80
lost document 1, HTTPRoute r, spec.rules[0].matches[0].path (line 7): a route matches a path exactly or by its prefix, not by RegularExpression; the match
lost document 1, HTTPRoute r, spec.rules[0].matches[1].queryParams (line 8): a route does not match query parameters; the match
lost document 1, HTTPRoute r, spec.rules[0].matches[2].headers (line 9): a route matches one header; the match
lost document 1, HTTPRoute r, spec.rules[0].matches[3].headers[0] (line 10): a route matches a header exactly, not by RegularExpression; the match
lost document 1, HTTPRoute r, spec.rules[0].matches[4] (line 11): path "/a;b/*": not in normal form: "//", ".", "..", "\", ";", "%" and their encodings cannot be matched on; the match
lost document 1, HTTPRoute r, spec.rules[1].backendRefs[1] (line 14): a route has one upstream and no weights; the rule
lost document 1, HTTPRoute r, spec.rules[2].filters[0] (line 16): retryproxy has no filter RequestMirror; the rule
lost document 1, HTTPRoute r, spec.rules[3].filters[0] (line 17): retryproxy has no filter RequestRedirect; the rule
lost document 1, HTTPRoute r, spec.rules[4].filters[0].requestHeaderModifier.add[0] (line 20): retryproxy sets headers and adds none beside those that are there; the rule
lost document 1, HTTPRoute r, spec.rules[4].filters[0].requestHeaderModifier.set[0] (line 20): a header that is set cannot have a comma before a name and a colon in its value, or a space at its end; the rule
lost document 1, HTTPRoute r, spec.rules[4].filters[1].urlRewrite.path.replaceFullPath (line 21): retryproxy has nothing for this field; the rule
lost document 1, HTTPRoute r, spec.rules[4].filters[1].urlRewrite.path (line 21): a route replaces the prefix of a path, not by ReplaceFullPath; the rule
lost document 1, HTTPRoute r, spec.rules[5].sessionPersistence (line 22): retryproxy has nothing for this field; the rule
lost document 1, HTTPRoute r, spec.rules[5].backendRefs[0] (line 22): the address of ServiceImport app is not known: only a Service is read, and a Backend of gateway.envoyproxy.io in the same file; the rule
lost document 1, HTTPRoute r, spec.rules[6] (line 23): no backendRef gets its requests, which Gateway API answers with 500; the rule`},
	{"other objects and parents", `
{apiVersion: v1, kind: Service, metadata: {name: s, namespace: n}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec: {parentRefs: [{kind: Service, name: app}], rules: [{backendRefs: [{name: app, port: 80}]}]}`, `
lost document 1, Service n/s (line 2): Service of v1 is not read; HTTPRoute of gateway.networking.k8s.io/v1 is; the object
lost document 2, HTTPRoute r, spec.parentRefs[0] (line 7): a parent of kind Service limits the rules to its requests, and retryproxy does not look at parents; write its host names under hostnames; the HTTPRoute`},
}

// routeOf returns an HTTPRoute with the rules.
func routeOf(rules string) string {
	return "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: r, labels: {a: b}}\nspec:\n  rules:" + strings.TrimSuffix(rules, "\n")
}

func TestObjectsBecomeSettings(t *testing.T) {
	for _, c := range conversions {
		t.Run(c.name, func(t *testing.T) {
			result, err := Convert([]byte(c.objects))
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, p := range result.Pairs {
				fmt.Fprintf(&b, "\n%s=%s", strings.TrimPrefix(p.Name, "RETRYPROXY_"), p.Value)
			}
			if result.CatchAll != "" {
				b.WriteString("\ncatch-all " + result.CatchAll)
			}
			for _, l := range result.Lost {
				fmt.Fprintf(&b, "\nlost %v; %s", l, l.LeftOut)
			}
			if b.String() != c.want {
				t.Errorf("got%s\n\nexpected%s", b.String(), c.want)
			}
		})
	}
}

// All errors are reported at once, each with its position.
func TestMistakesNameTheirPlace(t *testing.T) {
	_, err := Convert([]byte(routeOf(`
  - matches: [{path: {value: a}}, {path: {value: /a//b}}]
    retry: {codes: [299, five], attempts: -1, backoff: 1.5s}
    timeouts: {request: 1s, backendRequest: 2s}
    backendRefs: [{name: app}, {port: 80, weight: -2}]
    filters: {}
    retry: {}
  - name: 7
    matches: [{path: {value: /b}, method: [GET]}, {path: {value: /c}}]
    filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]
    backendRefs: [{name: app, port: 99999}]`) + "\n---\nhello\n---\n- a\n---\na: [\n"))
	const want = `document 1, HTTPRoute r, spec.rules[0].retry.codes[1] (line 7): expected a whole number
document 1, HTTPRoute r, spec.rules[0].retry.backoff (line 7): expected a duration such as 100ms, 10s or 1h30m
document 1, HTTPRoute r, spec.rules[0].backendRefs[1].name (line 9): must be set
document 1, HTTPRoute r, spec.rules[0].filters (line 10): expected a list
document 1, HTTPRoute r, spec.rules[0].retry (line 11): is set twice
document 1, HTTPRoute r, spec.rules[1].name (line 12): expected a string
document 1, HTTPRoute r, spec.rules[1].matches[0].method (line 13): expected a string
document 2 (line 17): expected a Kubernetes object with apiVersion and kind
document 3 (line 19): expected a Kubernetes object with apiVersion and kind
document 4: yaml: line 21: did not find expected node content
document 1, HTTPRoute r, spec.rules[0].backendRefs[1].weight (line 9): expected 0 or more, found -2
document 1, HTTPRoute r, spec.rules[0].backendRefs[0].port (line 9): must be set for a Service
document 1, HTTPRoute r, spec.rules[0].timeouts.backendRequest (line 8): expected at most the request timeout 1s, found 2s
document 1, HTTPRoute r, spec.rules[0].retry.codes[0] (line 7): expected a status from 400 to 599, found 299
document 1, HTTPRoute r, spec.rules[0].retry.attempts (line 7): expected 0 or more, found -1
document 1, HTTPRoute r, spec.rules[0].matches[0].path.value (line 6): expected a path that begins with / and has no empty segment, found "a"
document 1, HTTPRoute r, spec.rules[0].matches[1].path.value (line 6): expected a path that begins with / and has no empty segment, found "/a//b"
document 1, HTTPRoute r, spec.rules[1].backendRefs[0].port (line 15): expected a port from 1 to 65535, found 99999
document 1, HTTPRoute r, spec.rules[1].filters[0].urlRewrite.path (line 14): replacePrefixMatch needs a value, and exactly one match with a PathPrefix`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v", err)
	}
}

// A small file cannot expand to use much memory or time.
func TestASmallFileDoesNotMultiply(t *testing.T) {
	const head = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: r}\nspec:\n"
	list := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, objects := range map[string]string{
		"values":  head + "  hostnames: [&m {path: {value: /a}}]\n  rules: [&r {matches: [" + strings.Repeat("*m,", 2000) + "]}, " + strings.Repeat("*r,", 2000) + "]",
		"keys":    head + "  x: &r {" + list("k%d: 0, ", 700) + "}\n  rules: [" + strings.Repeat("*r, ", 700) + "]",
		"objects": "apiVersion: v1\nkind: List\nx: &l {apiVersion: v1, kind: List, items: [&o {apiVersion: v1, kind: Foo}, " + strings.Repeat("*o, ", 600) + "]}\nitems: [" + strings.Repeat("*l, ", 600) + "]",
	} {
		if _, err := Convert([]byte(objects)); err == nil || !strings.Contains(err.Error(), errTooMany.Error()) {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	hosts := head + "  hostnames: [" + list("h%d, ", 2000) + "]\n  rules: [" + list("{matches: [{path: {value: /a%[1]d}}, {path: {value: /b%[1]d}}], backendRefs: [{name: x, port: 80}]}, ", 6) + "]"
	if _, err := Convert([]byte(hosts)); err == nil || !strings.Contains(err.Error(), "the rules up to here have more than 20000 host names times matches") {
		t.Errorf("hosts: %.200v", err)
	}
}

func TestNamesOfRoutesFitAndDiffer(t *testing.T) {
	long := strings.Repeat("long.name-", 9)
	for name, want := range map[string]string{
		"a.b--c-":  "a-b-c",
		long + "0": "long-name-long-name-long-name-long-name-long-name-long-3e7ea48f",
	} {
		if got := routeName(name); got != want || len(got) > maxName {
			t.Errorf("%s: %s, expected %s", name, got, want)
		}
	}
	two := strings.ReplaceAll(routeOf("\n  - {matches: [{path: {value: /1}}], backendRefs: [{name: app, port: 80}]}"), "name: r", "name: r.r") + "\n---\n" +
		strings.ReplaceAll(routeOf("\n  - {matches: [{path: {value: /2}}], backendRefs: [{name: app, port: 80}]}"), "name: r", "name: r-r")
	if _, err := Convert([]byte(two)); err == nil || !strings.Contains(err.Error(), "its route would be named r-r-0, as that of") {
		t.Error(err)
	}
}
