package docs

import (
	"fmt"
	"strings"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/verdict"
	"github.com/retryproxy/retryproxy/policy"
)

// RepeatTable answers "will my request be retried?" for the default settings.
func RepeatTable() (string, error) {
	profile, err := policy.FindProfile(policy.DefaultProfile)
	if err != nil {
		return "", err
	}
	p, err := profile.Policy()
	if err != nil {
		return "", err
	}
	columns := [][]verdict.Answer{
		verdict.Ask(&p, verdict.Request{Method: []byte("GET"), Timeout: profile.RequestTimeout}),
		verdict.Ask(&p, verdict.Request{Method: []byte("POST"), HasKey: true, Timeout: profile.RequestTimeout}),
		verdict.Ask(&p, verdict.Request{Method: []byte("POST"), Timeout: profile.RequestTimeout}),
	}
	var rows [][]string
	for i, f := range verdict.Failures() {
		cells := []string{f.Text}
		for _, column := range columns {
			cells = append(cells, cell(&column[i]))
		}
		rows = append(rows, cells)
	}
	var b strings.Builder
	b.WriteString("\n")
	table(&b, []string{"What the upstream did", "`" + strings.ReplaceAll(p.Methods.String(), ",", "`, `") + "`", "`POST`, `PATCH` with `Idempotency-Key`", "`POST`, `PATCH`"}, rows)
	fmt.Fprintf(&b, "At most %d times, all within %s, and only as far as the budget, the time left and the memory for the body allow. `retryproxy explain METHOD URL` answers for your own settings.\n\n",
		p.MaxRetries, profile.RequestTimeout)
	return b.String(), nil
}

func cell(a *verdict.Answer) string {
	switch d := a.Decision; {
	case d.Free:
		return "yes, at once"
	case d.Retry && a.MinWait > 0:
		return fmt.Sprintf("yes, after %s and a little", a.MinWait)
	case d.Retry:
		return "yes"
	}
	return "no"
}
