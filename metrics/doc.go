// Package metrics counts what the proxy does, route by route, and why. It keeps the counts on the
// request path and exports them to Prometheus.
//
// Begin with [New], pass [Metrics.Handler] to the admin server, and pass [Metrics.Route] to the data
// path: a [*Route] is its observer. State that is read rather than counted (pool sizes, budget tokens,
// retry buffer) is copied into a [Snapshot] at each scrape, by the function passed to [Metrics.Watch].
// [Reference] lists every metric with the question it answers; the page docs/reference/metrics.md is generated
// from it.
//
// What is promised:
//
//   - Nothing on the request path allocates (except for the first use of a route, method or hundred of
//     codes), takes a lock or looks up a label in a map. All methods are safe for concurrent use.
//   - Labels are closed sets or come from configuration: a route's name, an upstream's name. No client
//     and no upstream can create more time series than 10 methods times 501 codes per route.
//   - Every request passed to [Stripe.RequestBegan] counts in retryproxy_requests_total and in
//     retryproxy_outcomes_total exactly once, in [Stripe.RequestDone], so that the two are always
//     equal.
//
// Counts are striped so that cores do not compete for cache lines (see stripe.go), and summed at
// scrape time by one collector. On two cores, compared with the counters and histograms of
// client_golang doing the same work, that takes 85 instead of 440 ns of CPU per request if both cores
// work on one route, and 75 instead of 104 if one does (BenchmarkRequest).
//
// What to avoid: the default registry of client_golang, which other packages may write to, and labels
// made of anything a client sent.
package metrics
