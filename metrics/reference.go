package metrics

import "slices"

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
