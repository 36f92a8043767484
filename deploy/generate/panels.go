package main

import "fmt"

// The selections by the dashboard's variables.
const (
	byProcess  = `namespace=~"$namespace", job=~"$job", instance=~"$instance"`
	byRoute    = byProcess + `, route=~"$route"`
	byUpstream = byProcess + `, upstream=~"$upstream"`
)

// failed are the outcomes that a client would call a failure of ours; those
// that are the client's own doing are not asked about. As in the rules.
const (
	failed  = `outcome=~"gave_up_.*|fail_fast|queue_dropped|queue_timeout|overloaded|rate_limit_pause|rate_limited|response_broken|stream_cut"`
	counted = `outcome!~"client_gone|request_broken|request_timeout|refused"`
)

func rate(metric, selection string) string {
	return fmt.Sprintf("rate(retryproxy_%s{%s}[$__rate_interval])", metric, selection)
}

func sum(metric, selection string) string { return "sum(" + rate(metric, selection) + ")" }

func sumBy(labels, metric, selection string) string {
	return fmt.Sprintf("sum by (%s) (%s)", labels, rate(metric, selection))
}

func sumNow(labels, metric, selection string) string {
	return fmt.Sprintf("sum by (%s) (retryproxy_%s{%s})", labels, metric, selection)
}

// quantile of a histogram of ours over all that is selected.
func quantile(q float64, metric string) string {
	return fmt.Sprintf("histogram_quantile(%v, sum by (le) (%s))", q, rate(metric+"_bucket", byRoute))
}

// quantiles are the times that half and 99 % of what is measured took at most. what follows the percentage,
// such as "of requests took at most".
func quantiles(metric, what string) []query {
	return []query{{quantile(0.5, metric), "50 % " + what}, {quantile(0.99, metric), "99 % " + what}}
}

var rows = []row{
	{"Clients", []chart{
		{title: "Requests a second", kind: stat, unit: "reqps", queries: []query{{sum("requests_total", byRoute), ""}}},
		{title: "Failed, retries included", about: "Requests that failed although retries were allowed, without those that the client ended. The objective in the alerts is 0.1 %.", kind: stat, unit: "percentunit",
			warn: at(0.001), bad: at(0.01), queries: []query{{"(" + sum("outcomes_total", byRoute+", "+failed) + " or vector(0)) / " + sum("outcomes_total", byRoute+", "+counted), ""}}},
		{title: "Recovered by retries", about: "Requests that failed first and were good in the end.", kind: stat, unit: "percentunit",
			queries: []query{{sum("outcomes_total", byRoute+`, outcome="recovered"`) + " / " + sum("outcomes_total", byRoute+", "+counted), ""}}},
		{title: "Attempts per request", about: "How much retries multiply the load. With the default retry budget at most 1.2.", kind: stat, unit: "none",
			warn: at(1.2), bad: at(1.5), queries: []query{{sum("attempts_total", byRoute) + " / " + sum("requests_total", byRoute), ""}}},
		{title: "Upstreams down", about: "The circuit breaker of at least one proxy is open or half-open.", kind: stat, unit: "none", warn: at(1), bad: at(1),
			queries: []query{{fmt.Sprintf(`count(max by (upstream) (retryproxy_breaker_state{%s, state=~"open|half_open"}) == 1) or vector(0)`, byUpstream), ""}}},
		{title: "Proxies", kind: stat, unit: "none", queries: []query{{fmt.Sprintf("count(retryproxy_build_info{%s})", byProcess), ""}}},

		{title: "Outcomes of requests", about: "Each request has one outcome: good, recovered by a retry, or why it failed.", kind: stacked, unit: "reqps", wide: true, names: outcomeNames(),
			queries: []query{{sumBy("outcome", "outcomes_total", byRoute) + " > 0", "{{outcome}}"}}},
		{title: "Statuses that clients got", kind: stacked, unit: "reqps",
			queries: []query{{sumBy("code", "requests_total", byRoute), "{{code}}"}}},
		{title: "How long clients wait", about: "Requests: from the headers to the end of the response, with all attempts and waits. Attempts: each alone.", kind: lines, unit: "s",
			queries: append(quantiles("request_duration_seconds", "of requests took at most"), quantiles("attempt_duration_seconds", "of attempts took at most")...)},
		{title: "Traffic by route", kind: stacked, unit: "reqps", queries: []query{{sumBy("route", "requests_total", byRoute), "{{route}}"}}},
		{title: "In flight and waiting", kind: lines, unit: "none", queries: []query{
			{sumNow("job", "requests_in_flight", byRoute), "{{job}} in flight"}, {sumNow("job", "requests_waiting", byRoute), "{{job}} waiting for a retry"},
			{sumNow("job", "queued_requests", byUpstream), "{{job}} queued"}}},
	}},
	{"Retries", []chart{
		{title: "Retries by reason", kind: stacked, unit: "reqps", names: reasonNames(), queries: []query{{sumBy("reason", "retries_total", byRoute), "{{reason}}"}}},
		{title: "Failed without a further retry, by reason", kind: stacked, unit: "reqps", names: outcomeNames(),
			queries: []query{{sumBy("outcome", "outcomes_total", byRoute+`, outcome=~"gave_up_.*"`) + " > 0", "{{outcome}}"}}},
		{title: "Retries per request", kind: lines, unit: "percentunit",
			queries: []query{{sumBy("route", "retries_total", byRoute) + " / " + sumBy("route", "requests_total", byRoute), "{{route}}"}}},
		{title: "Hedges per request", about: "Second attempts sent beside a slow attempt (RETRYPROXY_HEDGE_AFTER), and those whose response was relayed.", kind: lines, unit: "percentunit",
			queries: []query{
				{sum("hedges_total", byRoute) + " / " + sum("requests_total", byRoute), "sent"}, {sum("hedges_won_total", byRoute) + " / " + sum("requests_total", byRoute), "won"}}},
		{title: "Waits between attempts", kind: lines, unit: "s", queries: quantiles("backoff_seconds", "of waits took at most")},
		{title: "Time that retries added", about: "For retried requests: from the end of the first attempt to the end of the last.", kind: lines, unit: "s", queries: quantiles("added_latency_seconds", "of retried requests: at most")},
		{title: "Retries that the budget still allows", about: "For each upstream, in the proxy with the fewest.", kind: lines, unit: "none",
			queries: []query{{fmt.Sprintf("min by (upstream) (retryproxy_budget_tokens{%s})", byUpstream), "{{upstream}}"}}},
	}},
	{"Upstreams", []chart{
		{title: "Circuit breaker", about: "For each upstream, the worst state in any proxy.", kind: timeline, unit: "none", wide: true,
			words: map[string]word{"0": {"closed", "green"}, "1": {"slow start", "yellow"}, "2": {"half-open", "orange"}, "3": {"open", "red"}},
			queries: []query{{fmt.Sprintf(`max by (upstream) (3 * retryproxy_breaker_state{%[1]s, state="open"} or 2 * retryproxy_breaker_state{%[1]s, state="half_open"}`+
				` or 1 * retryproxy_breaker_state{%[1]s, state="slow_start"})`, byUpstream), "{{upstream}}"}}},
		{title: "Circuit breakers opened, by evidence", kind: stacked, unit: "none",
			queries: []query{{fmt.Sprintf("sum by (upstream, by) (increase(retryproxy_breaker_opened_total{%s}[$__rate_interval]))", byUpstream), "{{upstream}} {{by}}"}}},
		{title: "Responses before retries hide failures", kind: stacked, unit: "reqps", queries: []query{{sumBy("class, code", "attempts_total", byRoute), "{{class}} {{code}}"}}},
		{title: "Time in the queue", about: "Requests wait while the circuit breaker is open, or for a permit.", kind: lines, unit: "s", queries: quantiles("queue_seconds", "of queued requests waited at most")},
		{title: "Queued requests", kind: lines, unit: "none", queries: []query{{sumNow("upstream", "queued_requests", byUpstream), "{{upstream}}"}}},
		{title: "Concurrency limit and permits", about: "The limit is shown only while it binds. The clients of abandoned attempts have left, but the upstream still works on the attempts.", kind: lines, unit: "none",
			queries: []query{
				{sumNow("upstream", "concurrency_limit", byUpstream) + " < +Inf", "{{upstream}} limit"},
				{sumNow("upstream, by", "permits_in_use", byUpstream), "{{upstream}} {{by}}"}}},
		{title: "Connections to upstreams", kind: stacked, unit: "none", queries: []query{{sumNow("upstream, state", "upstream_connections", byUpstream), "{{upstream}} {{state}}"}}},
		{title: "Failed dials", kind: stacked, unit: "cps", queries: []query{{sumBy("upstream, kind", "upstream_dial_errors_total", byUpstream) + " > 0", "{{upstream}} {{kind}}"}}},
		{title: "Connections made, reused, closed by the upstream", kind: lines, unit: "cps", queries: []query{
			{sum("upstream_dials_total", byUpstream), "made"}, {sum("upstream_reuses_total", byUpstream), "reused"}, {sum("upstream_idle_closes_total", byUpstream), "closed by the upstream while idle"}}},
	}},
	{"Endpoints of upstreams that have several", []chart{
		{title: "Endpoints by state", about: "Used, ejected after consecutive failures, unhealthy by health checks, or draining (no longer in the DNS response). The sum of all proxies.", kind: stacked, unit: "none",
			queries: []query{{sumNow("upstream, state", "upstream_endpoints", byUpstream), "{{upstream}} {{state}}"}}},
		{title: "Ejected or unhealthy endpoints", about: "In at least one proxy. At most half of the endpoints of an upstream are ejected at once.", kind: timeline, unit: "none", wide: true,
			words:   map[string]word{"0": {"used", "green"}, "1": {"ejected", "red"}, "2": {"unhealthy", "red"}, "3": {"both", "red"}},
			queries: []query{{fmt.Sprintf("max by (upstream, address) (retryproxy_upstream_endpoint_ejected{%[1]s} + 2 * retryproxy_upstream_endpoint_unhealthy{%[1]s})", byUpstream), "{{address}}"}}},
		{title: "Attempts by endpoint", about: "With equal curves the load is spread evenly. A failing endpoint gets fewer attempts.", kind: lines, unit: "reqps",
			queries: []query{{sumBy("upstream, address", "upstream_endpoint_attempts_total", byUpstream), "{{address}}"}}},
		{title: "Failed attempts by endpoint", about: "Failed attempts and dials that count towards ejection.", kind: lines, unit: "reqps",
			queries: []query{{sumBy("upstream, address", "upstream_endpoint_failures_total", byUpstream) + " > 0", "{{address}}"}}},
		{title: "In flight by endpoint", kind: stacked, unit: "none", queries: []query{{sumNow("upstream, address", "upstream_endpoint_requests", byUpstream), "{{address}}"}}},
	}},
	{"Language models", []chart{
		{title: "Tokens a minute, and the limit", about: "Tokens that responses report as used, and tokens that the known rate limits allow.", kind: lines, unit: "none",
			queries: []query{{"60 * " + sumBy("route", "tokens_total", byRoute), "{{route}}"}, {sumNow("upstream", "token_limit", byUpstream), "{{upstream}} limit"}}},
		{title: "Tokens by fate", about: "Delivered: the client got the whole response. Wasted: the client got a part of it, or nothing. Retried: another attempt replaced the response.", kind: stacked, unit: "none",
			queries: []query{{"60 * " + sumBy("kind, fate", "tokens_total", byRoute) + " > 0", "{{kind}} {{fate}}"}}},
	}},
	{"Trying out", []chart{
		{title: "Would be retried", about: "On routes with RETRYPROXY_DRY_RUN=true, by the failure that would cause the retry.", kind: stacked, unit: "reqps",
			queries: []query{{sumBy("route, reason", "dry_run_retries_total", byRoute), "{{route}} {{reason}}"}}},
		{title: "Would be retried, per request", about: "The most that retries would add to the load of the upstream, without the retry budget.", kind: lines, unit: "percentunit",
			queries: []query{{sumBy("route", "dry_run_retries_total", byRoute) + " / " + sumBy("route", "requests_total", byRoute), "{{route}}"}}},
	}},
	{"Process", []chart{
		{title: "CPU", kind: lines, unit: "none", queries: []query{{fmt.Sprintf(`rate(process_cpu_seconds_total{%s}[$__rate_interval]) and on (instance, job) retryproxy_build_info`, byProcess), "{{instance}}"}}},
		{title: "Memory", kind: lines, unit: "bytes", queries: []query{
			{fmt.Sprintf(`process_resident_memory_bytes{%s} and on (instance, job) retryproxy_build_info`, byProcess), "{{instance}} resident"},
			{sumNow("instance", "retry_buffer_bytes", byProcess), "{{instance}} retry buffer"}}},
		{title: "Clients' connections", kind: lines, unit: "none", queries: []query{{sumNow("instance", "connections", byProcess), "{{instance}}"}}},
		{title: "Refused requests", about: "Requests that broke the protocol or a limit. Nothing was sent upstream.", kind: stacked, unit: "reqps",
			queries: []query{{sumBy("reason", "parse_refusals_total", byProcess) + " > 0", "{{reason}}"}}},
		{title: "Trouble", about: "Faults are bugs in retryproxy. Pauses of accepting mean that the limit of connections is too low. A refused configuration is not in use.", kind: lines, unit: "none", queries: []query{
			{sumBy("instance", "faults_total", byProcess), "{{instance}} faults/s"}, {sumBy("instance", "accept_pauses_total", byProcess), "{{instance}} pauses/s"},
			{fmt.Sprintf("1 - retryproxy_config_last_reload_successful{%s}", byProcess), "{{instance}} configuration refused"},
			{sumNow("instance", "draining", byProcess), "{{instance}} draining"}}},
		{title: "Certificates expire in", kind: tableOf, unit: "s", queries: []query{{fmt.Sprintf("min by (kind, name) (retryproxy_certificate_expiry_timestamp_seconds{%s}) - time()", byProcess), ""}}},
		{title: "Versions", kind: tableOf, unit: "none", queries: []query{{fmt.Sprintf("count by (version, revision, goversion) (retryproxy_build_info{%s})", byProcess), ""}}},
	}},
}
