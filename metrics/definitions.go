package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// namespace is the prefix of the name of every metric of ours.
const namespace = "retryproxy_"

// family is a metric with its documentation. Families do not change after package
// initialisation.
type family struct {
	name     string // with the namespace
	kind     Kind
	labels   []string
	help     string // what it counts
	question string // the question that it answers for an operator
	desc     *prometheus.Desc
}

// families holds all metrics of ours, in the order of the definitions below.
var families []*family

// Kind is the type of a metric.
type Kind uint8

// The kinds.
const (
	Counter Kind = iota
	Gauge
	Histogram
)

// String returns the type's name in the exposition format.
func (k Kind) String() string {
	return [...]string{"counter", "gauge", "histogram"}[k]
}

func define(k Kind, name string, labels []string, help, question string) *family {
	f := &family{name: namespace + name, kind: k, labels: labels, help: help, question: question}
	f.desc = prometheus.NewDesc(f.name, help, labels, nil)
	families = append(families, f)
	return f
}

func labels(names ...string) []string { return names }

// Row describes one metric for the reference in docs/reference/metrics.md.
type Row struct {
	Name     string   // with the namespace, e.g. "retryproxy_requests_total"
	Type     Kind     // counter, gauge or histogram
	Labels   []string // in order; nil if there are none
	Help     string   // what it counts; the exposition's HELP
	Question string   // the question that it answers for an operator
}

// Reference returns all metrics of ours in the order of the documentation, from the
// registered definitions. The handler also exports those of the Go runtime and the process
// (go_*, process_*), which are client_golang's. The rows belong to the caller.
func Reference() []Row {
	rows := make([]Row, len(families))
	for i, f := range families {
		rows[i] = Row{Name: f.name, Type: f.kind, Labels: slices.Clone(f.labels), Help: f.help, Question: f.question}
	}
	return rows
}

// Requests and their results, by route.
var (
	requestsTotal = define(Counter, "requests_total", labels("route", "method", "code"),
		"Requests by method and by the status that the client got. code is other if the client got no status.",
		"How much traffic is there, and what do clients see?")
	outcomesTotal = define(Counter, "outcomes_total", labels("route", "outcome"),
		"Requests by outcome. Each request has exactly one outcome, so the sum equals requests_total.",
		"How many requests did retries recover, and why were the others not retried?")
	attemptsTotal = define(Counter, "attempts_total", labels("route", "class", "code"),
		"Attempts by failure class and status, failed dials included. code is other if no response headers arrived.",
		"How does the upstream respond, before retries hide it?")
	retriesTotal = define(Counter, "retries_total", labels("route", "reason"),
		"Retries by the failure that caused them.",
		"Which failures cause the retries?")
	dryRunRetriesTotal = define(Counter, "dry_run_retries_total", labels("route", "reason"),
		"Retries that a route with RETRYPROXY_DRY_RUN=true would have made, by reason. At most one retry per request is counted.",
		"What would this route retry?")
	hedgesTotal = define(Counter, "hedges_total", labels("route"),
		"Hedges: second attempts sent beside a slow attempt (RETRYPROXY_HEDGE_AFTER). They count as attempts, but not in retries_total.",
		"How much load does hedging add?")
	hedgesWonTotal = define(Counter, "hedges_won_total", labels("route"),
		"Hedges whose response was used, because it came first or the other attempt failed.",
		"How many requests does hedging make faster?")
	fallbackFailuresTotal = define(Counter, "fallback_failures_total", labels("route"),
		"Requests for which the fallback upstream (RETRYPROXY_FALLBACK) failed too. If the fallback succeeds, the outcome is fallback.",
		"Does the fallback work when it is needed?")
	idleCloseRetriesTotal = define(Counter, "idle_close_retries_total", labels("route"),
		"Immediate retries because the upstream had closed a pooled connection. They are part of retries_total, but do not count against RETRYPROXY_MAX_RETRIES and the retry budget.",
		"Does the upstream close idle connections before retryproxy does?")
	requestSeconds = define(Histogram, "request_duration_seconds", labels("route", "code_class"),
		"Time from the headers of a request to the end of its response, including all attempts and waits, by the class of the client's status: 1xx to 5xx, or none.",
		"How long do clients wait in total?")
	attemptSeconds = define(Histogram, "attempt_duration_seconds", labels("route", "code_class"),
		"Time of one attempt, by the class of its status: 1xx to 5xx, or none.",
		"How fast is the upstream itself?")
	backoffSeconds = define(Histogram, "backoff_seconds", labels("route"),
		"Actual wait before a retry, 0 included. The wait is shorter than planned if the client left or the proxy drained. The free retry after an idle connection was closed has no wait.",
		"How long are the waits between attempts?")
	queueSeconds = define(Histogram, "queue_seconds", labels("route"),
		"Time that requests were queued for the circuit breaker, a permit or the end of a shared rate-limit pause. Requests that did not wait are not counted.",
		"How long do clients wait for an upstream that is down, full or pausing?")
	addedSeconds = define(Histogram, "added_latency_seconds", labels("route"),
		"Time from the end of the first attempt to the end of the last, for requests with at least one retry after a failure.",
		"What do retries cost the clients that needed them?")
	attemptsPerRequest = define(Histogram, "attempts_per_request", labels("route"),
		"Attempts per request. A request without an attempt, such as a refused one, counts as 0.",
		"How much do retries multiply the load on the upstream?")
	requestsInFlight = define(Gauge, "requests_in_flight", labels("route"),
		"Requests that have begun and not ended, including those that wait.",
		"How many requests are in flight?")
	requestsWaiting = define(Gauge, "requests_waiting", labels("route"),
		"Requests that wait for their next attempt.",
		"How many requests wait for a backoff or a Retry-After?")
)

// The state of the proxy and its upstreams, read at each scrape.
var (
	clientConnections = define(Gauge, "connections", nil,
		"Open client connections.",
		"How close is the number of connections to its limit?")
	acceptPausesTotal = define(Counter, "accept_pauses_total", nil,
		"Times that accepting paused at the limit of connections or descriptors.",
		"Is the connection limit too low?")
	logLinesDroppedTotal = define(Counter, "log_lines_dropped_total", nil,
		"Lines of the log that were dropped because standard error was not read, or could not be written.",
		"Does the log miss lines?")
	clientsEvictedTotal = define(Counter, "clients_evicted_total", labels("state"),
		"Client connections or HTTP/2 streams that were ended because slots were short, by state: idle, slow (headers, a TLS handshake or a body came slowly), stalled (the client read nothing), or queued (there was no slot, or no memory for the request, within a second).",
		"Is the limit of connections or memory too low, or do clients hold unused connections?")
	faultsTotal = define(Counter, "faults_total", nil,
		"Requests that failed because of a bug in the proxy itself.",
		"Is there a bug to report?")
	handshakeFailuresTotal = define(Counter, "handshake_failures_total", nil,
		"Clients whose TLS handshake failed; always 0 without TLS.",
		"Do clients reject our certificate, or lack a valid one of their own?")
	proxyHeaderFailuresTotal = define(Counter, "proxy_header_failures_total", labels("reason"),
		"Connections closed because they did not begin with the PROXY protocol header that RETRYPROXY_PROXY_PROTOCOL_FROM requires: missing, malformed, too_long, slow or cut.",
		"Does the load balancer send the PROXY protocol, and does anyone else come from its addresses?")
	draining = define(Gauge, "draining", nil,
		"1 while the proxy shuts down, otherwise 0.",
		"Which proxies are shutting down?")
	parseRefusalsTotal = define(Counter, "parse_refusals_total", labels("reason"),
		"Requests refused because they broke the protocol or a limit of its parsing. Nothing was sent upstream.",
		"Do clients send malformed requests, or is a limit too low?")
	badDeadlinesTotal = define(Counter, "bad_deadlines_total", labels("field"),
		"Deadline headers of clients that could not be parsed. They were forwarded unchanged.",
		"Does a client set a deadline in an unknown notation?")
	retryBufferBytes = define(Gauge, "retry_buffer_bytes", nil,
		"Memory in use for request bodies and failed responses kept for retries.",
		"How much memory do retries take now?")
	retryBufferLimitBytes = define(Gauge, "retry_buffer_limit_bytes", nil,
		"Maximum of retry_buffer_bytes (RETRYPROXY_RETRY_BUFFER_TOTAL_BYTES).",
		"How full is the retry buffer?")
	retriesEnabledRatio = define(Gauge, "retries_enabled_ratio", nil,
		"Share of retries that are made, 0 to 1 (POST /retry-percent of the admin listener).",
		"Are retries switched off, and where?")
	rateLimitPausesTotal = define(Counter, "rate_limit_pauses_total", nil,
		"Rate-limit pauses that began (RETRYPROXY_RATE_LIMIT_PAUSE_KEY).",
		"How often does an upstream ask for a pause?")
	rateLimitPausesDroppedTotal = define(Counter, "rate_limit_pauses_dropped_total", nil,
		"Rate-limit pauses that were not remembered because there were too many.",
		"Are there more pauses at once than the proxy can remember?")
	rateLimitPaused = define(Gauge, "rate_limit_paused_requests", nil,
		"Requests that wait for the end of a shared rate-limit pause.",
		"How many clients wait because an upstream asked for a pause?")
	rateLimitSlotsTotal = define(Counter, "rate_limit_slots_total", labels("upstream", "rate_limit", "from"),
		"Slots of a rate limit (RETRYPROXY_RATE_LIMIT) by origin: leased from the shared engine, or the process's own share. expired: leased, not used in time and returned.",
		"How much of the rate limit does this process use, and does sharing work?")
	rateLimitQueued = define(Gauge, "rate_limit_queued", labels("upstream", "rate_limit"),
		"Requests that wait for a rate limit.",
		"Does the rate limit slow clients down?")
	rateLimitKeys = define(Gauge, "rate_limit_keys", labels("upstream", "rate_limit"),
		"Values of RETRYPROXY_RATE_LIMIT_KEY that have a rate limit of their own. At most 4096 values have one; all others share one.",
		"Are there too many values for a rate limit each?")
	sharedUp = define(Gauge, "shared_up", nil,
		"1 while the shared engine (RETRYPROXY_SHARED) responds, 0 while the process continues on its own. shared_* is absent without an engine.",
		"Does sharing work?")
	sharedLostTotal = define(Counter, "shared_lost_total", nil,
		"Times that the shared engine stopped responding.",
		"How reliable is the shared engine?")
	sharedProcesses = define(Gauge, "shared_processes", nil,
		"Processes of the scope, including this one, when the shared engine last responded. 0 before its first response.",
		"How many processes share?")
	sharedCommandsTotal = define(Counter, "shared_commands_total", nil,
		"Calls of the shared engine. All are in the background; no request waits for one.",
		"What does sharing cost the engine?")
	sharedErrorsTotal = define(Counter, "shared_errors_total", nil,
		"Failed calls of the shared engine, and messages from it that could not be parsed.",
		"Is the shared engine slow, full, misconfigured or gone?")
	sharedRateLimitPausesTotal = define(Counter, "shared_rate_limit_pauses_total", labels("way"),
		"Rate-limit pauses: sent to other processes, received from other processes, or dropped. A pause is dropped if the shared engine does not respond or too many begin at once.",
		"Does a 429 of one process prevent 429s of the others?")
	budgetTokens = define(Gauge, "budget_tokens", labels("upstream"),
		"Retries that the upstream's budget allows now.",
		"Does an outage exhaust the retry budget?")
	breakerState = define(Gauge, "breaker_state", labels("upstream", "state"),
		"1 for the current state of the upstream's circuit breaker, 0 for the others: closed, open, half_open, slow_start.",
		"Is the upstream considered down?")
	breakerOpenedTotal = define(Counter, "breaker_opened_total", labels("upstream", "by"),
		"Times that the circuit breaker opened, by evidence: refused, dial, failing, stall, lost.",
		"How often was the upstream down, and what was the evidence?")
	breakerProbesTotal = define(Counter, "breaker_probes_total", labels("upstream"),
		"Probes of an upstream whose circuit breaker is not closed.",
		"How often is a failed upstream probed?")
	breakerResetsTotal = define(Counter, "breaker_resets_total", labels("upstream"),
		"Times that a success reset the time between probes. Each failed probe makes this time longer (RETRYPROXY_BREAKER_BACKOFF).",
		"How often did a failed upstream come back?")
	pathProbesTotal = define(Counter, "path_probes_total", labels("upstream", "result"),
		"GETs of RETRYPROXY_HEALTH_PATH while the breaker is not closed, by result. These checks are part of breaker_probes_total, but not of requests_total.",
		"What does the probe path respond while the breaker is not closed?")
	concurrencyLimit = define(Gauge, "concurrency_limit", labels("upstream"),
		"Maximum number of requests in flight to the upstream. +Inf while no limit binds.",
		"Is the upstream overloaded, and how many requests at once can it process?")
	concurrencyLimitBoundTotal = define(Counter, "concurrency_limit_bound_total", labels("upstream"),
		"Times that overload made the concurrency limit bind.",
		"How often is the upstream overloaded?")
	permitsInUse = define(Gauge, "permits_in_use", labels("upstream", "by"),
		"Attempts that the upstream works on, by state: awaited, or abandoned because the client left or the attempt timed out.",
		"How many attempts does the upstream work on, and how many of these does nobody wait for?")
	queuedRequests = define(Gauge, "queued_requests", labels("upstream"),
		"Requests that wait for the circuit breaker or a permit.",
		"How many clients wait for an upstream that is down or full?")
	upstreamConnections = define(Gauge, "upstream_connections", labels("upstream", "state"),
		"Connections to the upstream: active, dialing or idle.",
		"How many connections does the upstream have?")
	upstreamDialsTotal = define(Counter, "upstream_dials_total", labels("upstream"),
		"Connections made to the upstream.",
		"Are connections reused?")
	upstreamReusesTotal = define(Counter, "upstream_reuses_total", labels("upstream"),
		"Times that a pooled connection to the upstream was reused.",
		"Are connections reused?")
	dialErrorsTotal = define(Counter, "upstream_dial_errors_total", labels("upstream", "kind"),
		"Failed dials by kind of error, over all endpoints of the upstream.",
		"Why do connections to the upstream fail?")
	upstreamEndpoints = define(Gauge, "upstream_endpoints", labels("upstream", "state"),
		"Endpoints of the upstream: used, ejected (after 5 consecutive failures), unhealthy (by RETRYPROXY_HEALTH_PATH) or draining (no longer in the DNS response).",
		"Does the name resolve as expected, and does each endpoint work?")
	endpointRequests = define(Gauge, "upstream_endpoint_requests", labels("upstream", "address"),
		"Requests in flight to an endpoint, for an upstream with several. At most 32 addresses are shown. The rest is other.",
		"Is the load spread?")
	endpointAttemptsTotal = define(Counter, "upstream_endpoint_attempts_total", labels("upstream", "address"),
		"Attempts sent to an endpoint, for an upstream with several.",
		"Is the load spread?")
	endpointFailuresTotal = define(Counter, "upstream_endpoint_failures_total", labels("upstream", "address"),
		"Failed attempts and dials that count against an endpoint, for an upstream with several.",
		"Which endpoint is bad?")
	endpointEjected = define(Gauge, "upstream_endpoint_ejected", labels("upstream", "address"),
		"1 while an endpoint is ejected.",
		"Which endpoint is bad?")
	endpointUnhealthy = define(Gauge, "upstream_endpoint_unhealthy", labels("upstream", "address"),
		"1 while the health checks of an endpoint fail (RETRYPROXY_HEALTH_PATH).",
		"Which endpoint is bad?")
	idleClosesTotal = define(Counter, "upstream_idle_closes_total", labels("upstream"),
		"Pooled connections that the upstream closed while they were idle.",
		"Is the upstream's keep-alive timeout shorter than ours?")
)

// The configuration and the program.
var (
	reloadSuccessful = define(Gauge, "config_last_reload_successful", nil,
		"1 if the last configuration that was loaded is in use, 0 if it was refused.",
		"Does the proxy run with the latest configuration?")
	reloadSeconds = define(Gauge, "config_last_reload_success_timestamp_seconds", nil,
		"Time when the configuration in use was loaded, in seconds since 1970.",
		"Since when is this configuration in use?")
	reloadsTotal = define(Counter, "config_reloads_total", labels("result"),
		"Loads of the configuration, the first included, by result: failure or success.",
		"Are bad configurations being pushed?")
	certificateExpiry = define(Gauge, "certificate_expiry_timestamp_seconds", labels("kind", "name"),
		"End of validity of a certificate, in seconds since 1970.",
		"Which certificate must be renewed, and when?")
	buildInfo = define(Gauge, "build_info", labels("version", "revision", "goversion"),
		"Always 1; the labels say what is running.",
		"Which version runs where?")
)

// Tokens of language models, by route.
var (
	tokensTotal = define(Counter, "tokens_total", labels("route", "kind", "fate"),
		"Tokens that responses said they used. kind is input (without cached tokens), output or cached. fate is delivered, wasted if the client did not get the whole response, or retried if another attempt replaced the response. The metric appears with the first tokens.",
		"What do the language models cost, and how much of that is wasted?")
	tokenLimit = define(Gauge, "token_limit", labels("upstream", "rate_limit"),
		"Tokens per minute that the rate limits of all keys together allow. The metric appears when a limit is known.",
		"How close is the use of tokens to their limit?")
)
