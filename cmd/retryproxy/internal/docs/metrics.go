package docs

import (
	"fmt"
	"strings"

	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

const metricsIntro = `# Metrics

Served in the Prometheus text format at ` + "`/metrics`" + ` of the admin listener (` + "`RETRYPROXY_ADMIN_LISTEN`" + `). Values of labels come from closed sets, listed below, and from
the configuration: ` + "`route`" + ` is a route's name or ` + "`default`" + `, ` + "`upstream`" + ` the upstream's URL. They never come from a request: methods outside the standard
ones and codes outside 100 to 599 are counted as ` + "`other`" + `.

A series of a route appears when it is first used; for the first 100 routes every outcome is there at 0 from the start, so that rates have a beginning.

`

// Metrics is docs/metrics.md.
func Metrics() string {
	var b strings.Builder
	b.WriteString(note)
	b.WriteString(metricsIntro)
	var rows [][]string
	for _, m := range metrics.Reference() {
		var labels []string
		for _, l := range m.Labels {
			labels = append(labels, code(l))
		}
		rows = append(rows, []string{code(m.Name), m.Type.String(), strings.Join(labels, ", "), m.Question, m.Help})
	}
	table(&b, []string{"Metric", "Type", "Labels", "Answers", "Counts"}, rows)
	b.WriteString("Those of the Go runtime (`go_*`) and of the process (`process_*`) are there as well.\n\n")

	list(&b, "outcome", "What became of a request. Each request has exactly one, so that they add up to `retryproxy_requests_total`.", policy.AllOutcomes())
	list(&b, "class", "How sure it is that the upstream did nothing with an attempt.", policy.AllClasses())
	var retries, reasons []policy.Reason
	for _, r := range policy.AllReasons() {
		if r.ForRetry() {
			retries = append(retries, r)
		} else {
			reasons = append(reasons, r)
		}
	}
	list(&b, "reason (of a retry)", "What a retry was for: the label of `retryproxy_retries_total`.", retries)
	list(&b, "reason (against a retry)", "Why a failure was not retried: in the outcome after `gave_up_`, in the field `X-Retryproxy-Reason` of the response and in the logs.", reasons)
	list(&b, "result (of a probe)", "What a probe by GET found: the label of `retryproxy_path_probes_total`.", policy.AllProbeResults())
	refusals(&b)
	kinds(&b)
	return b.String()
}

// explained is a member of a closed set.
type explained interface {
	String() string
	Explain() string
}

func list[T explained](b *strings.Builder, label, intro string, members []T) {
	fmt.Fprintf(b, "## %s\n\n%s\n\n", label, intro)
	var rows [][]string
	for _, m := range members {
		rows = append(rows, []string{code(m.String()), m.Explain()})
	}
	table(b, []string{"Value", "Meaning"}, rows)
}

func refusals(b *strings.Builder) {
	b.WriteString("## reason (of a refusal)\n\nWhy a request was refused before anything of it was sent: the label of `retryproxy_parse_refusals_total`. The connection is closed after the response.\n\n")
	var rows [][]string
	for _, r := range http1.AllRefusals() {
		rows = append(rows, []string{code(r.String()), fmt.Sprint(r.Status()), r.Explain()})
	}
	table(b, []string{"Value", "Status", "Meaning"}, rows)
}

func kinds(b *strings.Builder) {
	b.WriteString("## kind\n\nWhy no connection to the upstream could be had: the label of `retryproxy_upstream_dial_errors_total`.\n\n")
	var names []string
	for i := range upstream.NumDialKinds {
		names = append(names, code(upstream.DialKind(i).String()))
	}
	b.WriteString(strings.Join(names, ", ") + ".\n")
}
