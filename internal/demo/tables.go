package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// report is all that is shown at one moment.
type report struct {
	elapsed time.Duration
	sides   [numSides]counts
	sends   [numSides]uint64
	routes  []routeCounts
}

// style makes text stand out, or leaves it as it is.
type style struct{ color bool }

func (s style) bold(text string) string { return s.wrap("1", text) }

func (s style) good(text string) string { return s.wrap("32", text) }

func (s style) wrap(code, text string) string {
	if !s.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// line is the progress of a moment in one line.
func (r *report) line() string {
	retries := r.total(func(c *routeCounts) int { return sum(c.retries, "") })
	return fmt.Sprintf("%4.0f s  success %5.1f %% without retries, %5.1f %% with retryproxy (%d requests each, %d retries)\n",
		r.elapsed.Seconds(), 100*r.sides[direct].success(), 100*r.sides[proxied].success(), r.sides[proxied].requests(), retries)
}

// live is the small table redrawn in place.
func (r *report) live(s style) string {
	return r.clients(s) + "\n" + r.summary(s)
}

// clients compares what the clients of both sides saw.
func (r *report) clients(s style) string {
	var b strings.Builder
	head := fmt.Sprintf("%-16s %8s %9s", fmt.Sprintf("%.1f s", r.elapsed.Seconds()), "requests", success)
	for k := success + 1; k < numKinds; k++ {
		head += fmt.Sprintf(" %5s", k)
	}
	b.WriteString(s.bold(head+fmt.Sprintf(" %7s %7s", "p50", "p99")) + "\n")
	for side := range numSides {
		c := &r.sides[side]
		row := fmt.Sprintf("%-16s %8d %7.1f %%", side, c.requests(), 100*c.success())
		for k := success + 1; k < numKinds; k++ {
			row += fmt.Sprintf(" %5d", c.kinds[k])
		}
		row += fmt.Sprintf(" %7s %7s", short(c.quantile(0.5)), short(c.quantile(0.99)))
		if side == proxied {
			row = s.good(row)
		}
		b.WriteString(row + "\n")
	}
	return b.String()
}

// summary is a line per route.
func (r *report) summary(s style) string {
	var b strings.Builder
	b.WriteString(s.bold(fmt.Sprintf("%-16s %8s %9s %9s %9s %9s %9s", "route", "requests", "success", "recovered", "gave up", "retries", "attempts")) + "\n")
	for i := range r.routes {
		c := &r.routes[i]
		fmt.Fprintf(&b, "%-16s %8d %9d %9d %9d %9d %9d\n", c.name, c.requests(), c.outcomes[policy.OutcomeSuccess.String()],
			c.outcomes[policy.OutcomeRecovered.String()], sum(c.outcomes, "gave_up_"), sum(c.retries, ""), c.attempts)
	}
	return b.String()
}

// final is everything, at the end.
func (r *report) final(s style) string {
	var b strings.Builder
	b.WriteString("What clients saw\n\n" + r.clients(s))
	fmt.Fprintf(&b, "\nThe upstream got %d requests without retries and %d with retryproxy: %.2f times as many.\n",
		r.sends[direct], r.sends[proxied], float64(r.sends[proxied])/float64(max(1, r.sends[direct])))
	b.WriteString("\nWhat /metrics says, route by route\n\n" + r.breakdown(s))
	if why := r.whyNot(); why != "" {
		b.WriteString("\nWhy some failures still reached a client\n\n" + why)
	}
	return b.String()
}

// breakdown has a column per route and a row per outcome and reason that
// occurred.
func (r *report) breakdown(s style) string {
	var b strings.Builder
	head := fmt.Sprintf("%-36s", "")
	for i := range r.routes {
		head += fmt.Sprintf(" %9s", r.routes[i].name)
	}
	b.WriteString(s.bold(head) + "\n")
	r.row(&b, "requests", (*routeCounts).requests)
	for _, o := range policy.AllOutcomes() {
		r.rowIfAny(&b, "  "+o.String(), func(c *routeCounts) int { return c.outcomes[o.String()] })
	}
	r.row(&b, "attempts", func(c *routeCounts) int { return c.attempts })
	r.row(&b, "retries", func(c *routeCounts) int { return sum(c.retries, "") })
	for _, why := range policy.AllReasons() {
		r.rowIfAny(&b, "  because of "+why.String(), func(c *routeCounts) int { return c.retries[why.String()] })
	}
	return b.String()
}

func (r *report) row(b *strings.Builder, title string, count func(*routeCounts) int) {
	fmt.Fprintf(b, "%-36s", title)
	for i := range r.routes {
		fmt.Fprintf(b, " %9d", count(&r.routes[i]))
	}
	b.WriteString("\n")
}

// rowIfAny leaves the row out when all counts are 0.
func (r *report) rowIfAny(b *strings.Builder, title string, count func(*routeCounts) int) {
	if r.total(count) > 0 {
		r.row(b, title, count)
	}
}

func (r *report) total(count func(*routeCounts) int) int {
	n := 0
	for i := range r.routes {
		n += count(&r.routes[i])
	}
	return n
}

// whyNot explains each reason that kept a failure from being retried.
func (r *report) whyNot() string {
	var b strings.Builder
	for _, why := range policy.AllReasons() {
		label := policy.GaveUp(why).String()
		n := r.total(func(c *routeCounts) int { return c.outcomes[label] })
		if why.WhyNot() && n > 0 {
			fmt.Fprintf(&b, "%5d  %s: %s\n", n, why, why.Explain())
		}
	}
	return b.String()
}

// short rounds a latency to what can be read at a glance.
func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
