package plan

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/retryproxy/retryproxy/ctl/plot"
	"github.com/retryproxy/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/internal/text"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
)

// Text writes the plan for people: a table per strategy, the plot, the worst cases and, if a time
// was given, what happens until then.
func (p *Plan) Text(w io.Writer, v View, s terminal.Screen) {
	out := &printer{w, text.PaintOf(s)}
	for i := range p.Lines {
		out.line(&p.Lines[i])
	}
	if p.Drawable() {
		out.printf("%s\n", p.Figure(v).Text(s))
	}
	out.worst(p)
	out.reach(p)
}

type printer struct {
	w io.Writer
	text.Paint
}

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(p.w, format, args...) }

// line prints a strategy's table.
func (p *printer) line(l *Line) {
	info, _ := backoff.Describe(l.Strategy)
	p.printf("%s: %s\nwait = %s\n", p.Bold(l.Label), l.describe(), info.Formula)
	if len(l.Rows) == 0 {
		p.printf("no retries\n\n")
		return
	}
	text.Columns(p.w, l.table(), false)
	if !backoff.Bounded(l.Backoff) {
		p.printf("the waits have no maximum: 1 in 1000 is longer than the longest shown, and 1 in 1000 is shorter than the shortest shown; the same holds for the times when retries begin\n")
	}
	if b := l.budget(); b != nil && l.bounded() {
		p.printf("a retry is made only with a token of %s, which all requests share: %d tokens at first, then %s per request and %s per second\n",
			l.budgetName(), b.Burst, decimal(b.Ratio), decimal(b.MinPerSecond))
	}
	p.printf("\n")
}

// table returns the rows of the line under a header; with a single column of waits if they are not
// random.
func (l *Line) table() [][]string {
	head := []string{"retry", "wait", "begins after"}
	varies := l.varies()
	if varies {
		head = []string{"retry", "shortest wait", "mean", "longest", "begins after", "mean", "at the latest"}
	}
	if l.bounded() {
		head = append(head, "made")
	}
	rows := [][]string{head}
	for _, r := range l.Rows {
		row := []string{strconv.Itoa(r.Retry), span(r.Wait.Min), span(r.Total.Min)}
		if varies {
			row = append([]string{row[0]}, span(r.Wait.Min), span(r.Wait.Mean), span(r.Wait.Max), span(r.Total.Min), span(r.Total.Mean), span(r.Total.Max))
		}
		if l.bounded() {
			row = append(row, string(l.made(r)))
		}
		rows = append(rows, row)
	}
	return rows
}

// worst prints the worst case of each strategy.
func (p *printer) worst(plan *Plan) {
	p.printf("%s (not counted: %s)\n", p.Bold("At worst"), policy.NotCounted)
	for i := range plan.Lines {
		l := &plan.Lines[i]
		p.printf("  %s: at most %s, %s\n", l.Label, text.Plural(l.Worst.Attempts, "attempt"), l.inTime())
		p.printf("    upstream load if everything fails: %s\n", l.load())
	}
}

// inTime describes how long the attempts may take.
func (l *Line) inTime() string {
	w := l.Worst
	mostly := ""
	if !backoff.Bounded(l.Backoff) {
		mostly = " in 999 of 1000 cases"
	}
	last := "the last one starts within " + span(w.LastBegins) + mostly
	if w.SlowAttempts != w.Attempts {
		slow := "with the longest waits, "
		if l.Route != "" {
			slow = "if the upstream is slow, "
		}
		last = slow + text.Plural(w.SlowAttempts, "attempt") + ", the last one starts after " + span(w.LastBegins) + mostly
	}
	switch {
	case w.Total == backoff.Forever && w.Attempts == 1:
		return "no limit on time"
	case w.Total == backoff.Forever:
		return last + "; no limit on time"
	case w.Attempts == 1:
		return "response headers within " + span(w.Total)
	}
	return "response headers within " + span(w.Total) + "; " + last
}

func (l *Line) load() string {
	alone := fmt.Sprintf("x%d", l.Worst.Attempts)
	if l.Worst.Attempts == 1 {
		return alone
	}
	b := l.budget()
	if b == nil {
		return alone + ", because there is no retry budget"
	}
	with := fmt.Sprintf("x%.3g plus up to %s at once", b.Amplification(l.Worst.Attempts, 0), text.Plural(b.Burst, "retry"))
	if l.Route == "" {
		return alone + "; with " + l.budgetName() + " " + with
	}
	return with + "; without its retry budget " + alone
}

// budget returns the line's own budget or, for a strategy that the user named, the default one.
func (l *Line) budget() *budget.Config {
	if l.Route == "" {
		return new(budget.Default())
	}
	return l.Budget
}

func (l *Line) budgetName() string {
	if l.Route == "" {
		return "the default retry budget"
	}
	return "the retry budget"
}

// decimal formats v without an exponent.
func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// reach prints the answers for the given time.
func (p *printer) reach(plan *Plan) {
	t := plan.Options.Elapsed
	if t > 0 {
		p.recovery(plan, t)
	}
	for i := range plan.Lines {
		p.ratio(&plan.Lines[i], t)
	}
	for _, c := range plan.Changes {
		p.printf("  %s instead of %s: %.3g times as many attempts in the long run", c.To, c.From, c.LongRun)
		if c.Within > 0 {
			p.printf(", %.3g times until %s", c.Within, span(t))
		}
		p.printf("\n")
	}
}

// recovery prints when each strategy notices a recovery.
func (p *printer) recovery(plan *Plan, t time.Duration) {
	p.printf("\n%s\n", p.Bold(fmt.Sprintf("If the upstream recovers after %s, and retries continue until then", span(t))))
	rows := [][]string{{"", "retries", "last begun at", "next wait", "noticed at", "late by"}}
	random := false
	for i := range plan.Lines {
		l := &plan.Lines[i]
		rows = append(rows, l.Reach.row(l.Label))
		random = random || l.Reach.random()
	}
	text.Columns(p.w, rows, true)
	if random {
		p.printf("  (mean; in brackets, 95 %% of values are at least the first and 95 %% at most the second)\n")
	}
}

func (r *Reach) row(label string) []string {
	if r.Endless {
		return []string{label, "over " + strconv.Itoa(maxSteps), "-", "-", "-", "-"}
	}
	row := []string{label, number(r.Retries, func(v float64) string { return decimal(math.Round(v*100) / 100) })}
	for _, s := range []Spread{r.LastBegan, r.NextWait, r.Noticed, r.Late} {
		row = append(row, number(s, seconds))
	}
	return row
}

// number formats a spread to a hundredth of its width or better, since further digits are random. A
// number that is not random is exact.
func number(s Spread, format func(float64) string) string {
	if s.Low == s.High {
		return format(s.Low)
	}
	unit := math.Pow(10, math.Floor(math.Log10(s.High-s.Low))-1)
	round := func(v float64) string { return format(math.Round(v/unit) * unit) }
	return fmt.Sprintf("%s (%s, %s)", round(s.Mean), round(s.Low), round(s.High))
}

// ratio prints the closed forms.
func (p *printer) ratio(l *Line, t time.Duration) {
	r, is := l.ratio()
	if !is || t <= 0 {
		return
	}
	p.printf("  %s in closed form, with a = %s and r = %g:\n", l.Label, span(r.First), r.Growth())
	p.printf("    wait after %s: a + (r-1)T = %s\n    attempts until then: log_r(1 + (r-1)T/a) = %.4g\n", span(t), span(r.After(t)), r.Tries(t))
	if r.After(t) > r.Max {
		p.printf("    this ignores that no wait is longer than %s\n", span(r.Max))
	}
}

func seconds(v float64) string { return span(time.Duration(math.Round(v * 1e9))) }

// span formats a duration for a table: three digits below a second, milliseconds up to an hour,
// seconds up to a day, minutes above.
func span(d time.Duration) string {
	switch whole := d.Round(time.Second); {
	case d == backoff.Forever:
		return "no end"
	case time.Hour <= whole && whole < 24*time.Hour && whole%time.Minute != 0:
		return whole.String()
	case d < time.Second || d >= time.Hour:
		return plot.Duration(d.Seconds())
	}
	return strconv.FormatFloat(float64(d.Round(time.Millisecond)/time.Millisecond)/1000, 'f', -1, 64) + "s"
}
