package effective

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/text"
	"github.com/retryproxy/retryproxy/policy"
)

// Text writes the settings, route by route, and the problems. For the process and the default route
// it writes the usual settings and those that were set; for other routes, those that differ from
// the default route. all means every setting of every route. Problems are for the caller to write: the
// errors are needed also where nobody reads the settings.
func Text(w io.Writer, p text.Paint, s *config.Settings, problems config.Problems, all bool) {
	v, admin := Of(s, problems), "no admin listener"
	if v.Admin != "off" {
		admin = "admin at " + v.Admin
	}
	switch upstream := s.Default.Upstream.String(); {
	case upstream == "" && s.Variable("POSITION") == "":
		fmt.Fprintf(w, "no upstream: the defaults below are those of an outbound retryproxy, in front of a remote service; %s\n", admin)
	case upstream == "":
		fmt.Fprintf(w, "%s: clients at %s, no upstream, %s\n", s.Position, strings.Join(v.Listen, ", "), admin)
	default:
		fmt.Fprintf(w, "%s: clients at %s, upstream %s, %s\n", s.Position, strings.Join(v.Listen, ", "), upstream, admin)
	}

	fmt.Fprintf(w, "\n%s\n", p.Bold("process"))
	left := printValues(w, s, s.Values(), func(v config.Value) bool { return all || isWorthShowing(v) })
	usual := map[string]string{} // the default route's
	for i, r := range s.All() {
		fmt.Fprintf(w, "\n%s%s\n", p.Bold("route "+r.Name), matchText(r))
		printWorst(w, v.Routes[i].Worst)
		if i == 0 {
			fmt.Fprintf(w, "  not counted: %s\n", policy.NotCounted)
			for _, value := range r.Values() {
				usual[value.Key] = value.Text
			}
			left += printValues(w, s, r.Values(), func(v config.Value) bool { return all || isWorthShowing(v) })
			continue
		}
		printValues(w, s, r.Values(), func(v config.Value) bool { return all || v.Text != usual[v.Key] })
	}
	fmt.Fprintln(w)
	if left > 0 {
		fmt.Fprintf(w, "%d more have their defaults: retryproxy check --all\n\n", left)
	}
	bad, warnings := len(problems.Errors()), text.Plural(len(problems.Warnings()), "warning")
	if bad > 0 {
		fmt.Fprintf(w, "%s: %s, %s\n", p.Red("not valid"), text.Plural(bad, "error"), warnings)
		return
	}
	fmt.Fprintf(w, "%s, %s\n", p.Green("valid"), warnings)
}

// isWorthShowing reports whether most users want to see a setting of the default route.
func isWorthShowing(v config.Value) bool { return v.Usual || v.Variable != "" || v.Profile != "" }

// printValues writes the values for which show returns true, and returns the number of others.
func printValues(w io.Writer, s *config.Settings, values []config.Value, show func(config.Value) bool) (left int) {
	t := text.NewTable(w)
	for _, v := range values {
		if !show(v) {
			left++
			continue
		}
		text, by := v.Text, "default"
		if text == "" {
			text = "-"
		}
		switch {
		case v.Variable != "":
			by = cmp.Or(s.Place(v.Variable), v.Variable)
		case v.Profile != "":
			by = "PROFILE=" + v.Profile
		}
		t.Row("  "+v.Key, text, by)
	}
	t.Flush()
	return left
}

func matchText(r *config.Route) string {
	if match := r.MatchText(); match != "" {
		return ": " + match
	}
	return ""
}

func printWorst(w io.Writer, v *Worst) {
	if v == nil {
		return
	}
	total := "without limit"
	if v.Seconds != nil {
		total = fmt.Sprintf("within %gs", *v.Seconds)
	}
	fmt.Fprintf(w, "  a request at worst: %s, response headers %s", text.Plural(v.Attempts, "attempt"), total)
	if v.SlowAttempts < v.Attempts {
		fmt.Fprintf(w, "; only %s if the upstream is slow", text.Plural(v.SlowAttempts, "attempt"))
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "  upstream load if everything fails: x%.3g", v.Amplification)
	if v.BurstRetries > 0 {
		fmt.Fprintf(w, " plus up to %s at once", text.Plural(v.BurstRetries, "retry"))
	}
	fmt.Fprintln(w)
}
