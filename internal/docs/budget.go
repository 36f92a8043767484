package docs

import (
	"fmt"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/policy/budget"
)

// BudgetTable shows what the default retry budget allows if every request fails, by asking a Budget as a busy
// proxy would: for each rate, all retries that it permits.
func BudgetTable() string {
	const first, later = 10 * time.Second, 10 * time.Minute
	var rows [][]string
	for _, rate := range []int{1, 10, 50, 200, 1000} {
		b := budget.New(budget.Default())
		requests, retries, early := 0, 0, ""
		for now := time.Duration(0); now < later; now += time.Second / time.Duration(rate) {
			if now == first {
				early = share(retries, requests)
				requests, retries = 0, 0
			}
			b.Request(now)
			requests++
			for b.TryRetry(now) {
				retries++
			}
		}
		rows = append(rows, []string{fmt.Sprint(rate), early, share(retries, requests)})
	}
	c := budget.Default()
	var b strings.Builder
	fmt.Fprintf(&b, "\nIn any t seconds, an upstream with n requests gets at most\n"+
		"`BUDGET_BURST + BUDGET_RATIO × (n + requests of the 10 s before) + BUDGET_MIN_PER_SECOND × t` of these retries\n"+
		"from one process: with the defaults %d + %v × (n + ...) + %v × t. If every request fails, the budget allows at most:\n\n",
		c.Burst, c.Ratio, c.MinPerSecond)
	table(&b, []string{"Requests a second", "Retries in the first 10 s, in percent of them", "Later"}, rows)
	return b.String()
}

func share(retries, requests int) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", 100*float64(retries)/float64(requests)), ".0") + " %"
}
