package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/policy"
)

// line returns one line about the progress.
func (t *traffic) line(elapsed time.Duration) string {
	return fmt.Sprintf("%4.0f s  success %5.1f %% without retries, %5.1f %% with retryproxy (%d requests each)\n",
		elapsed.Seconds(), 100*t.tally[direct].success(), 100*t.tally[proxied].success(), t.tally[proxied].requests())
}

// report returns the final report.
func (t *traffic) report(elapsed time.Duration, up *flaky, routes map[string]*counts) string {
	var b strings.Builder
	fmt.Fprintf(&b, "What clients saw\n\n%-16s %8s %9s", fmt.Sprintf("%.1f s", elapsed.Seconds()), "requests", "success")
	for _, k := range failures {
		fmt.Fprintf(&b, " %5s", k)
	}
	fmt.Fprintf(&b, " %7s %7s\n", "half in", "99 % in")
	for side := range numSides {
		c := &t.tally[side]
		fmt.Fprintf(&b, "%-16s %8d %7.1f %%", side, c.requests(), 100*c.success())
		for _, k := range failures {
			fmt.Fprintf(&b, " %5d", c.count(k))
		}
		fmt.Fprintf(&b, " %7v %7v\n", c.quantile(0.5), c.quantile(0.99))
	}
	sent, proxied := up.sends[direct].Load(), up.sends[proxied].Load()
	fmt.Fprintf(&b, "\nThe upstream got %d requests without retries and %d with retryproxy: %.2f times as many.\n", sent, proxied, float64(proxied)/float64(max(1, sent)))
	if len(routes) > 0 {
		b.WriteString("\nWhat /metrics says, route by route\n\n" + breakdown(routes))
		b.WriteString(whyNot(routes))
	}
	return b.String()
}

// routeNames are the names of the routes in environment.
var routeNames = []string{"search", "upload", "checkout", config.DefaultRoute}

// breakdown has a column per route, and a row per outcome and reason that occurred.
func breakdown(routes map[string]*counts) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-62s", "")
	for _, name := range routeNames {
		fmt.Fprintf(&b, " %9s", name)
	}
	b.WriteString("\n")
	row := func(title string, always bool, count func(*counts) float64) {
		if !always && total(routes, count) == 0 {
			return
		}
		fmt.Fprintf(&b, "%-62s", title)
		for _, name := range routeNames {
			n := 0.0
			if c := routes[name]; c != nil {
				n = count(c)
			}
			fmt.Fprintf(&b, " %9.0f", n)
		}
		b.WriteString("\n")
	}
	row("requests", true, (*counts).requests)
	for _, o := range policy.AllOutcomes() {
		row("  "+o.Words(), false, func(c *counts) float64 { return c.outcomes[o.String()] })
	}
	row("attempts", true, func(c *counts) float64 { return c.attempts })
	for _, why := range policy.AllReasons() {
		row("  retries because of: "+why.Words(), false, func(c *counts) float64 { return c.retries[why.String()] })
	}
	return b.String()
}

func total(routes map[string]*counts, count func(*counts) float64) float64 {
	n := 0.0
	for _, c := range routes {
		n += count(c)
	}
	return n
}

// whyNot explains each reason that prevented a retry.
func whyNot(routes map[string]*counts) string {
	text := ""
	for _, why := range policy.AllReasons() {
		label := policy.GaveUp(why).String()
		if n := total(routes, func(c *counts) float64 { return c.outcomes[label] }); why.WhyNot() && n > 0 {
			text += fmt.Sprintf("%5.0f  %s: %s\n", n, why.Words(), why.Explain())
		}
	}
	if text == "" {
		return ""
	}
	return "\nWhy some failures still reached a client\n\n" + text
}
