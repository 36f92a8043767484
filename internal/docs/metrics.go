package docs

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

const metricsIntro = `# Metrics

This page lists every metric with the question that it answers, and every value of its labels.

The admin listener (` + "`RETRYPROXY_ADMIN_LISTEN`" + `) serves them at ` + "`/metrics`" + ` in the Prometheus text
format, or as OpenMetrics to a scraper that asks for it, as Prometheus does. [Queries](queries.md)
answers the usual questions with them, [the alerts](../../deploy/prometheus/retryproxy.rules.yaml) and
[the dashboard](../../deploy/grafana/dashboard.json) are built from them.

- Label values are those listed below, or come from the configuration. They never come from a
  request. Unusual methods, and status codes outside 100 to 599, are counted as ` + "`other`" + `.
- ` + "`route`" + ` is the name of a route or ` + "`default`" + `. ` + "`upstream`" + ` is the URL of the upstream.
  Routes to one URL that [share nothing](settings.md#how-settings-work) are told apart by a number, as
  in ` + "`http://app:80 #2`" + `.
- The series of a route appear when it is first used. The outcomes of the first 100 routes are there
  from the start, as 0, so that rates are right from the first request.
- With [traces](../how-to/traces.md) each bucket of ` + "`retryproxy_request_duration_seconds`" + ` has the
  ` + "`trace_id`" + ` of its latest recorded request as exemplar, in OpenMetrics only.

`

// Metrics returns docs/reference/metrics.md.
func Metrics() string {
	var b strings.Builder
	b.WriteString(note)
	b.WriteString(metricsIntro)
	for _, m := range metrics.Reference() {
		metric(&b, &m)
	}
	b.WriteString("Metrics of the Go runtime (`go_*`) and of the process (`process_*`) are served as well.\n\n")

	var outcomes []policy.Outcome
	for _, o := range policy.AllOutcomes() {
		if !strings.HasPrefix(o.String(), "gave_up_") {
			outcomes = append(outcomes, o)
		}
	}
	list(&b, "outcome", "What became of a request. Each request has exactly one outcome, so outcomes add up to\n`retryproxy_requests_total`. Besides these there is `gave_up_` with each [reason against a\nretry](#reason-against-a-retry): the request failed without a further retry.", outcomes)
	list(&b, "class", "How certain it is that the upstream did not do the work of an attempt.", policy.AllClasses())
	var retries, reasons []policy.Reason
	for _, r := range policy.AllReasons() {
		if r.ForRetry() {
			retries = append(retries, r)
		} else {
			reasons = append(reasons, r)
		}
	}
	list(&b, "reason (of a retry)", "Which failure a retry was for: the label of `retryproxy_retries_total`.", retries)
	list(&b, "reason (against a retry)", "Why a failure was not retried. It stands in the outcome after `gave_up_`, in the logs, and in the\nresponse header `X-Retryproxy-Reason` (`not_in_retry_on` only if there was no response).", reasons)
	list(&b, "result (of a probe)", "Result of a GET of the probe path: the label of `retryproxy_path_probes_total`.", breaker.AllProbeResults())
	refusals(&b)
	kinds(&b)
	return b.String()
}

// metric writes the entry of a metric.
func metric(b *strings.Builder, m *metrics.Row) {
	fmt.Fprintf(b, "### %s\n\n", code(m.Name))
	paragraph(b, "", "*"+m.Question+"* "+plain(m.Help))
	kind := m.Type.String()
	for i, l := range m.Labels {
		kind += map[bool]string{true: " by ", false: ", "}[i == 0] + code(l)
	}
	fmt.Fprintf(b, "\n- %s\n\n", kind)
}

// explained is a member of a closed set.
type explained interface {
	String() string
	Explain() string
}

func list[T explained](b *strings.Builder, label, intro string, members []T) {
	fmt.Fprintf(b, "## %s\n\n%s\n\n", label, intro)
	for len(members) > 0 {
		var statuses []string
		for ; len(members) > 0 && status.MatchString(members[0].String()); members = members[1:] {
			statuses = append(statuses, code(members[0].String()))
		}
		if statuses != nil {
			paragraph(b, "- ", strings.Join(statuses, ", ")+": The upstream answered with this status.")
			continue
		}
		paragraph(b, "- ", code(members[0].String())+": "+plain(members[0].Explain()))
		members = members[1:]
	}
	b.WriteString("\n")
}

// status matches a label that says all that there is to say.
var status = regexp.MustCompile(`^status_\d+$`)

// section matches the section of an RFC that a refusal cites. The conformance page has them.
var section = regexp.MustCompile(` \(RFC [^)]*\)`)

func refusals(b *strings.Builder) {
	b.WriteString("## reason (of a refusal)\n\nWhy a request was refused before any byte of it was sent upstream: the label of\n`retryproxy_parse_refusals_total`. The connection is closed after the response.\n\n")
	for _, r := range http1.AllRefusals() {
		explain := section.ReplaceAllString(r.Explain(), "")
		paragraph(b, "- ", fmt.Sprintf("%s (%d): %s", code(r.String()), r.Status(), plain(explain)))
	}
	b.WriteString("\n")
}

func kinds(b *strings.Builder) {
	b.WriteString("## kind\n\nWhy a connection to the upstream failed: the label of `retryproxy_upstream_dial_errors_total`.\n\n")
	for i := range upstream.NumDialKinds {
		paragraph(b, "- ", code(upstream.DialKind(i).String())+": "+dialKinds[i])
	}
	b.WriteString("\n## by\n\nWhat opened a circuit breaker: the label of `retryproxy_breaker_opened_total`.\n\n")
	for by := breaker.OpenedByRefused; by <= breaker.OpenedByLost; by++ {
		paragraph(b, "- ", code(by.String())+": "+by.Explain())
	}
}

var dialKinds = [upstream.NumDialKinds]string{
	upstream.KindOther:         "None of the others, for example no permission on a unix socket.",
	upstream.KindRefused:       "Nothing accepted the connection, or it was reset just after that.",
	upstream.KindTimeout:       "The time for the connection or the request was over.",
	upstream.KindDNS:           "The name could not be resolved, or not in time.",
	upstream.KindUnreachable:   "No route leads to the address, or this machine has no address for it.",
	upstream.KindTLS:           "The TLS handshake failed: certificate, name or protocol, or it was cut off.",
	upstream.KindCanceled:      "Nobody needed the connection any more. This says nothing about the upstream.",
	upstream.KindNoDescriptors: "This process or machine had no file descriptor left. This says nothing about the upstream.",
	upstream.KindNoStream:      "For as long as the request could wait, all streams of 512 HTTP/2 connections, the most that an endpoint gets, were in use.",
}
