package config

import (
	"slices"
	"strings"
	"testing"
)

// sets has an entry for each unit: a misspelled word and what is suggested for it, or why there is no set
// of words. A closed set makes a misspelled word an error, an open one may make it a warning.
var sets = map[string]struct {
	key            string // of a setting of this unit
	value, meant   string // a value with a mistake, and a part of the suggestion
	warns          bool   // the word is valid, so the problem is only a warning
	none           string // why there are no words
	foreign, known string // a word of another program, and ours
}{
	"addressoff":     {key: "ADMIN_LISTEN", value: "of", meant: "off", foreign: "disabled", known: "off"},
	"address":        {key: "LISTEN", none: "addresses"},
	"autoduration":   {key: "ATTEMPT_TIMEOUT", value: "atuo", meant: "auto", foreign: "automatic", known: "auto"},
	"balance":        {key: "BALANCE", value: "round-robbin", meant: "round-robin", foreign: "leastconn", known: "least-requests"},
	"bool":           {key: "DRY_RUN", value: "ture", meant: "true", foreign: "yes", known: "true"},
	"breakerafter":   {key: "BREAKER_AFTER", value: "aut", meant: "auto", foreign: "default", known: "auto"},
	"breakerbackoff": {key: "BREAKER_BACKOFF", value: "full-jiter", meant: "full-jitter", foreign: "exponential", known: "full-jitter"},
	"breakeron":      {key: "BREAKER_ON", value: "500,conect-failure", meant: "500,connect-failure", foreign: "empty-response", known: "reset"},
	"count":          {key: "MAX_RETRIES", none: "numbers", foreign: "none", known: "0"},
	"duration":       {key: "REQUEST_TIMEOUT", none: "durations", foreign: "30", known: "30s"},
	"engine":         {key: "SHARED", none: "an address", foreign: "valkey://cache:6379", known: "redis://cache:6379"},
	"errorcodes":     {key: "FATAL_ERROR_CODES", value: "insuficient_quota", meant: "insufficient_quota", warns: true, foreign: "off", known: "none"},
	"fallback":       {key: "FALLBACK", value: "nonee", meant: "none", foreign: "off", known: "none"},
	"header":         {key: "ROUTE_A_HEADER", value: "Authorisation", meant: "Authorization", warns: true, foreign: "X-Tenant:acme", known: "X-Tenant=acme"},
	"headernames":    {key: "REQUEST_HEADERS_REMOVE", value: "Cookei", meant: "Cookie", warns: true},
	"headers":        {key: "RESPONSE_HEADERS_SET", value: "Cache-Controll: no-store", meant: "Cache-Control", warns: true},
	"hedge":          {key: "HEDGE_AFTER", value: "of", meant: "off", foreign: "95%", known: "p95"},
	"host":           {key: "UPSTREAM_HOST", value: "perserve", meant: "preserve", warns: true, foreign: "passthrough", known: "preserve"},
	"hostpattern":    {key: "ROUTE_A_HOST", none: "any host may be meant", foreign: "https://shop.example.com/", known: "shop.example.com"},
	"limit":          {key: "CONCURRENCY_LIMIT", value: "adaptiv", meant: "adaptive", foreign: "unlimited", known: "off"},
	"methods":        {key: "ROUTE_A_METHODS", value: "GET,DELTE", meant: "DELETE", warns: true, foreign: "ALL", known: "leave it out"},
	"methodset":      {key: "RETRY_METHODS", value: "GET,PATHC", meant: "PATCH", warns: true, foreign: "*", known: "any"},
	"models":         {key: "ROUTE_A_MODEL", none: "any model may be meant", foreign: "*", known: "leave it out"},
	"number":         {key: "BUDGET_MIN_PER_SECOND", none: "numbers", foreign: "0,5", known: "0.5"},
	"path":           {key: "TLS_CERT", none: "files"},
	"pathpattern":    {key: "ROUTE_A_PATH", none: "any path may be meant", foreign: "/users/:id", known: "*"},
	"pathprefix":     {key: "ROUTE_A_STRIP_PREFIX", none: "any path may be meant"},
	"pausekey":       {key: "RATE_LIMIT_PAUSE_KEY", value: "rout", meant: "route", foreign: "Authorization", known: "header:Authorization"},
	"prefixes":       {key: "TRUSTED_PROXIES", none: "addresses", foreign: "private", known: "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16"},
	"probepath":      {key: "HEALTH_PATH", value: "of", meant: "off", foreign: "none", known: "off"},
	"ratelimit":      {key: "RATE_LIMIT", value: "atuo", meant: "auto", foreign: "100r/s", known: "100/s"},
	"ratelimitkey":   {key: "RATE_LIMIT_KEY", value: "upsteam", meant: "upstream", foreign: "JSON:model", known: "json:model"},
	"ratio":          {key: "BUDGET_RATIO", value: "of", meant: "off", foreign: "unlimited", known: "off"},
	"retryon":        {key: "RETRY_ON", value: "5xx,gatway-error", meant: "5xx,gateway-error", foreign: "conn-failure", known: "connect-failure"},
	"routes":         {key: "ROUTES", none: "any name may be meant", foreign: "user_api", known: "user-api"},
	"size":           {key: "RETRY_BUFFER_BYTES", none: "numbers", foreign: "1.5MiB", known: "1536KiB"},
	"statusset":      {key: "RETRY_REJECTED", value: "nonne", meant: "none", foreign: "5xx", known: "500-599"},
	"strategy":       {key: "BACKOFF", value: "ful-jitter", meant: "full-jitter", foreign: "exponential", known: "full-jitter"},
	"tokenlimit":     {key: "TOKEN_LIMIT", value: "of", meant: "off", foreign: "200000 tokens per minute", known: "200000/m"},
	"upstream":       {key: "UPSTREAM", none: "addresses", foreign: "21001", known: "http://localhost:21001"},
	"word":           {key: "BREAKER", value: "queu", meant: "queue", foreign: "on", known: "queue"},
}

// inRoute returns an environment with one setting, and a route a if the setting is one of it.
func inRoute(key, value string) []string {
	environ := []string{Prefix + key + "=" + value}
	if key != "UPSTREAM" {
		environ = append(environ, minimal)
	}
	if strings.HasPrefix(key, "ROUTE_A_") {
		environ = append(environ, "RETRYPROXY_ROUTES=a")
		if key != "ROUTE_A_PATH" {
			environ = append(environ, "RETRYPROXY_ROUTE_A_PATH=/a/*")
		}
	}
	return environ
}

func TestEverySetOfWordsHasSuggestions(t *testing.T) {
	for _, s := range Reference() {
		if _, named := sets[s.Unit]; !named {
			t.Errorf("%s: the unit %s is not in the table: which words does it have, or why none?", s.Key, s.Unit)
		}
	}
	for unit, set := range sets {
		s := globalKeys()[set.key]
		if key, matcher := strings.CutPrefix(set.key, "ROUTE_A_"); matcher {
			s = routeKeys()[key]
		}
		if s.Unit != unit {
			t.Errorf("%s is not a setting of the unit %s", set.key, unit)
		}
		if hasWords := len(s.words()) > 0; (set.none != "") == (hasWords || set.value != "") {
			t.Errorf("%s: the words %q, but the table says %+v", unit, s.words(), set)
		}
		check := func(value, want string, warns bool) {
			got := problemsOf(inRoute(set.key, value)...)
			if len(got) == 0 || !strings.Contains(got[0], want) || !strings.Contains(got[0], set.key) || warns != strings.HasPrefix(got[0], "warning: ") {
				t.Errorf("%s=%s: got %q, want one about %s", set.key, value, got, want)
			}
		}
		if set.value != "" {
			check(set.value, set.meant+"?", set.warns)
		}
		if set.foreign != "" {
			check(set.foreign, set.known, slices.Contains([]string{"host", "pathpattern", "models", "errorcodes"}, unit))
		}
	}
}

// Each word with a letter too many is taken for what it is.
func TestEveryWordIsSuggested(t *testing.T) {
	for _, s := range Reference() {
		if _, open := openSets[s.Unit]; open && s.Unit != "retryon" || s.Scope == ScopeMatcher {
			continue // such a word may be valid
		}
		for _, word := range s.words() {
			if len(word) < 4 {
				continue
			}
			misspelled := word[:2] + "x" + word[2:]
			if got := s.repair(misspelled); !s.allows(got) || got == misspelled {
				t.Errorf("%s=%s: suggested %q", s.Key, misspelled, got)
			}
		}
	}
}

// Whatever surrounds a value is diagnosed the same way for every setting.
func TestWhatSurroundsAValueIsDiagnosed(t *testing.T) {
	values := map[string]string{"LISTEN": ":8000", "UPSTREAM": "http://app:3000", "RETRY_ON": "5xx,429", "MAX_RETRIES": "2", "REQUEST_TIMEOUT": "20s",
		"RETRY_METHODS": "GET,HEAD", "BUDGET_RATIO": "0.3", "BREAKER": "queue", "BACKOFF": "fixed", "TLS_CERT": "/tls/tls.crt", "RETRY_BUFFER_BYTES": "64KiB",
		"TRUSTED_PROXIES": "10.0.0.0/8", "HEALTH_PATH": "/healthz", "UPSTREAM_HOST": "preserve", "DRY_RUN": "true", "RATE_LIMIT": "100/s",
		"ROUTE_A_PATH": "/b/*", "ROUTE_A_HEADER": "X-Tenant=acme", "ROUTE_A_METHODS": "GET", "SHARED": "redis://cache", "CONCURRENCY_LIMIT": "10", "POSITION": "outbound"}
	for key, value := range values {
		for _, around := range []string{`"` + value + `"`, "'" + value + "'", "“" + value + "”", "`" + value + "`", `\"` + value + `\"`} {
			got := problemsOf(inRoute(key, around)...)
			if len(got) == 0 || !strings.Contains(got[0], "the quotes are part of the value") || !strings.Contains(got[0], "did you mean "+value+"?") || strings.HasPrefix(got[0], "warning") {
				t.Errorf("%s=%s: %q", key, around, got)
			}
		}
		if key == "TLS_CERT" || key == "UPSTREAM_HOST" || key == "ROUTE_A_HEADER" || key == "HEALTH_PATH" {
			continue // what follows may be part of it
		}
		for _, around := range []string{value + " # a comment", "RETRYPROXY_" + key + "=" + value, value + ";"} {
			got := problemsOf(inRoute(key, around)...)
			if len(got) == 0 || !strings.Contains(got[0], "did you mean "+value+"?") {
				t.Errorf("%s=%s: %q", key, around, got)
			}
		}
	}
}

func TestWhatPeopleWrite(t *testing.T) {
	for entry, want := range map[string]string{
		"UPSTREAM=:3000":                     "did you mean http://localhost:3000?",
		"UPSTREAM=http://app:300O":           "a letter stands among the digits; did you mean http://app:3000?",
		"UPSTREAM=http://app;3000":           "a colon separates the host from the port; did you mean http://app:3000?",
		"UPSTREAM=http://::1:3000":           "did you mean http://[::1]:3000?",
		"UPSTREAM=::1":                       "did you mean http://[::1]?",
		"UPSTREAM=http://app:3000/api/*":     "did you mean http://app:3000/api?",
		"LISTEN=::1:8080":                    "did you mean [::1]:8080?",
		"LISTEN=:::80":                       "did you mean [::]:80?",
		"ADMIN_LISTEN=localhost":             "did you mean localhost:9797?",
		"ADMIN_LISTEN=10.1.2.15":             "did you mean 10.1.2.15:9797?",
		"LISTEN=10.1.2.15":                   "did you mean 10.1.2.15:8080?",
		"RATE_LIMIT=1,000/s":                 "did you mean 1000/s?",
		"TOKEN_LIMIT=200,000/m":              "did you mean 200000/m?",
		"RATE_LIMIT=0,5/s":                   "did you mean 30/m?",
		"BACKOFF=fixed:base=100":             "did you mean fixed:base=100ms?",
		"FALLBACK=503, http://backup:3000":   "did you mean http://backup:3000,503:Service Unavailable?",
		"BREAKER_ON=true":                    "did you mean auto?",
		"BREAKER_ON=4xx":                     "what clients do wrong is no evidence",
		"MAX_RETRIES=unlimited":              "did you mean 100?",
		"RETRY_BUFFER_BYTES=unlimited":       "name the size of the largest body that is kept",
		"UPSTREAM_HOST=Preserve":             "did you mean preserve?",
		"RETRY_ON=!5xx":                      "only statuses and ranges can be excluded, such as !500-599",
		"LISTEN=none":                        "clients need this listener",
		"RETRY_ON=true":                      "did you mean 5xx,429,connect-failure,reset,attempt-timeout?",
		"RETRY_ON=4xx":                       "did you mean 408,425,429?",
		"RETRY_ON=504-500":                   "did you mean 500-504?",
		"RETRY_ON=500-":                      "did you mean 500-599?",
		"REQUEST_TIMEOUT=30000":              "did you mean 30s?",
		"REQUEST_TIMEOUT=60":                 "did you mean 60s?",
		"REQUEST_TIMEOUT=500":                "did you mean 500s or 500ms?",
		"REQUEST_TIMEOUT=1000":               "did you mean 1s or 1000s?",
		"DRAIN_DELAY=5000":                   "did you mean 5s?",
		"BACKOFF_BASE=100":                   "did you mean 100ms?",
		"BACKOFF_BASE=1":                     "did you mean 1s?",
		"ATTEMPT_TIMEOUT=off":                "did you mean 0?",
		"BACKOFF=full-jitter,base=1s":        "did you mean full-jitter:base=1s?",
		"BACKOFF=fixed:bse=1s":               "did you mean fixed:base=1s?",
		"BACKOFF=fixed:base=1":               "did you mean fixed:base=1s?",
		"BREAKER_BACKOFF=exp":                "did you mean full-jitter?",
		"HEALTH_PATH=true":                   "did you mean /healthz?",
		"FALLBACK=503":                       "did you mean 503:Service Unavailable?",
		"FALLBACK=503,busy":                  "did you mean 503:busy?",
		"SHARED=redis:6379":                  "did you mean redis://redis:6379?",
		"RATE_LIMIT=0.5/s":                   "did you mean 30/m?",
		"TOKEN_LIMIT=200k/m":                 "did you mean 200000/m?",
		"RATE_LIMIT_KEY=ip":                  "the client's address cannot be the key",
		"RATE_LIMIT_KEY=header":              "name the header, such as header:X-Tenant",
		"RATE_LIMIT_KEY=none":                "did you mean upstream?",
		"UPSTREAM=http//app:3000":            "did you mean http://app:3000?",
		"UPSTREAM=http:/app:3000":            "did you mean http://app:3000?",
		"UPSTREAM=//app:3000":                "did you mean http://app:3000?",
		"UPSTREAM=tcp://app:3000":            "did you mean http://app:3000?",
		"UPSTREAM=htp://app:3000":            "did you mean http://app:3000?",
		"UPSTREAM=htpps://api.example.com":   "did you mean https://api.example.com?",
		"UPSTREAM=grpc://app:50051":          "did you mean h2c://app:50051?",
		"UPSTREAM=/run/app.sock":             "did you mean unix:/run/app.sock?",
		"UPSTREAM=http://a:1 http://b:2":     "commas separate the entries; did you mean http://a:1,http://b:2?",
		"UPSTREAM=http://a:1;http://b:2":     "did you mean http://a:1,http://b:2?",
		"UPSTREAM=${APP_URL}":                "nothing has replaced ${APP_URL} by a value",
		"UPSTREAM={{ .Values.upstream }}":    "nothing has replaced {{ .Values.upstream }} by a value",
		"LISTEN=21480":                       "did you mean :21480?",
		"LISTEN=*:80":                        "did you mean :80?",
		"LISTEN=http://localhost:80":         "did you mean localhost:80?",
		"LISTEN=8080:80":                     "did you mean :8080?",
		"LISTEN=/run/in.sock":                "did you mean unix:/run/in.sock?",
		"ADMIN_LISTEN=false":                 "did you mean off?",
		"RETRY_ON=5xx 429":                   "did you mean 5xx,429?",
		"RETRY_ON=[\"5xx\", \"429\"]":        "a list has no brackets; did you mean 5xx,429?",
		"RETRY_ON=5XX":                       "did you mean 5xx?",
		"RETRY_ON=http_503":                  "did you mean 503?",
		"RETRY_ON=500–504":                   "did you mean 500-504?",
		"RETRY_ON=UNAVAILABLE":               "did you mean grpc-unavailable?",
		"RETRY_ON=5xx,empty-response":        "did you mean 5xx,reset?",
		"RETRY_ON=junk-response":             "did you mean reset?",
		"RETRY_ON=response-timeout":          "did you mean attempt-timeout?",
		"RETRY_ON=error,timeout":             "did you mean connect-failure,reset,attempt-timeout?",
		"RETRY_ON=non_idempotent":            "RETRYPROXY_RETRY_METHODS",
		"RETRY_METHODS=GET POST":             "did you mean GET,POST?",
		"RETRY_METHODS=ALL":                  `"ALL" is a method that no client sends; did you mean any?`,
		"RETRY_METHODS=idempotent":           "did you mean GET,HEAD,OPTIONS,TRACE,PUT,DELETE?",
		"RETRY_METHODS=safe":                 "did you mean GET,HEAD,OPTIONS,TRACE?",
		"RETRY_METHODS=!POST":                "no method can be excluded; list those that are retried",
		"RETRY_ON=network":                   "did you mean connect-failure,reset?",
		"RETRY_ON=empty-response,eof,503":    "did you mean reset,503?",
		"BACKOFF=500ms":                      "did you mean fixed:base=500ms?",
		"HEDGE_AFTER=true":                   "did you mean p95?",
		"ACCESS_LOG=/dev/stdout":             "did you mean true?",
		"ACCESS_LOG=combined":                "docs/reference/logs.md turns it into the Common Log Format",
		"QUEUE_TIMEOUT=0":                    "RETRYPROXY_BREAKER=fail-fast",
		"QUEUE_MAX=off":                      "RETRYPROXY_BREAKER=fail-fast",
		"RETRY_METHODS=GET,*":                "did you mean any?",
		"REQUEST_TIMEOUT=30":                 "did you mean 30s?",
		"REQUEST_TIMEOUT=5 sec":              "did you mean 5s?",
		"REQUEST_TIMEOUT=PT30S":              "did you mean 30s?",
		"REQUEST_TIMEOUT=1 minute":           "did you mean 1m?",
		"RETRY_BUFFER_BYTES=1M":              "did you mean 1MiB?",
		"MAX_RETRIES=three":                  "expected a whole number, from 0 to 100",
		"BUDGET_RATIO=20":                    "did you mean 20%?",
		"BUDGET_RATIO=0,2":                   "did you mean 0.2?",
		"RATE_LIMIT=600rpm":                  "did you mean 600/m?",
		"BACKOFF=linear":                     "did you mean additive?",
		"BACKOFF=constant:base=1s":           "did you mean fixed:base=1s?",
		"BALANCE=ip_hash":                    "hash:Name",
		"BALANCE=hash":                       "requests are spread by a header: hash:Name",
		"POSITION=sidecar":                   "did you mean inbound?",
		"PROFILE=openai":                     "did you mean llm?",
		"PROFILE=llm-api":                    "did you mean llm?",
		"PROFILE=rest-api":                   "did you mean interactive?",
		"PROFILE=batch_job":                  "did you mean batch?",
		"HEDGE_AFTER=100":                    "did you mean 100ms?",
		"HEDGE_AFTER=95":                     "did you mean p95?",
		"HEDGE_AFTER=0.5":                    "did you mean 0.5s?",
		"RETRY_ON=429-":                      "did you mean 429?",
		"RETRY_ON=500+":                      "did you mean 500-599?",
		"RATE_LIMIT_PAUSE_KEY=upstream":      "did you mean route?",
		"RATE_LIMIT_PAUSE_KEY=X-Tenant Id":   "did you mean header:X-Tenant-Id?",
		"RATE_LIMIT_KEY=header:X-Tenant Id":  "did you mean header:X-Tenant-Id?",
		"BALANCE=hash:X-User Id":             "did you mean hash:X-User-Id?",
		"BALANCE=hash: X-User":               "did you mean hash:X-User?",
		"ADMIN_LISTEN=true":                  "did you mean :9797?",
		"LISTEN=on":                          "did you mean :8080?",
		"REQUEST_TIMEOUT=1m30":               "did you mean 1m30s?",
		"REQUEST_TIMEOUT=1h30":               "did you mean 1h30m?",
		"REQUEST_TIMEOUT=1e6":                "expected a duration with its unit",
		"BACKOFF_BASE=1e6":                   "expected a duration with its unit",
		"RETRY_BUFFER_BYTES=1e6":             "did you mean 1000000?",
		"RETRY_BUFFER_BYTES=65_536":          "did you mean 64KiB?",
		"QUEUE_ORDER=new":                    "did you mean newest?",
		"QUEUE_ORDER=old":                    "did you mean oldest?",
		"SHARED=localhost:6379":              "did you mean redis://localhost:6379?",
		"TRUSTED_PROXIES=10.0.0.0/255.0.0.0": "did you mean 10.0.0.0/8?",
		"TRUSTED_PROXIES=10.*":               "did you mean 10.0.0.0/8?",
		"ROUTE_A_HEADER=X-Tenant: acme":      "did you mean X-Tenant=acme?",
		"ROUTE_A_PATH=api":                   "did you mean /api?",
		"ROUTE_A_PATH=/api*":                 "did you mean /api/*?",
		"ROUTE_A_PATH=/api/**":               "did you mean /api/*?",
		"ROUTE_A_PATH=^/api/.*":              "did you mean /api/*?",
		"ROUTE_A_PATH=/users/{id}/orders":    "did you mean /users/*/orders?",
		"ROUTE_A_PATH=http://h/api/*":        "did you mean /api/*?",
		"ROUTE_A_HOST=.example.com":          "did you mean example.com,*.example.com?",
		"ROUTE_A_HOST=*":                     "without HOST the route matches every host",
	} {
		key, value, _ := strings.Cut(entry, "=")
		got := problemsOf(inRoute(key, value)...)
		if len(got) == 0 || !strings.Contains(got[0], want) || strings.HasPrefix(got[0], "warning") {
			t.Errorf("%s: got %q, want one with %q", entry, got, want)
		}
	}
}

// An error quotes what somebody set; a default is named as one.
func TestNoErrorQuotesWhatNobodySet(t *testing.T) {
	file := writeFile(t, "")
	s := mustLoad(t, "RETRYPROXY_TLS_CERT="+file)
	_, err := Build(s)
	got := ProblemsOf(err)
	if len(got) != 1 || got[0].Value != file {
		t.Errorf("%+v, want the value %s", got, file)
	}
	if lines := problemsOf(minimal, "RETRYPROXY_TLS_MIN_VERSION=1.1"); len(lines) != 1 || !strings.HasPrefix(lines[0], `RETRYPROXY_TLS_MIN_VERSION="1.1"`) {
		t.Errorf("%q, want one error with 1.1", lines)
	}
	lines := problemsOf(minimal, "RETRYPROXY_MAX_RETRIES=12")
	wantLines(t, lines, "warning: RETRYPROXY_REQUEST_TIMEOUT (default 30s): the waits before 12 retries")
}

func TestNamesThatPeopleTry(t *testing.T) {
	for name, want := range map[string]string{
		"TLS_CERT_FILE":        "did you mean RETRYPROXY_TLS_CERT?",
		"TLS":                  "TLS to the upstream is the scheme of RETRYPROXY_UPSTREAM=https://app:3000",
		"TLS_CA":               "RETRYPROXY_UPSTREAM_CA (for an https upstream)",
		"PROXY_PROTOCOL":       "RETRYPROXY_PROXY_PROTOCOL_FROM names the peers",
		"ADMIN_TOKEN":          "RETRYPROXY_ADMIN_TOKEN_FILE",
		"BURST":                "attempts are spread evenly",
		"MAX_INFLIGHT":         "RETRYPROXY_CONCURRENCY_LIMIT=100",
		"TLS_KEY_PATH":         "did you mean RETRYPROXY_TLS_KEY?",
		"INSECURE_SKIP_VERIFY": "certificates are always verified; for a private CA set RETRYPROXY_UPSTREAM_CA=FILE",
		"max_retries":          "names are in upper case with underscores; did you mean RETRYPROXY_MAX_RETRIES?",
		"Max-Retries":          "did you mean RETRYPROXY_MAX_RETRIES?",
		"HEADER":               "can only be set for a route: RETRYPROXY_ROUTES=NAME and RETRYPROXY_ROUTE_<NAME>_HEADER",
		"ROUTES_SEARCH_PATH":   "did you mean RETRYPROXY_ROUTE_SEARCH_PATH?",
		"ROUTE_TIMEOUT":        "did you mean RETRYPROXY_REQUEST_TIMEOUT (a request with all its retries)?",
		"ROUTE_SEARCH":         "did you mean RETRYPROXY_ROUTE_SEARCH_PATH?",
		"STRATEGY":             "did you mean RETRYPROXY_BACKOFF=full-jitter?",
		"PROXY_READ_TIMEOUT":   "RETRYPROXY_ATTEMPT_TIMEOUT (one attempt)",
		"PROXY_PASS":           "RETRYPROXY_UPSTREAM=http://localhost:3000",
		"NUM_RETRIES":          "RETRYPROXY_MAX_RETRIES",
		"ROUTE_SEARCH_PATH":    `RETRYPROXY_ROUTES does not name a route "search"; did you mean RETRYPROXY_ROUTES=search?`,
	} {
		wantLines(t, problemsOf(minimal, "RETRYPROXY_"+name+"=x"), want)
	}
}

// What is usual gets no warning.
func TestUsualWordsGetNoWarning(t *testing.T) {
	for _, environ := range [][]string{
		{"RETRYPROXY_RETRY_METHODS=GET,PROPFIND,PURGE,M-SEARCH,QUERY"}, {"RETRYPROXY_UPSTREAM_HOST=backend.internal"}, {"RETRYPROXY_UPSTREAM_HOST=app:80"},
		{"RETRYPROXY_REQUEST_HEADERS_SET=X-Env: prod, X-Team: shop"}, {"RETRYPROXY_FATAL_ERROR_CODES=quota_gone,!insufficient_quota"},
		{"RETRYPROXY_RATE_LIMIT=9/s", "RETRYPROXY_RATE_LIMIT_KEY=header:X-Customer"},
	} {
		wantLines(t, slices.DeleteFunc(problemsOf(append(environ, minimal)...), func(line string) bool { return strings.Contains(line, "after it was sent") }))
	}
}

func TestThePortOfTheOtherSchemeIsNoticed(t *testing.T) {
	wantLines(t, problemsOf("RETRYPROXY_UPSTREAM=http://api.example.com:443"), "warning: RETRYPROXY_UPSTREAM=\"http://api.example.com:443\": port 443 is the port of https; did you mean https://api.example.com?")
	wantLines(t, problemsOf("RETRYPROXY_UPSTREAM=https://api.example.com:80"), "port 80 is the port of http; did you mean http://api.example.com?")
}

func TestAnUpstreamWithoutThePrefixIsNamed(t *testing.T) {
	wantLines(t, problemsOf("UPSTREAM=http://localhost:3000"), "RETRYPROXY_UPSTREAM: must be set, for example to http://localhost:3000 or https://api.example.com; UPSTREAM without RETRYPROXY_ is ignored")
	wantLines(t, problemsOf("UPSTREAM=http://localhost:3000", minimal))
}
