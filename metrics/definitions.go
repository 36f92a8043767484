package metrics

import "github.com/prometheus/client_golang/prometheus"

// namespace begins the name of every metric of ours.
const namespace = "retryproxy_"

// family is a metric with everything that is said about it. Families are fixed
// after package initialisation.
type family struct {
	name     string // with the namespace
	kind     Kind
	labels   []string
	help     string // what it counts
	question string // what an operator finds out with it
	desc     *prometheus.Desc
}

// families are all metrics of ours, in the order of the definitions below.
var families []*family

// Kind is the type of a metric.
type Kind uint8

// The kinds.
const (
	Counter Kind = iota
	Gauge
	Histogram
)

// String is the type as the exposition format names it.
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

// What became of requests, by route.
var (
	requestsTotal = define(Counter, "requests_total", labels("route", "method", "code"),
		"Requests answered, by the status the client got; code is other when it got none.",
		"How much traffic is there, and what do clients see?")
	outcomesTotal = define(Counter, "outcomes_total", labels("route", "outcome"),
		"Requests by what became of them. One outcome per request: the sum is that of requests_total.",
		"How many requests did retries rescue, and why were the others not retried?")
	attemptsTotal = define(Counter, "attempts_total", labels("route", "class", "code"),
		"Attempts sent to the upstream, failed dials included, by class of failure and status; code is other when no response headers came.",
		"What does the upstream answer, before retries hide it?")
	retriesTotal = define(Counter, "retries_total", labels("route", "reason"),
		"Retries by what they were for.",
		"Which failures cause the retries?")
	dryRunRetriesTotal = define(Counter, "dry_run_retries_total", labels("route", "reason"),
		"Retries that would have been made where RETRYPROXY_DRY_RUN is observe, by what they would be for; at most one per request.",
		"What would this route retry, before it does?")
	hedgesTotal = define(Counter, "hedges_total", labels("route"),
		"Second attempts sent beside one that was still waited for (RETRYPROXY_HEDGE_AFTER); attempts, but not in retries_total.",
		"How much load does hedging add?")
	hedgesWonTotal = define(Counter, "hedges_won_total", labels("route"),
		"Hedges whose answer was relayed, because it came first or the other attempt failed.",
		"How many requests does hedging make faster?")
	fallbackFailuresTotal = define(Counter, "fallback_failures_total", labels("route"),
		"Requests sent to the fallback upstream (RETRYPROXY_FALLBACK) that had no better response; those that it answered have the outcome fallback.",
		"Does the fallback hold when it is needed?")
	faultInjectionsTotal = define(Counter, "fault_injections_total", labels("route", "kind"),
		"Faults injected for attempts (RETRYPROXY_FAULT_INJECTION), by kind: status, reset, delay. Each attempt that met one is in attempts_total as any other.",
		"Are faults injected here, and how many of the failures that I see are such?")
	idleCloseRetriesTotal = define(Counter, "idle_close_retries_total", labels("route"),
		"Retries at once, outside count and budget, because the upstream had closed a kept connection; part of retries_total.",
		"Does the upstream close idle connections sooner than the pool lets go of them?")
	requestSeconds = define(Histogram, "request_duration_seconds", labels("route"),
		"Time from a request's headers to the end of its response, all attempts and waits included.",
		"How long do clients wait in all?")
	attemptSeconds = define(Histogram, "attempt_duration_seconds", labels("route"),
		"Time of one attempt.",
		"How fast is the upstream itself?")
	backoffSeconds = define(Histogram, "backoff_seconds", labels("route"),
		"Time really waited before a retry; shorter than planned when the client left or the proxy drained.",
		"How long are the waits between attempts?")
	queueSeconds = define(Histogram, "queue_seconds", labels("route"),
		"Time waited at the upstream's breaker while it was down, for a place under its limit, or for the end of a rate-limit pause that others began; requests that did not wait are not in it.",
		"How long do clients wait for an upstream that is down or full, or that asked for a pause?")
	addedSeconds = define(Histogram, "added_latency_seconds", labels("route"),
		"For requests with an attempt that failed and another after it: time from the first attempt's end to the last one's.",
		"What do retries cost the clients that needed them?")
	attemptsPerRequest = define(Histogram, "attempts_per_request", labels("route"),
		"Attempts that a request took; one without any, such as a refused one, is in the lowest bucket and adds 0 to the sum.",
		"By how much do retries multiply the load on the upstream?")
	requestsInFlight = define(Gauge, "requests_in_flight", labels("route"),
		"Requests begun and not yet done, the waiting ones included.",
		"How many requests are in flight?")
	requestsWaiting = define(Gauge, "requests_waiting", labels("route"),
		"Requests that wait for their next attempt.",
		"How many requests are held up by a backoff or a Retry-After?")
)

// What the proxy holds and where it sends, read at each scrape.
var (
	clientConnections = define(Gauge, "connections", nil,
		"Client connections open.",
		"How near is the limit of connections?")
	acceptPausesTotal = define(Counter, "accept_pauses_total", nil,
		"Times that accepting paused, at the limit of connections or of descriptors.",
		"Is the limit of connections too low?")
	clientsEvictedTotal = define(Counter, "clients_evicted_total", labels("state"),
		"Client connections, or HTTP/2 streams, ended because others needed their slot, at the limit of connections or of memory: idle ones, and stalled ones whose client took nothing of its response.",
		"Is the limit of connections or of memory too low, or does somebody hold connections that nobody uses?")
	faultsTotal = define(Counter, "faults_total", nil,
		"Requests that ended in a fault of the proxy itself.",
		"Is there a bug to report?")
	handshakeFailuresTotal = define(Counter, "handshake_failures_total", nil,
		"Clients whose TLS handshake failed; always 0 without TLS.",
		"Do clients reject our certificate, or come without a valid one of theirs?")
	proxyHeaderFailuresTotal = define(Counter, "proxy_header_failures_total", labels("reason"),
		"Connections closed because they did not begin with the PROXY protocol header that RETRYPROXY_PROXY_PROTOCOL_FROM wants of them: missing, malformed, too_long, slow or cut.",
		"Does the load balancer send the PROXY protocol, and does anyone else come from its addresses?")
	draining = define(Gauge, "draining", nil,
		"1 while the proxy shuts down, 0 before.",
		"Which proxies are on their way out?")
	parseRefusalsTotal = define(Counter, "parse_refusals_total", labels("reason"),
		"Requests refused because they broke the protocol or a limit of its parsing; nothing was sent upstream.",
		"Does somebody send malformed requests, or is a limit too low?")
	badDeadlinesTotal = define(Counter, "bad_deadlines_total", labels("field"),
		"Request headers about the client's patience that could not be read; they were forwarded as they came.",
		"Does a client set a deadline in a notation that nobody reads?")
	retryBufferBytes = define(Gauge, "retry_buffer_bytes", nil,
		"Memory that keeps request bodies and failing responses for retries.",
		"How much memory do retries take now?")
	retryBufferLimitBytes = define(Gauge, "retry_buffer_limit_bytes", nil,
		"Most that retry_buffer_bytes may be (RETRYPROXY_RETRY_BUFFER_TOTAL_BYTES).",
		"How near is the retry buffer to being full?")
	retryPercent = define(Gauge, "retry_percent", nil,
		"Percentage of the retries that would be made which are made (RETRYPROXY_RETRY_PERCENT, retryproxy retry-percent).",
		"Did somebody switch retries off, and where is that still so?")
	rateLimitPausesTotal = define(Counter, "rate_limit_pauses_total", nil,
		"Pauses begun that a 429 asked for and that requests share (RETRYPROXY_RATE_LIMIT_PAUSE_KEY).",
		"How often does an upstream ask for a pause?")
	rateLimitPausesDisplacedTotal = define(Counter, "rate_limit_pauses_displaced_total", nil,
		"Shared pauses forgotten before their end for want of room.",
		"Are there more keys pausing at once than are remembered?")
	rateLimitSlotsTotal = define(Counter, "rate_limit_slots_total", labels("upstream", "rate_limit", "from"),
		"Turns in a rate limit (RETRYPROXY_RATE_LIMIT): used of those leased from the shared engine, used of the process's own share, or leased and not used in time and given back (expired).",
		"How much of the rate limit does this process use, and does sharing work?")
	rateLimitQueued = define(Gauge, "rate_limit_queued", labels("upstream", "rate_limit"),
		"Requests that wait for their turn in a rate limit.",
		"Is the rate limit what slows clients down?")
	rateLimitKeys = define(Gauge, "rate_limit_keys", labels("upstream", "rate_limit"),
		"Values of RETRYPROXY_RATE_LIMIT_KEY's field that are remembered, each with a rate limit of its own; at 4096 those that are not have one together.",
		"Are there more keys than are kept apart?")
	sharedUp = define(Gauge, "shared_up", nil,
		"1 while the shared engine (RETRYPROXY_SHARED) answers, 0 while the process goes on by itself; none of shared_* is shown without one.",
		"Do the processes act as one?")
	sharedLostTotal = define(Counter, "shared_lost_total", nil,
		"Times that the shared engine stopped to answer.",
		"How reliable is the shared engine?")
	sharedProcesses = define(Gauge, "shared_processes", nil,
		"Processes of the scope, this one included, as last seen at the shared engine; 0 before it ever answered.",
		"Who shares?")
	sharedCommandsTotal = define(Counter, "shared_commands_total", nil,
		"Calls of the shared engine, by the background; requests make none.",
		"What does sharing cost the engine?")
	sharedErrorsTotal = define(Counter, "shared_errors_total", nil,
		"Calls of the shared engine without a good response, and messages from it that could not be read.",
		"Is the shared engine slow, full, misconfigured or gone?")
	sharedRateLimitPausesTotal = define(Counter, "shared_rate_limit_pauses_total", labels("way"),
		"Pauses that a 429 asked for: told to the others, learnt from them, or dropped because the shared engine did not answer or too many began at once.",
		"Does one process's 429 spare the others theirs?")
	budgetTokens = define(Gauge, "budget_tokens", labels("upstream"),
		"Retries that the upstream's budget allows at this moment.",
		"Is an outage eating up the retry budget?")
	breakerState = define(Gauge, "breaker_state", labels("upstream", "state"),
		"1 for the state that the upstream's breaker is in, 0 for the others: closed, open, half_open, slow_start.",
		"Is the upstream taken for down?")
	breakerOpenedTotal = define(Counter, "breaker_opened_total", labels("upstream", "by"),
		"Times that the breaker opened, by the evidence: refused, dial, failing, stall, lost.",
		"How often was the upstream down, and how did it show?")
	breakerProbesTotal = define(Counter, "breaker_probes_total", labels("upstream"),
		"Probes of an upstream whose breaker is not closed.",
		"How often is a dead upstream tried?")
	pathProbesTotal = define(Counter, "path_probes_total", labels("upstream", "result"),
		"Probes by GET of RETRYPROXY_PROBE_PATH that ended, by what they found; part of breaker_probes_total, and no requests.",
		"What does the upstream say of itself while its breaker is not closed?")
	concurrencyLimit = define(Gauge, "concurrency_limit", labels("upstream"),
		"Requests that may be in flight at once to the upstream; +Inf while no limit binds.",
		"Is the upstream overloaded, and what does it bear?")
	concurrencyLimitBoundTotal = define(Counter, "concurrency_limit_bound_total", labels("upstream"),
		"Times that overload made the limit bind.",
		"How often is the upstream overloaded?")
	permitsInUse = define(Gauge, "permits_in_use", labels("upstream", "by"),
		"Attempts that the upstream has in hand: awaited, or abandoned by clients that left.",
		"How much does the upstream have in hand, wanted and unwanted?")
	clientThrottlingProbability = define(Gauge, "client_throttling_probability", labels("upstream"),
		"Share of requests not sent because the upstream rejects nearly all; shown where RETRYPROXY_CLIENT_THROTTLING is on.",
		"Are requests turned away here to spare the upstream rejecting them?")
	queuedRequests = define(Gauge, "queued_requests", labels("upstream"),
		"Requests that wait at the upstream's breaker or for a place under its limit.",
		"How many clients wait for an upstream that is down or full?")
	upstreamConnections = define(Gauge, "upstream_connections", labels("upstream", "state"),
		"Connections to the upstream: active, dialing or idle.",
		"How many connections does the upstream bear?")
	upstreamDialsTotal = define(Counter, "upstream_dials_total", labels("upstream"),
		"Connections made to the upstream.",
		"Are connections reused?")
	upstreamReusesTotal = define(Counter, "upstream_reuses_total", labels("upstream"),
		"Times that a kept connection to the upstream was used again.",
		"Are connections reused?")
	dialErrorsTotal = define(Counter, "upstream_dial_errors_total", labels("upstream", "kind"),
		"Failed dials by kind of error, each address of an upstream with several counted.",
		"Why can the upstream not be reached?")
	upstreamEndpoints = define(Gauge, "upstream_endpoints", labels("upstream", "state"),
		"Addresses of the upstream: used, ejected (ejected for failures in a row, RETRYPROXY_EJECT_AFTER) or draining (no longer in the response for its name).",
		"Does the name resolve to what I expect, and does each address work?")
	endpointRequests = define(Gauge, "upstream_endpoint_requests", labels("upstream", "address"),
		"Requests that an address has in hand, of an upstream with several; at most 32 addresses are shown, the rest is other.",
		"Is the load spread?")
	endpointAttemptsTotal = define(Counter, "upstream_endpoint_attempts_total", labels("upstream", "address"),
		"Attempts for which an address was taken, of an upstream with several.",
		"Is the load spread?")
	endpointFailuresTotal = define(Counter, "upstream_endpoint_failures_total", labels("upstream", "address"),
		"Attempts and dials that failed and that are held against an address, of an upstream with several.",
		"Which address is bad?")
	endpointEjected = define(Gauge, "upstream_endpoint_ejected", labels("upstream", "address"),
		"1 while an address is ejected for its failures.",
		"Which address is bad?")
	idleClosesTotal = define(Counter, "upstream_idle_closes_total", labels("upstream"),
		"Kept connections that the upstream closed while they were idle.",
		"Is the upstream's keep-alive time shorter than ours?")
)

// The configuration and the program.
var (
	reloadSuccessful = define(Gauge, "config_last_reload_successful", nil,
		"1 when the configuration loaded last is the one in use, 0 when it was refused.",
		"Does the proxy run with the configuration that I gave it?")
	reloadSeconds = define(Gauge, "config_last_reload_success_timestamp_seconds", nil,
		"When the configuration in use was loaded, in seconds since 1970.",
		"Since when is this configuration in use?")
	reloadsTotal = define(Counter, "config_reloads_total", labels("result"),
		"Loads of the configuration, the one at the start included, by result: failure or success.",
		"Are bad configurations being pushed?")
	certificateExpiry = define(Gauge, "certificate_expiry_timestamp_seconds", labels("kind", "name"),
		"End of validity of a certificate, in seconds since 1970.",
		"Which certificate has to be renewed, and when?")
	buildInfo = define(Gauge, "build_info", labels("version", "revision", "goversion"),
		"Always 1; the labels say what is running.",
		"Which version runs where?")
)
