package docs

import (
	"fmt"
	"strings"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/explain"
)

// RetryTable answers "will my request be retried?" for the default settings.
func RetryTable() (string, error) {
	defaults := config.Defaults("interactive")
	p, err := defaults.Policy()
	if err != nil {
		return "", err
	}
	columns := [][]explain.Answer{
		explain.Ask(&p, explain.Request{Method: []byte("GET"), Timeout: defaults.RequestTimeout}),
		explain.Ask(&p, explain.Request{Method: []byte("POST"), HasKey: true, Timeout: defaults.RequestTimeout}),
		explain.Ask(&p, explain.Request{Method: []byte("POST"), Timeout: defaults.RequestTimeout}),
	}
	var rows [][]string
	for i, f := range explain.Failures() {
		cells := []string{f.Text}
		for _, column := range columns {
			cells = append(cells, cell(&column[i]))
		}
		rows = append(rows, cells)
	}
	var b strings.Builder
	b.WriteString("\n")
	table(&b, []string{"What the upstream did", "`" + strings.ReplaceAll(p.Methods.String(), ",", "`, `") + "`", "`POST`, `PATCH` with `Idempotency-Key`", "`POST`, `PATCH`"}, rows)
	fmt.Fprintf(&b, "There are at most %d retries beside probes, all within %s. There is no retry if the retry budget is\n"+
		"empty (outbound: and has no token within the time left), the wait does not fit into the time left, or\n"+
		"the retry buffer does not have the whole body.\n"+
		"`retryproxy explain METHOD URL` answers for the settings of your shell.\n\n",
		p.MaxRetries, defaults.RequestTimeout)
	return b.String(), nil
}

func cell(a *explain.Answer) string {
	switch d := a.Decision; {
	case d.Free:
		return "yes, at once"
	case d.Retry && a.MinWait > 0:
		return fmt.Sprintf("yes, after %s plus jitter", a.MinWait)
	case d.Retry:
		return "yes"
	}
	return "no"
}
