package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/config/configfile"
)

func TestWrongValueNamesVariableValueAndWhatWasExpected(t *testing.T) {
	for entry, want := range map[string]string{
		"MAX_RETRIES=many":                 `RETRYPROXY_MAX_RETRIES="many": expected a whole number, from 0 to 100`,
		"MAX_RETRIES=101":                  "from 0 to 100",
		"MAX_RETRIES=-1":                   "from 0 to 100",
		"REQUEST_TIMEOUT=30":               `RETRYPROXY_REQUEST_TIMEOUT="30": did you mean 30s? Expected a duration with its unit, such as 250ms, 10s or 2m, at most 24h`,
		"REQUEST_TIMEOUT=-1s":              "expected a duration",
		"REQUEST_TIMEOUT=25h":              "at most 24h",
		"RETRY_BUFFER_BYTES=1.5MiB":        "expected bytes, such as 65536, 64KiB or 1MiB",
		"RETRY_BUFFER_BYTES=-1":            "expected bytes",
		"RETRY_BUFFER_BYTES=+1":            "expected bytes",
		"RETRY_BUFFER_BYTES=99999999999GB": "too large",
		"POSITION=inside":                  "expected one of auto, inbound, outbound",
		"BUDGET_RATIO=-0.1":                "expected a number such as 0.2",
		"BUDGET_RATIO=NaN":                 "expected a number such as 0.2",
		"BUDGET_RATIO=11":                  "at most 10",
		"BACKOFF=normal:factor=0.5":        "backoff normal: factor 0.5 is not within 1 to 1000",
		"BACKOFF=normal:factor=NaN":        "normal: factor=NaN: expected a number above 0; expected one of additive",
		"BACKOFF=normal:jitter=0":          "jitter=0: expected a number above 0",
		"BACKOFF=normal:jitter=1.1":        "jitter 1.1 is not within",
		"BACKOFF=additive:spread=0s":       "spread=0s: expected a duration above 0",
		"BACKOFF=slots:slots=33":           "slots 33 is not within 1 to 32",
		"BACKOFF=slots:stay=maybe":         "stay=maybe: expected true or false",
		"BACKOFF=none:extra=-1s":           "extra=-1s: expected a duration above 0 with its unit",
		"BACKOFF=fixed:slots=3:colour=red": "colour=red: the strategy fixed has no such option; its options are base, extra; slots=3: the strategy fixed has no such option; its options are base, extra",
		"BACKOFF=fixed:base":               "fixed:base: expected NAME:option=value",
		"BACKOFF=fixed:base=1s:base=2s":    "base is given twice",
		"DRY_RUN=watch":                    "expected true or false",
		"HEDGE_AFTER=p100":                 "percentile p100 is not within p50 to p99; expected p50 to p99, a duration from 1ms to 10m, or off",
		"HEDGE_AFTER=95":                   "neither a percentile nor a duration",
		"HEDGE_AFTER=0s":                   "0s is not within 1ms to 10m",
		"FALLBACK=503":                     "a colon and a body are missing after the status 503; did you mean 503:Service Unavailable?",
		"FALLBACK=99:x":                    "status 99 is not within 200 to 599",
		"FALLBACK=600:x":                   "status 600 is not within 200 to 599",
		"FALLBACK=204:x":                   "a response with status 204 cannot have a body",
		"FALLBACK=ftp://x":                 "expected http://host[:port], https://host[:port], unix:/path, route:NAME, a status code and a body such as 503:busy, several separated by commas, or none",
		"FALLBACK=off":                     "expected http://host[:port]",
		"RATE_LIMIT_PAUSE_KEY=header:":     "expected none, route, header:Name, json:model",
		"RATE_LIMIT_PAUSE_KEY=header:a b":  "expected none, route, header:Name, json:model",
		"RATE_LIMIT_PAUSE_KEY=Route":       "expected none, route, header:Name, json:model",
		"SHARED=http://cache":              "expected redis://[user@]host[:port][/db], rediss:// for TLS",
		"SHARED=redis://u:secret@cache":    `RETRYPROXY_SHARED="redis://***@cache": a password would be visible here`,
		"SHARED=redis://u:secret@c":        "?password_file=FILE",
		"RATE_LIMIT_KEY=header:":           "expected upstream, route, header:Name, json:model, or header:Name,json:model",
		"RATE_LIMIT_KEY=header:a b":        "expected upstream, route, header:Name, json:model",
		"RATE_LIMIT_KEY=header:X-Key:":     "expected upstream, route, header:Name, json:model",
		"RATE_LIMIT_KEY=Route":             "expected upstream, route, header:Name, json:model",
		"RATE_LIMIT_KEY=none":              "did you mean upstream? Expected upstream, route, header:Name, json:model",
		"TOKEN_LIMIT=5":                    "the unit is missing: 5/s, 5/m or 5/h",
		"TOKEN_LIMIT=0/m":                  `"0" is not a number from 1 to 1000000000000`,
		"RATE_LIMIT_KEY=json:user":         "did you mean json:model? Expected upstream, route, header:Name, json:model",
		"RATE_LIMIT=0/s":                   `"0" is not a number from 1 to 1000000`,
		"RATE_LIMIT=100":                   "the unit is missing: 100/s, 100/m or 100/h",
		"RATE_LIMIT=10/d":                  `"d" is not s, m or h`,
		"RATE_LIMIT=20000/s":               "more than 10000 a second",
		"LISTEN=8080":                      "expected host:port, :port or unix:/path",
		"LISTEN=off":                       "clients need this listener; expected host:port",
		"LISTEN=:99999":                    "0 to 65535",
		"LISTEN=:http":                     "0 to 65535",
		"LISTEN=unix:run.sock":             "must begin with /",
		"ADMIN_LISTEN=a b:1":               "not a host name",
		"TRUSTED_PROXIES=10.0.0.1/8":       "did you mean 10.0.0.0/8?",
		"TRUSTED_PROXIES=10.0.0.0/8,all":   `"all" is not an address`,
		"RETRY_METHODS=get":                `did you mean GET?`,
		"RETRY_METHODS=GET PUT":            "is not a method name",
		"ROUTES=a_b":                       `"a_b" must have 1 to 63 letters, digits and dashes between them`,
		"ROUTES=a-":                        `"a-" must have 1 to 63 letters, digits and dashes between them`,
		"ROUTES=a--b":                      `"a--b" must have 1 to 63 letters, digits and dashes between them`,
		"ROUTES=A,B,b":                     `"b" is listed twice`,
		"ROUTES=Default":                   "the name default is reserved",
		"UPSTREAM_HOST=a b":                "expected auto, preserve, upstream, or a host name",
		"HEALTH_PATH=healthz":              "it does not begin with /; did you mean /healthz? Expected a path that begins with /, such as /healthz, or off",
		"HEALTH_PATH=/a b":                 "it has a space",
		"HEALTH_PATH=/a#b":                 "it has a space, a #",
	} {
		environ := []string{minimal, "RETRYPROXY_" + entry}
		if entry == "ROUTES=A,B,b" {
			environ = append(environ, "RETRYPROXY_ROUTE_A_PATH=/a", "RETRYPROXY_ROUTE_B_PATH=/b")
		}
		got := problemsOf(environ...)
		if len(got) != 1 || !strings.Contains(strings.ReplaceAll(got[0], "? Expected", "? expected"), strings.ReplaceAll(want, "? Expected", "? expected")) || !strings.HasPrefix(got[0], "RETRYPROXY_") {
			t.Errorf("%s: got %q, want one with %q", entry, got, want)
		}
	}
}

func TestUpstreamIsChecked(t *testing.T) {
	for value, want := range map[string]string{
		"example.com":                       "did you mean http://example.com?",
		"ftp://example.com":                 "the scheme is not http",
		"http://":                           "the host is missing",
		"http://a_b.example":                "",
		"http://a..b":                       "has a label that is empty",
		"http://example.com/base":           "",
		"http://example.com/a/../b":         "must be made of segments of letters",
		"http://example.com:0":              "is not within 1 to 65535",
		"http://me:geheim@example.com":      "a user and a password are not allowed in the URL",
		"http://me:ge/heim@example.com":     "is not a URL",
		"me:geheim@example.com":             "the scheme is not http",
		"unix:app.sock":                     "must be absolute",
		"unix:/" + strings.Repeat("x", 107): "allows 107",
	} {
		got := problemsOf("RETRYPROXY_UPSTREAM=" + value)
		if want == "" {
			wantLines(t, got)
			continue
		}
		if len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: got %q, want %q", value, got, want)
		}
		if strings.Count(got[0], "host[:port]") > 1 {
			t.Errorf("%s: the form is named twice: %s", value, got)
		}
		if strings.Contains(strings.Join(got, ""), "heim") {
			t.Errorf("the message shows the password: %s", got)
		}
	}
}

func TestAllProblemsAreToldAtOnce(t *testing.T) {
	got := problemsOf("RETRYPROXY_MAX_RETRIES=x", "RETRYPROXY_MAX_RETRYS=3", "RETRYPROXY_ROUTES=a", "RETRYPROXY_ROUTE_A_BACKOFF_BASE=1",
		"RETRYPROXY_LISTEN=x", "RETRYPROXY_ATTEMPT_TIMEOUT=31s")
	wantLines(t, got,
		`RETRYPROXY_MAX_RETRYS="3": unknown name; did you mean RETRYPROXY_MAX_RETRIES?`,
		`RETRYPROXY_LISTEN="x": did you mean x:8080? Expected host:port`,
		`RETRYPROXY_MAX_RETRIES="x"`,
		`RETRYPROXY_ROUTE_A_BACKOFF_BASE="1"`,
		`RETRYPROXY_UPSTREAM: must be set`,
		`RETRYPROXY_ATTEMPT_TIMEOUT="31s": must be less than`,
		`RETRYPROXY_ROUTE_A_PATH: route a has no matcher`,
	)
}

func TestUnknownNames(t *testing.T) {
	routes := []string{minimal, "RETRYPROXY_ROUTES=search,upload", "RETRYPROXY_ROUTE_SEARCH_PATH=/s", "RETRYPROXY_ROUTE_UPLOAD_PATH=/u"}
	for entry, want := range map[string]string{
		"RETRYPROXY_UPSTREM=a":                       "did you mean RETRYPROXY_UPSTREAM?",
		"RETRYPROXY_RETRIES_MAX=a":                   "unknown name",
		"RETRYPROXY_MAX_RERTIES=3":                   "did you mean RETRYPROXY_MAX_RETRIES?",
		"RETRYPROXY_BOGUS_THING_ENTIRELY=1":          "unknown name",
		"RETRYPROXY_PATH=/x":                         "can only be set for a route: RETRYPROXY_ROUTES=NAME and RETRYPROXY_ROUTE_<NAME>_PATH",
		"RETRYPROXY_ROUTE_SEARCH_ACCESS_LOG=true":    "cannot be set for one route, only for all: RETRYPROXY_ACCESS_LOG",
		"RETRYPROXY_ROUTE_SEARCH_PAHT=/x":            "did you mean RETRYPROXY_ROUTE_SEARCH_PATH?",
		"RETRYPROXY_ROUTE_SAERCH_PATH=/x":            `does not name a route "saerch"; did you mean RETRYPROXY_ROUTE_SEARCH_PATH?`,
		"RETRYPROXY_ROUTE_PAYMENTS_PATH=/x":          `does not name a route "payments"`,
		"RETRYPROXY_ROUTE_SEARCH_UPSTREAM_HOSTS=a":   "did you mean RETRYPROXY_ROUTE_SEARCH_UPSTREAM_HOST?",
		"RETRYPROXY_HOST=a":                          "can only be set for a route: RETRYPROXY_ROUTES=NAME and RETRYPROXY_ROUTE_<NAME>_HOST; the Host header that is sent upstream is set by RETRYPROXY_UPSTREAM_HOST",
		"RETRYPROXY_ROUTE_SEARCH=/x":                 "unknown name",
		"RETRYPROXY_SERVICE_HOST=retryproxy.example": "unknown name",
		"RETRYPROXY_PORT=8080":                       "unknown name; the port for requests is in RETRYPROXY_LISTEN=:8080, the upstream's in RETRYPROXY_UPSTREAM",
		"RETRYPROXY_TIMEOUT=3s":                      "RETRYPROXY_REQUEST_TIMEOUT",
		"RETRYPROXY_RETRIES=3":                       "RETRYPROXY_MAX_RETRIES",
		"RETRYPROXY_TARGET=a":                        "RETRYPROXY_UPSTREAM",
		"RETRYPROXY_BACKEND=a":                       "RETRYPROXY_UPSTREAM",
		"RETRYPROXY_CIRCUIT_BREAKER=on":              "RETRYPROXY_BREAKER=",
		"RETRYPROXY_MAX_CONCURRENCY=3":               "RETRYPROXY_CONCURRENCY_LIMIT=",
		"RETRYPROXY_RATE_LIMIT_RPS=3":                "RETRYPROXY_RATE_LIMIT=100/s",
		"RETRYPROXY_DEBUG=true":                      "unknown name; did you mean RETRYPROXY_ACCESS_LOG=true (a line per request)",
		"RETRYPROXY_ROUTE_SEARCH_DIAL_TIMEOUT=1s":    "unknown name; a connection has 3s",
		"RETRYPROXY_SHARED_PASSWORD_FILE=/p":         "unknown name; it is an option: RETRYPROXY_SHARED=redis://host?password_file=FILE",
		"RETRYPROXY_SHARED_CA=/ca":                   "RETRYPROXY_SHARED=rediss://host?ca=FILE",
		"RETRYPROXY_SHARED_CERT=/c":                  "RETRYPROXY_SHARED=rediss://host?cert=FILE",
		"RETRYPROXY_RETRY_PERCENT=50":                "unknown name; POST /retry-percent of the admin listener changes it",
		"RETRYPROXY_MAX_HEADERS=50":                  "unknown name; a request or response has at most 100",
		"RETRYPROXY_MAX_CONCURRENT_STREAMS=9":        "unknown name; an HTTP/2 client may have 1000",
		"RETRYPROXY_ROUTE_SEARCH_EJECT_AFTER=9":      "RETRYPROXY_ROUTE_SEARCH_BREAKER=off turns ejection off",
		"RETRYPROXY_TUNNEL_IDLE_TIMEOUT=1m":          "may be silent for 1h",
		"RETRYPROXY_RETRY_UNSAFE=true":               "RETRYPROXY_RETRY_METHODS=any",
		"RETRYPROXY_VIA=true":                        "unknown name; no Via header is added",
		"RETRYPROXY_METRICS_PORT=3":                  "RETRYPROXY_ADMIN_LISTEN=",
	} {
		if got := problemsOf(append(routes, entry)...); len(got) != 1 || !strings.Contains(got[0], want) || strings.HasPrefix(got[0], "warning") {
			t.Errorf("%s: got %q, want %q", entry, got, want)
		}
	}
	for _, name := range []string{"RETRY_PROXY_UPSTREAM", "retryproxy_upstream"} {
		wantLines(t, problemsOf(minimal, name+"=x"), "warning: "+name+`="x": is ignored`)
	}
}

func TestServiceLinksAreIgnored(t *testing.T) {
	for _, infix := range []string{"", "ADMIN_", "ROUTE_SEARCH_", "MY_OTHER_2_"} {
		var environ []string
		for _, link := range []string{
			"SERVICE_HOST=10.0.0.1", "SERVICE_HOST=fd00::1", "SERVICE_PORT=80", "SERVICE_PORT_HTTP=80", "SERVICE_PORT_HTTP_ADMIN=80", "PORT=tcp://10.0.0.1:80", "PORT=udp://[fd00::1]:80",
			"PORT_8080_TCP=tcp://10.0.0.1:8080", "PORT_8080_TCP_PROTO=tcp", "PORT_8080_TCP_PORT=8080", "PORT_8080_TCP_ADDR=10.0.0.1",
			"PORT_53_UDP=udp://10.0.0.1:53", "PORT_53_UDP_PROTO=udp", "PORT_53_UDP_PORT=53", "PORT_53_UDP_ADDR=10.0.0.1", "PORT_9_SCTP=sctp://10.0.0.1:9",
		} {
			environ = append(environ, "RETRYPROXY_"+infix+link)
			wantLines(t, problemsOf(minimal, "RETRYPROXY_"+infix+link))
		}
		wantLines(t, problemsOf(append(environ, minimal)...))
	}
}

// A value that Kubernetes would not set shows that a user meant a setting.
func TestOtherValuesAreNotServiceLinks(t *testing.T) {
	for _, entry := range []string{
		"SERVICE_HOST=abc", "SERVICE_HOST=1.2.3", "SERVICE_HOST=80", "PORT_80_TCP_ADDR=10.0.0.256",
		"SERVICE_PORT=0", "SERVICE_PORT=99999999", "SERVICE_PORT_HTTP=http", "PORT_80_TCP_PORT=65536",
		"PORT_80_TCP_PROTO=http", "PORT=tcp://bad:99999", "PORT=tcp://10.0.0.1:0", "PORT=tcp://fd00::1:80", "PORT_80_TCP=http://10.0.0.1:80",
	} {
		if got := problemsOf(minimal, "RETRYPROXY_X_"+entry); len(got) != 1 || !strings.Contains(got[0], "unknown name") {
			t.Errorf("%s: got %q, want an unknown name", entry, got)
		}
	}
}

func TestContradictions(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		environ string
		want    []string
	}{
		{"ATTEMPT_TIMEOUT=30s", []string{"must be less than RETRYPROXY_REQUEST_TIMEOUT=30s, otherwise no attempt can time out before the request does"}},
		{"ATTEMPT_TIMEOUT=29s", nil},
		{"REQUEST_TIMEOUT=0 ATTEMPT_TIMEOUT=0", []string{"warning: RETRYPROXY_REQUEST_TIMEOUT"}},
		{"BACKOFF_BASE=2s BACKOFF_MAX=1s", []string{"is longer than RETRYPROXY_BACKOFF_MAX=1s"}},
		{"BACKOFF_THROTTLED_BASE=2s BACKOFF_MAX=1s", []string{"RETRYPROXY_BACKOFF_THROTTLED_BASE=\"2s\": is longer than"}},
		{"BACKOFF_MAX=10ms", nil},
		{"BACKOFF_BASE=2s", nil},
		{"BACKOFF_BASE=2s BACKOFF_THROTTLED_BASE=1s", []string{"warning: RETRYPROXY_BACKOFF_THROTTLED_BASE=\"1s\": has no effect"}},
		{"BACKOFF_THROTTLED_BASE=1s ROUTES=a,b ROUTE_A_PATH=/a ROUTE_B_PATH=/b ROUTE_A_BACKOFF_BASE=2s", []string{"warning: RETRYPROXY_BACKOFF_THROTTLED_BASE=\"1s\": has no effect: RETRYPROXY_ROUTE_A_BACKOFF_BASE=2s is longer"}},
		{"RETRY_REJECTED=429,418", []string{"warning: RETRYPROXY_RETRY_REJECTED=\"418,429\": has no effect on 418: RETRYPROXY_RETRY_ON does not list it"}},
		{"FATAL_ERROR_CODES=a,,!no_such_code", []string{"an empty entry; \"no_such_code\" is not in the list of docs/reference/retry-after.md"}},
		{"MAX_RETRIES=0 FATAL_ERROR_CODES=none", []string{"warning: RETRYPROXY_FATAL_ERROR_CODES=\"none\": has no effect: RETRYPROXY_MAX_RETRIES=0 turns retries off"}},
		{"LISTEN=:81 FALLBACK=http://localhost:81", []string{"RETRYPROXY_FALLBACK=\"http://localhost:81\": is retryproxy's own listener (RETRYPROXY_LISTEN is :81)"}},
		{"FALLBACK=http://example.com", []string{"warning: RETRYPROXY_FALLBACK=\"http://example.com:80\": is the upstream itself, so both fail at the same time"}},
		{"FALLBACK=http://other.example", nil},
		{"RATE_LIMIT_PAUSE_MAX=5s", []string{"warning: RETRYPROXY_RATE_LIMIT_PAUSE_MAX=\"5s\": has no effect: RETRYPROXY_RATE_LIMIT_PAUSE_KEY=none shares no pause"}},
		{"RATE_LIMIT_PAUSE_MAX=5s RATE_LIMIT_PAUSE_KEY=route", nil},
		{"RATE_LIMIT_PAUSE_MAX=5s RATE_LIMIT=auto", nil},
		{"RATE_LIMIT_PAUSE_MAX=5s ROUTES=a ROUTE_A_PATH=/a ROUTE_A_RATE_LIMIT_PAUSE_KEY=header:X-Key", nil},
		{"RATE_LIMIT_KEY=route", []string{"warning: RETRYPROXY_RATE_LIMIT_KEY=\"route\": has no effect: RETRYPROXY_RATE_LIMIT=off limits nothing"}},
		{"RATE_LIMIT_KEY=upstream", nil},
		{"RATE_LIMIT_KEY=header:X-Key RATE_LIMIT=1/s", nil},
		{"RATE_LIMIT_KEY=header:X-Key ROUTES=a ROUTE_A_PATH=/a ROUTE_A_RATE_LIMIT=1/s", nil},
		{"RATE_LIMIT=1/s ROUTES=a ROUTE_A_PATH=/a ROUTE_A_RATE_LIMIT=off ROUTE_A_RATE_LIMIT_KEY=route", []string{"warning: RETRYPROXY_ROUTE_A_RATE_LIMIT_KEY=\"route\": has no effect: RETRYPROXY_ROUTE_A_RATE_LIMIT=off limits nothing"}},
		{"HEDGE_AFTER=50ms", nil},
		{"HEDGE_AFTER=1m BUDGET_RATIO=off REQUEST_TIMEOUT=2m", []string{"warning: RETRYPROXY_HEDGE_AFTER=\"1m\": with RETRYPROXY_BUDGET_RATIO=off nothing bounds"}},
		{"HEDGE_AFTER=p95 BUDGET_RATIO=off", []string{"warning: RETRYPROXY_HEDGE_AFTER=\"p95\": with RETRYPROXY_BUDGET_RATIO=off nothing bounds"}},
		{"HEDGE_AFTER=p95 MAX_RETRIES=0", []string{"warning: RETRYPROXY_HEDGE_AFTER=\"p95\": has no effect: RETRYPROXY_MAX_RETRIES=0"}},
		{"ATTEMPT_TIMEOUT=10s HEDGE_AFTER=10s", []string{"warning: RETRYPROXY_HEDGE_AFTER=\"10s\": has no effect: RETRYPROXY_ATTEMPT_TIMEOUT=10s"}},
		{"HEDGE_AFTER=30s ATTEMPT_TIMEOUT=0", []string{"warning: RETRYPROXY_HEDGE_AFTER=\"30s\": has no effect: RETRYPROXY_REQUEST_TIMEOUT=30s"}},
		{"BUDGET_RATIO=off BUDGET_BURST=3", []string{"warning: RETRYPROXY_BUDGET_BURST=\"3\": has no effect: RETRYPROXY_BUDGET_RATIO=off sets no budget"}},
		{"BUDGET_RATIO=off BUDGET_BURST=3 ROUTES=a ROUTE_A_PATH=/a ROUTE_A_BUDGET_RATIO=0.1", nil},
		{"RETRY_METHODS=GET,POST,PATCH", []string{"warning: RETRYPROXY_RETRY_METHODS=\"GET,POST,PATCH\": retries POST and PATCH after it was sent"}},
		{"MAX_RETRIES=0", nil},
		{"MAX_RETRIES=0 RETRY_ON=503", []string{"warning: RETRYPROXY_RETRY_ON=\"503\": has no effect: RETRYPROXY_MAX_RETRIES=0 turns retries off"}},
		{"RETRY_BUFFER_BYTES=65MiB", []string{"is more than RETRYPROXY_RETRY_BUFFER_TOTAL_BYTES=64MiB"}},
		{"UPSTREAM_CA=/ca", []string{"RETRYPROXY_UPSTREAM_CA=\"/ca\": has no effect on the upstream http://example.com"}},
		{"TLS_CLIENT_CA=/a", []string{"has no effect without RETRYPROXY_TLS_CERT"}},
		{"TLS_CERT=/c TLS_CLIENT_CA=/a TLS_KEY=/k", nil},
		{"TLS_KEY=/k", []string{"RETRYPROXY_TLS_KEY=\"/k\": has no effect without RETRYPROXY_TLS_CERT"}},
		{"UPSTREAM=https://a UPSTREAM_KEY=/k", []string{"RETRYPROXY_UPSTREAM_KEY=\"/k\": has no effect without RETRYPROXY_UPSTREAM_CERT"}},
		{"UPSTREAM=https://a UPSTREAM_CERT=/c UPSTREAM_KEY=/k ROUTES=a,b ROUTE_A_PATH=/a ROUTE_A_UPSTREAM=https://b ROUTE_B_PATH=/b", nil},
		{"UPSTREAM=https://a UPSTREAM_CERT=/c UPSTREAM_KEY=/k ROUTES=a ROUTE_A_PATH=/a ROUTE_A_UPSTREAM=https://b ROUTE_A_UPSTREAM_KEY=/r", []string{"RETRYPROXY_ROUTE_A_UPSTREAM_KEY=\"/r\": has no effect without RETRYPROXY_UPSTREAM_CERT"}},
		{"UPSTREAM=http://a UPSTREAM_CERT=/c UPSTREAM_KEY=/k", []string{"RETRYPROXY_UPSTREAM_CERT=\"/c\": has no effect on the upstream", "RETRYPROXY_UPSTREAM_KEY=\"/k\": has no effect on the upstream"}},
		{"ADMIN_ALLOW=10.0.0.0/8 ADMIN_LISTEN=off", []string{"warning: RETRYPROXY_ADMIN_ALLOW"}},
		{"ADMIN_TOKEN_FILE=/no/file ADMIN_LISTEN=off", []string{"warning: RETRYPROXY_ADMIN_TOKEN_FILE"}},
		{"ADMIN_ALLOW=0.0.0.0/0", []string{"lets everybody read"}},
		{"ADMIN_TOKEN_FILE=/no/file", []string{"RETRYPROXY_ADMIN_TOKEN_FILE=\"/no/file\": open /no/file: no such file"}},
		{"ADMIN_TOKEN_FILE=/dev/null", []string{"must have a token of 16 to 4096 bytes"}},
		{"ADMIN_TOKEN_FILE=/dev/zero", []string{"must have a token of 16 to 4096 bytes"}},
		{"FALLBACK=route:", []string{"route: needs the name of a route"}},
		{"FALLBACK=route:,http://x:1", []string{"route: needs the name of a route"}},
		{"HEALTH_PATH=//x", []string{"it begins with //"}},
		{"FALLBACK=http://a:1,route:x", []string{"there is no route x"}},
		{"FALLBACK=503x:busy", []string{"\"503x\" is not a status code"}},
		{"FALLBACK=route:a,route:b,route:c,route:d,1:x", []string{"status 1 is not within 200 to 599"}},
		{"FALLBACK=route:a,route:b,route:c,route:d,503:x", []string{"more than 4"}},
		{"BALANCE=random", []string{"RETRYPROXY_BALANCE=\"random\": did you mean least-requests? Expected least-requests, round-robin or hash:Name"}},
		{"BALANCE=hash:", []string{"expected least-requests, round-robin or hash:Name"}},
		{"ROUTES=a ROUTE_A_PATH=/a ROUTE_A_UPSTREAM=http://10.0.0.1 ROUTE_A_HEALTH_PATH=/h ROUTE_A_BALANCE=round-robin", []string{"warning: RETRYPROXY_ROUTE_A_BALANCE=\"round-robin\": has no effect: RETRYPROXY_ROUTE_A_UPSTREAM=http://10.0.0.1:80 is one address"}},
		{"UPSTREAM=http://10.0.0.1 HEALTH_PATH=/h BREAKER=off", []string{"warning: RETRYPROXY_HEALTH_PATH=\"/h\": has no effect: RETRYPROXY_BREAKER=off needs no health checks of an upstream with one address"}},
		{"HEALTH_PATH=/h BREAKER=off", nil},
		{"ROUTES=a ROUTE_A_PATH=/a ROUTE_A_UPSTREAM=http://10.0.0.1,http://10.0.0.2 ROUTE_A_HEALTH_PATH=/h ROUTE_A_BALANCE=round-robin", nil},
		{"REQUEST_HEADERS_SET=Host:x,X-A:1", []string{"RETRYPROXY_REQUEST_HEADERS_SET=\"Host\": cannot be changed: RETRYPROXY_UPSTREAM_HOST sets this header"}},
		{"REQUEST_HEADERS_REMOVE=X-Forwarded-For", []string{"RETRYPROXY_REQUEST_HEADERS_REMOVE=\"X-Forwarded-For\": cannot be changed"}},
		{"RESPONSE_HEADERS_SET=Content-Length:1", []string{"RETRYPROXY_RESPONSE_HEADERS_SET=\"Content-Length\": cannot be changed"}},
		{"RESPONSE_HEADERS_REMOVE=Connection,Server", []string{"RETRYPROXY_RESPONSE_HEADERS_REMOVE=\"Connection\": cannot be changed"}},
		{"RESPONSE_HEADERS_REMOVE=a:b", []string{"\"a:b\" is not a header name"}},
		{"RETRY_ON=none RETRY_METHODS=any", []string{"warning: RETRYPROXY_RETRY_METHODS=\"any\": has no effect: RETRYPROXY_RETRY_ON=none retries nothing"}},
		{"QUEUE_TIMEOUT=30s", []string{"warning: RETRYPROXY_QUEUE_TIMEOUT=\"30s\": has no effect: RETRYPROXY_REQUEST_TIMEOUT=30s ends the request earlier"}},
		{"QUEUE_TIMEOUT=29s", nil},
		{"QUEUE_TIMEOUT=5s BREAKER=off", []string{"warning: RETRYPROXY_QUEUE_TIMEOUT=\"5s\": has no effect: RETRYPROXY_BREAKER=off queues no request"}},
		{"QUEUE_TIMEOUT=5s BREAKER=fail-fast", []string{"warning: RETRYPROXY_QUEUE_TIMEOUT=\"5s\": has no effect: RETRYPROXY_BREAKER=fail-fast queues no request"}},
		{"RETRY_ON=200-599", []string{"warning: RETRYPROXY_RETRY_ON=\"5xx,200-499,501,505,511\": retries good responses too, such as 200"}},
		{"RETRY_ON=404", nil},
		{"RATE_LIMIT=9/s RATE_LIMIT_WAIT=30s", []string{"warning: RETRYPROXY_RATE_LIMIT_WAIT=\"30s\": has no effect: RETRYPROXY_REQUEST_TIMEOUT=30s ends the request earlier"}},
		{"DRY_RUN=true HEDGE_AFTER=p95 FALLBACK=503:busy", []string{"warning: RETRYPROXY_HEDGE_AFTER=\"p95\": has no effect: RETRYPROXY_DRY_RUN=true sends every request once",
			"warning: RETRYPROXY_FALLBACK=\"503:busy\": has no effect: RETRYPROXY_DRY_RUN=true sends every request once"}},
		{"FALLBACK=503:busy,http://x", []string{"warning: RETRYPROXY_FALLBACK=\"503:busy,http://x\": everything after 503: is the body of the response, the text after the comma too; put the fixed response last"}},
		{"FALLBACK=503:see http://x,y", nil},
		{"BUDGET_RATIO=off", nil},
		{"BUDGET_RATIO=off MAX_RETRIES=4", []string{"warning: RETRYPROXY_BUDGET_RATIO=\"off\": lets an upstream that fails get up to 5 times its requests (RETRYPROXY_MAX_RETRIES=4)"}},
		{"FALLBACK=route:b", []string{"RETRYPROXY_FALLBACK=\"route:b\": there is no route b; RETRYPROXY_ROUTES lists the routes"}},
		{"FALLBACK=route:default", []string{"RETRYPROXY_FALLBACK=\"route:default\": a route cannot be its own fallback"}},
		{"FALLBACK=route:b ROUTES=b ROUTE_B_UPSTREAM=http://b", nil},
		{"FALLBACK=route:b ROUTES=b ROUTE_B_REQUEST_HEADERS_SET=A:1", []string{"warning: RETRYPROXY_FALLBACK=\"http://example.com:80\": is the upstream itself"}},
		{"FALLBACK=route:b ROUTES=b,c ROUTE_C_UPSTREAM=http://c ROUTE_B_UPSTREAM=http://b", []string{"RETRYPROXY_ROUTE_C_PATH: route c has no matcher"}},
		{"REQUEST_HEADERS_FILE=/f", []string{"warning: RETRYPROXY_REQUEST_HEADERS_FILE=\"/f\": is sent to http://example.com:80 without TLS"}},
		{"REQUEST_HEADERS_FILE=/f UPSTREAM=http://localhost:1", nil},
		{"TRUSTED_PROXIES=0.0.0.0/0", []string{"warning: RETRYPROXY_TRUSTED_PROXIES"}},
		{"PROXY_PROTOCOL_FROM=::/0", []string{"warning: RETRYPROXY_PROXY_PROTOCOL_FROM"}},
		{"LISTEN=:9797", []string{"RETRYPROXY_ADMIN_LISTEN (default :9797): is the address of RETRYPROXY_LISTEN=:9797"}},
		{"LISTEN=127.0.0.1:9797", []string{"is the address of"}},
		{"LISTEN=127.0.0.1:9797 ADMIN_LISTEN=127.0.0.2:9797", nil},
		{"LISTEN=:0 ADMIN_LISTEN=:0", nil},
		{"LISTEN=unix:/a ADMIN_LISTEN=unix:/a", []string{"is the address of"}},
		{"UPSTREAM=http://localhost:8080", []string{"is retryproxy's own listener (RETRYPROXY_LISTEN is :8080)"}},
		{"UPSTREAM=http://127.0.0.1:9797", []string{"is retryproxy's own listener (RETRYPROXY_ADMIN_LISTEN is :9797)"}},
		{"UPSTREAM=http://127.0.0.1:8080 LISTEN=127.0.0.2:8080", nil},
		{"UPSTREAM=unix:/a LISTEN=unix:/a", []string{"own listener (RETRYPROXY_LISTEN is unix:/a)"}},
		{"UPSTREAM=http://example.com:8080", nil},
		{"ROUTES=a", []string{"RETRYPROXY_ROUTE_A_PATH: route a has no matcher"}},
		{"ROUTES=a ROUTE_A_LISTEN=:81", nil},
		{"ROUTES=a ROUTE_A_METHODS=get", []string{`"get" is not in upper case; did you mean GET?`}},
		{"ROUTES=a ROUTE_A_HOST=http://foo", []string{`RETRYPROXY_ROUTE_A_HOST="http://foo": is a URL; expected a host name`}},
		{"ROUTES=a ROUTE_A_PATH=a", []string{`RETRYPROXY_ROUTE_A_PATH="a": it must begin with "/"; did you mean /a?`}},
		{"ROUTES=a,b ROUTE_A_PATH=/x ROUTE_B_PATH=/x", []string{`RETRYPROXY_ROUTE_B_PATH="/x": matches the same requests as route a`}},
		{"ROUTES=a ROUTE_A_PATH=/x ROUTE_A_HEADER=:=", []string{`RETRYPROXY_ROUTE_A_HEADER=":=": ":" is not a header name`}},
		{"ROUTES=user_api ROUTE_USER_API_PATH=/x", []string{`RETRYPROXY_ROUTES="user_api": `}},
		{"BACKOFF=exponential", []string{"RETRYPROXY_BACKOFF=\"exponential\": \"exponential\" is not the name of a strategy; did you mean full-jitter? Expected one of "}},
		{"BACKOFF=none", nil},
		{"BACKOFF_JITTER=0.2", []string{"RETRYPROXY_BACKOFF_JITTER=\"0.2\": unknown name; it is an option: RETRYPROXY_BACKOFF=normal:jitter=0.1"}},
		{"ROUTES=a ROUTE_A_PATH=/a ROUTE_A_BACKOFF_EXTRA=1s", []string{"unknown name; it is an option of each strategy: RETRYPROXY_ROUTE_A_BACKOFF=fixed:extra=500ms"}},
		{"BACKOFF=normal:base=1s BACKOFF_BASE=2s", []string{"RETRYPROXY_BACKOFF_BASE=\"2s\": is in RETRYPROXY_BACKOFF=normal:base=1s too; remove one of them"}},
		{"BACKOFF=normal:max=9s ROUTES=a ROUTE_A_PATH=/a ROUTE_A_BACKOFF_MAX=5s", nil},
		{"BACKOFF=fixed:base=2s BACKOFF_MAX=1s", []string{"warning: RETRYPROXY_BACKOFF_MAX=\"1s\": has no effect: RETRYPROXY_BACKOFF=fixed:base=2s has no option max"}},
		{"BACKOFF=normal:base=2s BACKOFF_MAX=1s", []string{"RETRYPROXY_BACKOFF=\"normal:base=2s\": backoff normal: base 2s is above max 1s"}},
		{"BACKOFF=none BACKOFF_BASE=1s", []string{"warning: RETRYPROXY_BACKOFF_BASE=\"1s\": has no effect: RETRYPROXY_BACKOFF=none has no option base"}},
		{"BACKOFF=slots:stay=true:slots=4 BACKOFF_MAX=1s", nil},
		{"BACKOFF=slots:slots=4 ROUTES=a ROUTE_A_PATH=/a ROUTE_A_BACKOFF=fixed", nil},
		{"BACKOFF=full-jitter:extra=1s", nil},
		{"BACKOFF=full-jitter:extra=11s", []string{"warning: RETRYPROXY_REQUEST_TIMEOUT (default 30s): the waits before 3 retries can add up to"}},
		{"BACKOFF=ratio:ratio=5", []string{"warning: RETRYPROXY_REQUEST_TIMEOUT (default 30s): the waits before 3 retries can add up to 43s"}},
		{"MAX_RETRIES=7", nil},
		{"MAX_RETRIES=12", []string{"warning: RETRYPROXY_REQUEST_TIMEOUT (default 30s): the waits before 12 retries can add up to"}},
		{"BACKOFF=fixed BACKOFF_BASE=11s", []string{"warning: RETRYPROXY_REQUEST_TIMEOUT (default 30s): the waits before 3 retries can add up to 33s"}},
		{"BACKOFF=fixed BACKOFF_BASE=9s", nil},
		{"BACKOFF=decorrelated BACKOFF_BASE=1s BACKOFF_MAX=1s", []string{"warning: RETRYPROXY_BACKOFF_BASE=\"1s\": leaves no jitter below RETRYPROXY_BACKOFF_MAX=1s"}},
		{"BACKOFF=decorrelated:extra=1s BACKOFF_BASE=1s BACKOFF_MAX=1s", nil},
		{"BACKOFF=additive BACKOFF_BASE=1s BACKOFF_MAX=1s", nil},
		{"RETRY_ON=5xx,6xx,what", []string{"RETRYPROXY_RETRY_ON=\"5xx,6xx,what\": \"6xx\" is not a failure in this list; \"what\" is not a failure in this list; expected failures, separated by commas"}},
		{"ROUTES=a ROUTE_A_LISTEN=127.0.0.1:9797", []string{"overlaps RETRYPROXY_ADMIN_LISTEN"}},
		{"ROUTES=a ROUTE_A_LISTEN=:8080", []string{"overlaps RETRYPROXY_LISTEN"}},
		{"ROUTES=a,b ROUTE_A_LISTEN=:81 ROUTE_B_PATH=/b ROUTE_B_UPSTREAM=http://127.0.0.1:81", []string{`RETRYPROXY_ROUTE_B_UPSTREAM="http://127.0.0.1:81": is retryproxy's own listener (RETRYPROXY_ROUTE_A_LISTEN is :81)`}},
		{"ROUTES=a ROUTE_A_PATH=/a/* ROUTE_A_STRIP_PREFIX=/a", nil},
		{"ROUTES=a ROUTE_A_PATH=/ab ROUTE_A_STRIP_PREFIX=/a", []string{"does not begin with /a"}},
		{"ROUTES=a ROUTE_A_HOST=h ROUTE_A_STRIP_PREFIX=/a", []string{"does not begin with /a"}},
		{"ROUTES=a ROUTE_A_PATH=/a/* ROUTE_A_STRIP_PREFIX=/a/", []string{"expected a path that begins with / and does not end with it"}},
		{"ROUTES=a ROUTE_A_PATH=/a ROUTE_A_ATTEMPT_TIMEOUT=30s", []string{"RETRYPROXY_ROUTE_A_ATTEMPT_TIMEOUT=\"30s\": must be less than RETRYPROXY_REQUEST_TIMEOUT=30s, otherwise no attempt can time out before the request does"}},
		{"ROUTES=a,b ROUTE_A_PATH=/a ROUTE_B_PATH=/b ATTEMPT_TIMEOUT=30s", []string{"must be less than"}}, // once, not for each route
	} {
		environ := []string{minimal}
		for _, e := range strings.Fields(tt.environ) {
			environ = append(environ, "RETRYPROXY_"+strings.ReplaceAll(e, "DIR", dir))
		}
		t.Run(tt.environ, func(t *testing.T) { wantLines(t, problemsOf(environ...), tt.want...) })
	}
}

func TestNameInFileAndEnvironmentIsAnError(t *testing.T) {
	file := writeFile(t, "RETRYPROXY_MAX_RETRIES=5\nRETRYPROXY_BACKOFF_BASE=50ms\n")
	got := problemsOf(minimal, "RETRYPROXY_CONFIG_FILE="+file, "RETRYPROXY_BACKOFF_BASE=50ms")
	wantLines(t, got, `RETRYPROXY_BACKOFF_BASE="50ms": is set in the environment and in `+file+":2;")
	s := mustLoad(t, "RETRYPROXY_CONFIG_FILE="+file)
	if s.Default.MaxRetries != 5 || s.Default.Variable("MAX_RETRIES") != "RETRYPROXY_MAX_RETRIES" {
		t.Errorf("%d", s.Default.MaxRetries)
	}
}

func TestFileProblems(t *testing.T) {
	for content, want := range map[string]string{
		"RETRYPROXY_MAX_RETRIES": "env:1: expected NAME=VALUE",
		"\n# x\nA B=1":           `env:3: "A B" is not a variable's name`,
		"RETRYPROXY_UPSTREAM_HOST=a\nRETRYPROXY_UPSTREAM_HOST=a": "env:2: RETRYPROXY_UPSTREAM_HOST is already set in line 1",
		"RETRYPROXY_CONFIG_FILE=/x":                              "env:1: RETRYPROXY_CONFIG_FILE: the file cannot name another file",
		"OTHER=1":                                                "env:1: OTHER: is not the name of a setting",
		"RETRYPROXY_UPSTREAM_HOST=\"a":                           "env:1: the closing quote is missing",
		"RETRYPROXY_UPSTREAM_HOST=\"a\\":                         "env:1: the closing quote is missing",
		"RETRYPROXY_UPSTREAM_HOST=\"a\" b":                       "env:1: only a comment may follow",
		"RETRYPROXY_UPSTREAM_HOST=\"\\a\"":                       `env:1: \a is not an escape`,
		"RETRYPROXY_UPSTREAM_HOST=a\x00":                         "not a text file",
		"RETRYPROXY_UPSTREAM_HOST=\xff":                          "not a text file",
		"RETRYPROXY_BODY_IDLE_TIMEOUTT=x":                        "did you mean RETRYPROXY_BODY_IDLE_TIMEOUT?",
		strings.Repeat("#", configfile.MaxBytes) + "\n":          "larger than 16 MiB",
	} {
		wantLines(t, problemsOf(minimal, "RETRYPROXY_CONFIG_FILE="+writeFile(t, content)), want)
	}
	wantLines(t, problemsOf(minimal, "RETRYPROXY_CONFIG_FILE=/nowhere/at/all"), `RETRYPROXY_CONFIG_FILE="/nowhere/at/all": no such file or directory`)
	wantLines(t, problemsOf(minimal, "RETRYPROXY_CONFIG_FILE="+t.TempDir()), "is a directory")
}

// The upstream may be in the file.
func TestAFileThatCannotBeReadIsTheOnlyError(t *testing.T) {
	if got := problemsOf("RETRYPROXY_CONFIG_FILE=/nowhere/at/all"); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// For any input Load returns settings or problems, and never shows a password.
func FuzzLoad(f *testing.F) {
	for _, s := range Reference() {
		f.Add(s.Variable(), s.Default)
	}
	f.Add("RETRYPROXY_UPSTREAM", "http://a:b@c")
	f.Fuzz(func(t *testing.T, name, value string) {
		if strings.Contains(name, "CONFIG_FILE") {
			return
		}
		s, problems := Load([]string{minimal, "RETRYPROXY_ROUTES=a", name + "=" + value})
		for _, r := range s.All() {
			if r.MaxRetries < 0 || r.MaxRetries > 100 || r.RequestTimeout < 0 || r.RetryBufferBytes < 0 {
				t.Errorf("%s=%q gives %+v (%v)", name, value, r.Shared, problems)
			}
		}
	})
}

func TestMask(t *testing.T) {
	for in, want := range map[string]string{
		"http://example.com":        "http://example.com",
		"http://me:pw@example.com":  "http://***@example.com",
		"http://me@example.com/a@b": "http://***@b",
		"http://u:p@a,http://b":     "http://***@a,http://b",
		"redis://:p@ss@h":           "redis://***@h",
		"me:pw@example.com":         "***@example.com",
		"retriable-header:X=1":      "retriable-header:X=1",
		"u:p@a,http://b":            "***@a,http://b",
		"http://a/b?key=pw":         "http://a/b?***",
	} {
		if got := Mask(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// A reason quotes a part of the value, or repeats the path of a file.
func TestNoProblemShowsAPassword(t *testing.T) {
	for _, setting := range Reference() {
		for _, value := range []string{"http://u:geheim@h", "u:geheim@h", "a, u:geheim@h,http://b", "https://u:ge heim@h:1/p?k=geheim", "http://h?geheim", "http://u:\"geheim@h"} {
			s, problems := Load([]string{minimal, setting.Variable() + "=" + value})
			if problems.Err() == nil {
				_, err := Build(s)
				problems = append(problems, ProblemsOf(err)...)
			}
			for _, p := range problems {
				if strings.Contains(p.String(), "heim") {
					t.Errorf("%s=%s: %s", setting.Variable(), value, p)
				}
			}
		}
	}
}

func TestEffectiveValuesAreMasked(t *testing.T) {
	s := mustLoad(t, "RETRYPROXY_RETRY_ON=retriable-header:X=http://me:geheim@example.com")
	if got := find(nil, s.Default.Values(), "RETRY_ON").Text; !strings.Contains(got, "http://***@example.com") {
		t.Error(got)
	}
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// The mistake is the name of the file, not each of its lines.
func TestYAMLUnderAnotherNameIsOneError(t *testing.T) {
	for _, content := range []string{"upstream: http://a\nretry_on: [5xx]\n", `{"upstream": "http://a",` + "\n" + `"via": "a=b"}`} {
		if got := problemsOf("RETRYPROXY_CONFIG_FILE=" + writeFile(t, content)); len(got) != 1 {
			t.Errorf("%v", got)
		} else {
			wantLines(t, got, "expected lines NAME=VALUE; the name of a YAML file ends in .yaml or .yml")
		}
	}
}

func TestAWaitForNoRateLimit(t *testing.T) {
	wantLines(t, problemsOf(minimal, "RETRYPROXY_RATE_LIMIT_WAIT=2s"), `warning: RETRYPROXY_RATE_LIMIT_WAIT="2s": has no effect: RETRYPROXY_RATE_LIMIT=off limits nothing`)
	wantLines(t, problemsOf(minimal, "RETRYPROXY_RATE_LIMIT_WAIT=2s", "RETRYPROXY_RATE_LIMIT=1/s"))
}

// Sharing is for an upstream that is the same for all processes.
func TestSharingIsForOneUpstream(t *testing.T) {
	const engine = "RETRYPROXY_SHARED=redis://cache"
	wantLines(t, problemsOf("RETRYPROXY_UPSTREAM=http://localhost:3000", engine),
		`RETRYPROXY_SHARED="redis://cache": sharing needs the same upstream for all processes, but each inbound process has its own (http://localhost:3000); if all have the same one, set RETRYPROXY_POSITION=outbound`)
	wantLines(t, problemsOf("RETRYPROXY_UPSTREAM=http://localhost:3000", "RETRYPROXY_POSITION=outbound", engine))
	wantLines(t, problemsOf(minimal, engine+"?password_file=/p&scope=shop"))
}

// Most people need a dozen settings. These are the ones that check prints, and that have an example.
func TestFewSettingsAreUsual(t *testing.T) {
	usual := 0
	for _, s := range Reference() {
		if s.Example != "" {
			usual++
		}
	}
	if usual > 13 {
		t.Errorf("%d usual settings: which of them does hardly anybody need?", usual)
	}
}
