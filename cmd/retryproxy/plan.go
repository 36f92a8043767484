package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/internal/plan"
	"github.com/retryproxy/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/internal/text"
	"github.com/retryproxy/retryproxy/plot"
)

var planCommand = command{
	name:    "plan",
	args:    "[--route NAME | --backoff NAME[,NAME...]] [--elapsed 1000s] [--json]",
	summary: "show what a backoff does: every wait, the worst case, and when a recovery is noticed",
	details: `For each strategy, prints when its retries begin, draws them in one diagram, and
names the worst case. It sends nothing.

--route takes strategy and limits of a route from the settings. --backoff takes
strategies by name, each with options if needed, such as normal:base=1s:factor=1.5
(docs/reference/settings.md lists them).
Use both to compare. Without either, it shows the default strategy, or with --ratio
the strategy ratio.

--elapsed asks what happens if the upstream comes back after that time: how many
retries there were, how long the wait is then, and when the recovery is noticed.

--json prints the plot's numbers instead. retryproxy-plot, a separate program that keeps
this one small, draws a picture of them:

  retryproxy plan --route default --json | retryproxy-plot --png waits.png`,
	run: runPlan,
}

// list collects the values of a repeatable flag.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(s string) error {
	*l = append(*l, s)
	return nil
}

// planFlags are the flags of plan.
type planFlags struct {
	wish    plan.Wish
	routes  list
	options plan.Options
	axis    string
	show    string
	json    bool
}

// ofBackoff are the flags that apply to strategies named by flags only.
var ofBackoff = []string{"retries", "request-timeout"}

func parsePlan(c *call) (*planFlags, error) {
	var p planFlags
	f := c.flags()
	f.Var(&p.routes, "route", "plan these routes of the settings, `NAME[,NAME...]`; default is the route for all other requests")
	f.Var((*list)(&p.wish.Backoffs), "backoff", "plan these strategies, `NAME[:option=value...][,NAME...]`; may be repeated")
	f.Var((*list)(&p.wish.Ratios), "ratio", "plan the strategy ratio with these ratios of the wait to the time elapsed, `R[,R...]`; may be repeated")
	f.IntVar(&p.wish.Retries, "retries", 10, "maximum number of retries of --backoff")
	f.DurationVar(&p.wish.RequestTimeout, "request-timeout", 0, "time for all attempts and waits of --backoff; 0 means no limit")
	f.DurationVar(&p.options.Attempt, "attempt", 0, "assumed duration of each failing attempt")
	f.DurationVar(&p.options.Elapsed, "elapsed", 0, "show what happens if the upstream recovers after this time")
	f.Uint64Var(&p.options.Seed, "seed", 1, "seed of the random waits; the same seed gives the same plan")
	f.StringVar(&p.axis, "axis", "", "linear, log or both; default log for text, both for JSON")
	f.StringVar(&p.show, "show", "wait", "wait: the wait before each retry; total: when it begins")
	f.BoolVar(&p.json, "json", false, "print the plot's numbers as JSON, for retryproxy-plot")
	if _, err := c.parse(f, 0); err != nil {
		return nil, err
	}
	if err := p.check(f); err != nil {
		return nil, c.usage(f, err)
	}
	return &p, nil
}

// check returns an error for combinations of flags without meaning.
func (p *planFlags) check(f *flag.FlagSet) error {
	var errs []error
	named := len(p.wish.Backoffs) > 0 || len(p.wish.Ratios) > 0
	f.Visit(func(given *flag.Flag) {
		if len(p.routes) > 0 && !named && slices.Contains(ofBackoff, given.Name) {
			errs = append(errs, fmt.Errorf("--%s applies to --backoff, but only --route is given", given.Name))
		}
		if getter, is := given.Value.(flag.Getter); is {
			if d, is := getter.Get().(time.Duration); is && d < 0 {
				errs = append(errs, fmt.Errorf("--%s is below 0", given.Name))
			}
		}
	})
	if p.wish.Retries < 0 || p.wish.Retries > plan.MaxRetries {
		errs = append(errs, fmt.Errorf("--retries: expected 0 to %d", plan.MaxRetries))
	}
	if !slices.Contains([]string{"", "linear", "log", "both"}, p.axis) {
		errs = append(errs, errors.New("--axis: expected linear, log or both"))
	}
	if p.show != "wait" && p.show != "total" {
		errs = append(errs, errors.New("--show: expected wait or total"))
	}
	return errors.Join(errs...)
}

// view returns what the plot shows.
func (p *planFlags) view() plan.View {
	axis := p.axis
	if axis == "" {
		axis = map[bool]string{true: "both", false: "log"}[p.json]
	}
	return plan.View{Total: p.show == "total", Linear: axis != "log", Log: axis != "linear"}
}

func runPlan(_ context.Context, c *call) error {
	p, err := parsePlan(c)
	if err != nil {
		return err
	}
	candidates, err := p.candidates(c)
	if err != nil {
		return err
	}
	plan := plan.Make(candidates, p.options)
	switch {
	case !p.json:
		plan.Text(c.stdout, p.view(), terminal.ScreenOf(c.stdout, c.getenv))
		return nil
	case !plan.Drawable():
		return errors.New("nothing to draw: there are no retries")
	}
	return text.JSON(c.stdout, plot.Document{Figure: plan.Figure(p.view())})
}

// candidates returns the routes, then the strategies named by flags.
func (p *planFlags) candidates(c *call) ([]plan.Candidate, error) {
	candidates, err := p.fromRoutes(c)
	if err != nil {
		return nil, err
	}
	if len(p.routes) > 0 && len(p.wish.Backoffs) == 0 && len(p.wish.Ratios) == 0 {
		return candidates, nil
	}
	named, err := plan.Parse(p.wish)
	if err != nil {
		return nil, c.wrong(err)
	}
	return append(candidates, named...), nil
}

// wrong prints the errors of the arguments.
func (c *call) wrong(err error) error {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(c.stderr, "retryproxy %s: %s\n", c.command.name, line)
	}
	return errUsage
}

// fromRoutes reads the settings if a route is named.
func (p *planFlags) fromRoutes(c *call) ([]plan.Candidate, error) {
	routes, err := c.routes(p.routes)
	var candidates []plan.Candidate
	for _, r := range routes {
		candidate, err := plan.FromRoute(r)
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, candidate)
	}
	return candidates, err
}
