package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/assemble"
	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/settings"
)

var checkCommand = command{
	name:    "check",
	args:    "[--all] [--json]",
	summary: "check the settings and print what applies, route by route",
	details: `Reads the environment and the file that RETRYPROXY_ENV_FILE names, as starting
would, and opens nothing. Prints the settings that apply, for every route those
that differ from the default route's, what a request can cost at worst, and
every error and warning. The exit code is 2 when there is an error.`,
	run: runCheck,
}

func runCheck(_ context.Context, c *call) error {
	f := c.flags()
	asJSON := f.Bool("json", false, "print JSON")
	all := f.Bool("all", false, "print every setting of every route")
	if _, err := c.parse(f, 0); err != nil {
		return err
	}
	s, problems := loadAll(c.env)
	if *asJSON {
		if err := printJSON(c.stdout, viewOf(s, problems)); err != nil {
			return err
		}
	} else {
		printCheck(c, s, problems, *all)
	}
	if problems.Err() != nil {
		return fmt.Errorf("%w %w", errTold, settings.ErrInvalid)
	}
	return nil
}

// loadAll loads the settings and tries what they name outside: certificates.
func loadAll(env []string) (*settings.Settings, settings.Problems) {
	s, problems := settings.Load(env)
	problems = append(problems, traceProblems(&outside{env: env})...)
	if problems.Err() != nil {
		return s, problems // what cannot be built says nothing new
	}
	_, err := assemble.Config(s)
	problems = append(problems, assemble.ProblemsOf(err)...)
	if _, err := newFleet(s, zap.NewNop()); err != nil {
		problems = append(problems, settings.Problem{Variable: settings.Prefix + "SHARED", Message: err.Error()})
	}
	return s, problems
}

func printCheck(c *call, s *settings.Settings, problems settings.Problems, all bool) {
	p, w := c.paint(c.stdout), c.stdout
	v := viewOf(s, problems)
	upstream := s.Default.Upstream.String()
	if upstream == "" {
		upstream = "(no upstream)"
	}
	fmt.Fprintf(w, "%s: clients at %s, upstream %s, admin at %s\n", s.Position, strings.Join(v.Listen, ", "), upstream, v.Admin)

	fmt.Fprintf(w, "\n%s\n", p.bold("process"))
	printValues(w, s.Values(), nil)
	shown := map[string]string{}
	for i, r := range s.All() {
		fmt.Fprintf(w, "\n%s%s\n", p.bold("route "+r.Name), matchText(r))
		printWorst(w, v.Routes[i].Worst)
		printValues(w, r.Values(), shown)
		if i == 0 && !all {
			for _, value := range r.Values() {
				shown[value.Key] = value.Text
			}
		}
	}
	fmt.Fprintln(w)
	printProblems(w, p, problems)
	bad, warnings := len(problems.Errors()), plural(len(problems.Warnings()), "warning")
	if bad > 0 {
		fmt.Fprintf(w, "%s: %s, %s\n", p.red("not valid"), plural(bad, "error"), warnings)
		return
	}
	fmt.Fprintf(w, "%s, %s\n", p.green("valid"), warnings)
}

// printValues leaves out what equals the values in same.
func printValues(w io.Writer, values []settings.Value, same map[string]string) {
	t := newTable(w)
	for _, v := range values {
		if text, known := same[v.Key]; known && text == v.Text {
			continue
		}
		text, by := v.Text, "default"
		if text == "" {
			text = "-"
		}
		if v.Variable != "" {
			by = v.Variable
		}
		t.row("  "+v.Key, text, by)
	}
	t.flush()
}

func matchText(r *settings.Route) string {
	var parts []string
	for _, m := range r.MatcherValues() {
		parts = append(parts, strings.ToLower(m.Key)+" "+m.Text)
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

func printWorst(w io.Writer, v *worstView) {
	if v == nil {
		return
	}
	total := "without limit"
	if v.Seconds != nil {
		total = fmt.Sprintf("within %gs", *v.Seconds)
	}
	fmt.Fprintf(w, "  at worst: %s, the response's headers %s; when all are as slow as they may be, %s\n",
		plural(v.Attempts, "attempt"), total, plural(v.SlowAttempts, "attempt"))
	fmt.Fprintf(w, "  upstream load when everything fails: x%.3g", v.Amplification)
	if v.BurstRetries > 0 {
		fmt.Fprintf(w, ", and %s more at once", plural(v.BurstRetries, "request"))
	}
	fmt.Fprintln(w)
}
