package config

import (
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
)

// words returns the words that the setting understands, for the search for a misspelled one.
func (s *Setting) words() []string {
	if len(s.OneOf) > 0 {
		return s.OneOf
	}
	switch s.Unit {
	case "strategy":
		return backoff.Strategies()
	case "breakerbackoff":
		return append(slices.DeleteFunc(backoff.Strategies(), func(name string) bool { return name == "none" }), autoWord)
	case "retryon":
		return policy.RetryOnWords()
	}
	return vocabulary[s.Unit]
}

// vocabulary has the words of each unit that has some; those of the others come from elsewhere.
var vocabulary = map[string][]string{
	"addressoff":   {"off"},
	"breakeron":    append(slices.Clone(breakerOnWords), autoWord),
	"breakerafter": {autoWord},
	"autoduration": {autoWord},
	"balance":      {leastRequests, roundRobin},
	"bool":         {"true", "false"},
	"pausekey":     {"none", "route", modelKey},
	"errorcodes":   {"none"},
	"fallback":     {"none"},
	"headernames":  {"none"},
	"hedge":        {"off"},
	"host":         {"auto", "preserve", "upstream"},
	"methods":      methodNames,
	"methodset":    append(slices.Clone(methodNames), anyMethod, anyMethodWithKey, "none"),
	"statusset":    {"none"},
	"probepath":    {"off"},
	"ratelimit":    {autoWord, "off"},
	"ratelimitkey": {"upstream", "route", modelKey},
	"limit":        {"adaptive", "off"},
	"ratio":        {"off"},
	"tokenlimit":   {"off"},
}

// methodNames are the methods of IANA's registry, and those that caches and UPnP use.
var methodNames = strings.Fields("GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH QUERY" +
	" ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT COPY LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE" +
	" ORDERPATCH PRI PROPFIND PROPPATCH REBIND REPORT SEARCH UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL" +
	" PURGE BAN REFRESH M-SEARCH NOTIFY SUBSCRIBE UNSUBSCRIBE SOURCE")

// translation is a word that people know from another program, or expect.
type translation struct {
	words string // separated by spaces
	ours  string // what it is here, with commas if it is several; "" if there is nothing like it
	note  string // why not, if ours is ""
}

// The words for nothing, for everything and for a usual value differ from program to program. A setting
// that has one of ours may get another.
var (
	nothingWords = "none off no false disabled disable never nothing 0 null nil empty deny unlimited infinite infinity -1"
	allWords     = "any all * every everything always yes true on"
	usualWords   = "auto automatic default dynamic on true yes enabled enable"
)

// foreign has the words of other programs, by the unit or the key of a setting.
var foreign = map[string][]translation{
	"retryon": {
		{"conn-failure conn-fail connection-failure connection-error connection-refused connrefused retry-connrefused connect-error econnrefused refused dial", "connect-failure", ""},
		{"empty-response junk-response invalid-header connection-reset econnreset conn-reset reset-after-headers read-error closed eof", "reset", ""},
		{"error network network-error connection socket-error transport-error", "connect-failure,reset", ""}, // error: nginx
		{"response-timeout timeout timeouts per-try-timeout read-timeout", "attempt-timeout", ""},
		{"all-retryable-errors all-retriable-errors all retry-all-errors all-errors default * true on yes enabled auto", "5xx,429,connect-failure,reset,attempt-timeout", ""},
		{"server-error server-errors 5** 5.. >=500 50x http-5xx", "5xx", ""},
		{"4xx 4** 4..", "408,425,429", ""},
		{"bad-gateway", "502", ""}, {"service-unavailable", "503", ""}, {"gateway-timeout", "504", ""}, {"internal-server-error", "500", ""},
		{"too-many-requests ratelimited throttled", "429", ""},
		{"gateway-errors", "gateway-error", ""},
		{"!5xx !gateway-error", "", "only statuses and ranges can be excluded, such as !500-599"},
		{"non-idempotent", "", "methods are in " + Prefix + "RETRY_METHODS, where any is every method"},
		{"idempotent", "", "idempotent methods are retried by default (" + Prefix + "RETRY_METHODS)"},
		{"0rtt-rejected", "", "no early data is sent, so it cannot be rejected; leave it out"},
		{"retriable-status-codes", "", "list the statuses themselves, such as 503"},
		{"retriable-headers retriable-header", "", "name the header, as in retriable-header:X-Retry"},
		{"http3-post-connect-failure", "", "no upstream is reached by HTTP/3, so leave it out"},
	},
	"breakeron": {
		{usualWords + " all *", autoWord, ""},
		{"4xx 4** 4..", "", "what clients do wrong is no evidence; list single statuses"},
	},
	"methodset": {
		{allWords, anyMethod, ""},
		{"idempotent default", "GET,HEAD,OPTIONS,TRACE,PUT,DELETE", ""},
		{"safe read read-only", "GET,HEAD,OPTIONS,TRACE", ""},
		{"!get !head !options !trace !put !delete !post !patch", "", "no method can be excluded; list those that are retried"},
		{"non-idempotent non_idempotent unsafe", anyMethod, ""},
		{"key idempotency-key with-key", anyMethodWithKey, ""},
	},
	"methods": {{allWords, "", "without METHODS the route matches every method; leave it out"}},
	"strategy": {
		{"exponential expo exp exponential-backoff exponential-jitter jitter random exponential-full-jitter backoff", "full-jitter", ""},
		{"exponential-equal-jitter half-jitter", "equal-jitter", ""},
		{"exponential-decorrelated-jitter decorrelated-jitter", "decorrelated", ""},
		{"constant static flat regular simple", "fixed", ""},
		{"linear arithmetic incremental", "additive", ""},
		{"randomized randomization-factor exponential-random uniform", "proportional", ""},
		{"beb ethernet binary-exponential csma", "slots", ""},
		{"fibonacci", "normal:factor=1.6", ""},
		{"immediate immediately instant", "none", ""},
	},
	"balance": {
		{"least-conn leastconn least-request least-connections least p2c random ewma peak-ewma", leastRequests, ""},
		{"rr roundrobin static-rr wrr weighted-round-robin robin", roundRobin, ""},
		{"ip-hash source ring-hash maglev consistent-hash hash header uri", "", "requests are spread by a header: hash:Name"},
		{"first sticky cookie", "", "requests with the same value of a header go to the same endpoint: hash:Name"},
	},
	"host": {
		{"$host $http-host client keep pass passthrough pass-through original origin incoming true on", "preserve", ""},
		{"$proxy-host target backend rewrite upstream-host change server false off", "upstream", ""},
		{"default automatic", "auto", ""},
	},
	"prefixes": {
		{"localhost loopback", "127.0.0.0/8,::1", ""},
		{"private private-ranges rfc1918 internal", "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16", ""},
		{"docker", "172.16.0.0/12", ""},
		{"* any all everyone 0.0.0.0", "0.0.0.0/0,::/0", ""},
	},
	"address":    {{nothingWords, "", "clients need this listener"}, {usualWords, ":8080", ""}},
	"addressoff": {{usualWords, ":9797", ""}},
	"probepath":  {{"true on yes enabled enable auto default", "/healthz", ""}},
	"ratelimitkey": {
		{nothingWords, "upstream", ""},
		{"ip client-ip clientip remote-addr client $remote-addr $binary-remote-addr address source", "", "the client's address cannot be the key; use a header that names the client, such as header:X-Tenant"},
		{"header headers", "", "name the header, such as header:X-Tenant"},
	},
	"pausekey": {
		{"header headers", "", "name the header, such as header:X-Tenant"},
		{"upstream global all shared service " + usualWords, "route", ""},
	},
	"hedge":              {{usualWords, "p95", ""}},
	"limit":              {{"auto automatic dynamic on true learned gradient", "adaptive", ""}},
	"breakerafter":       {{usualWords, autoWord, ""}},
	"hostpattern":        {{"* any all _", "", "without HOST the route matches every host; leave it out"}},
	"pathpattern":        {{"* any all **", "/*", ""}},
	"models":             {{"* any all", "", "without MODEL the route matches every model; leave it out"}},
	"MAX_RETRIES":        {{"unlimited infinite infinity -1", "100", ""}},
	"RETRY_BUFFER_BYTES": {{"unlimited infinite infinity -1", "", "name the size of the largest body that is kept, such as 64MiB"}},
	"BREAKER": {
		{"on true yes enabled enable auto default wait hold pause", "queue", ""},
		{"fail reject failfast 503 open", "fail-fast", ""},
	},
	"POSITION": {
		{"sidecar ingress server reverse reverse-proxy in", "inbound", ""},
		{"egress client forward forward-proxy out gateway", "outbound", ""},
	},
	"PROFILE": {
		{"default standard normal web api service rest http rest-api web-api", "interactive", ""},
		{"bulk background job jobs worker batch-job batch-jobs cron offline async", "batch", ""},
		{"ai openai anthropic gpt claude gemini model llms llm-api ai-api openai-api chat", "llm", ""},
	},
	"ACCESS_LOG": {
		{"stdout stderr /dev/stdout /dev/stderr - json", "true", ""},
		{"combined common clf", "", "true writes a line of JSON for each request; docs/reference/logs.md turns it into the Common Log Format"},
	},
	"QUEUE_TIMEOUT":   {{nothingWords, "", "with " + Prefix + "BREAKER=fail-fast no request is queued while the circuit breaker is open"}},
	"QUEUE_MAX":       {{nothingWords, "", "with " + Prefix + "BREAKER=fail-fast no request is queued while the circuit breaker is open"}},
	"LOG_LEVEL":       {{"debug trace verbose all notice default", "info", ""}, {"warning", "warn", ""}, {"critical fatal off none quiet", "error", ""}},
	"TLS_MIN_VERSION": {{"tls1.2 tlsv1.2 12 tls12 tlsv1-2 1-2 1.0 1.1 tlsv1 tlsv1.1 tls1.1 tls1.0", "1.2", ""}, {"tls1.3 tlsv1.3 13 tls13 tlsv1-3 1-3", "1.3", ""}},
	"LAYERED_RETRIES": {{"yes true on all full", "allow", ""}, {"half auto default", "halve", ""}},
	"QUEUE_ORDER":     {{"lifo adaptive-lifo last stack new recent latest", "newest", ""}, {"fifo first queue old earliest fair", "oldest", ""}},
}

// translations returns the words of the setting that stand for a word of another program, the most
// likely first.
func (s *Setting) translations(value string) (list []string) {
	name, options, _ := strings.Cut(value, ":") // a strategy has options
	if t := s.translation(value); t.ours != "" {
		list = append(list, t.ours)
	}
	if t := s.translation(name); t.ours != "" && options != "" {
		list = append(list, t.ours+":"+options)
	}
	word, words := fold(value), s.words()
	for _, group := range []struct{ theirs, ours string }{{nothingWords, "off none false deny"}, {allWords, "true any"}, {usualWords, "auto true"}} {
		for each := range strings.FieldsSeq(group.ours) {
			if isOneOf(word, group.theirs) && slices.Contains(words, each) {
				list = append(list, each)
			}
		}
	}
	if isOneOf(word, nothingWords) && (len(words) == 0 || s.Unit == "autoduration") {
		list = append(list, "0", "0s")
	}
	for _, ours := range words {
		if fold(ours) == word {
			list = append(list, ours)
		}
	}
	return list
}

// translation returns the entry for a word; the zero value if there is none.
func (s *Setting) translation(word string) translation {
	word = fold(word)
	for _, t := range slices.Concat(foreign[s.Key], foreign[s.Unit]) {
		if isOneOf(word, t.words) {
			return t
		}
	}
	if s.Unit == "breakerbackoff" && word != "" {
		return (&Setting{Unit: "strategy"}).translation(word)
	}
	if s.Unit == "breakeron" && word != "" {
		return (&Setting{Unit: "retryon"}).translation(word)
	}
	return translation{}
}

// note returns why there is nothing like a word of another program that the value contains, or "".
func (s *Setting) note(value string) string {
	for _, word := range append(splitList(value), value) {
		if t := s.translation(word); t.note != "" {
			return t.note
		}
	}
	return ""
}

// fold returns a word without case, hyphens and underscores.
func fold(word string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(word))
}

// isOneOf reports whether a folded word is one of those in a list with spaces.
func isOneOf(folded, list string) bool {
	if folded == "" {
		return false
	}
	for each := range strings.FieldsSeq(list) {
		if fold(each) == folded {
			return true
		}
	}
	return false
}
