package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/retryproxy/retryproxy/ctl/plan"
	"github.com/retryproxy/retryproxy/ctl/plot"
	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/internal/text"
	"github.com/retryproxy/retryproxy/policy/backoff"
)

// planFlags are the flags of plan.
type planFlags struct {
	wish    plan.Wish
	routes  []string
	options plan.Options
	axis    string
	show    string
	json    bool
}

// ofBackoff are the flags that apply to strategies named by flags only.
var ofBackoff = []string{"retries", "request-timeout"}

func planCommand(o *outside) *cobra.Command {
	var p planFlags
	c := &cobra.Command{
		Use:   "plan [--route NAME | --backoff NAME[,NAME...]] [--elapsed 1000s] [--json]",
		Short: "show what a backoff does: every wait, the worst case, and when a recovery is noticed",
		Long: `For each strategy, prints when its retries begin, draws them in one diagram, and
names the worst case. It sends nothing.

--route takes strategy and limits of a route from the settings. --backoff takes
strategies by name, each with options if needed, such as normal:base=1s:factor=1.5
(docs/reference/settings.md lists them).
Use both to compare. Without either, it shows the default strategy, or with --ratio
the strategy ratio.

--elapsed asks what happens if the upstream comes back after that time: how many
retries there were, how long the wait is then, and when the recovery is noticed.

--json prints the plot's numbers instead, from which plot draws a picture:

  retryproxyctl plan --route default --json | retryproxyctl plot --png waits.png`,
		RunE: func(c *cobra.Command, _ []string) error { return p.run(o, c) },
	}
	f := c.Flags()
	f.StringArrayVar(&p.routes, "route", nil, "plan these routes of the settings, `NAME[,NAME...]`; default is the route for all other requests")
	f.StringArrayVar(&p.wish.Backoffs, "backoff", nil, "plan these strategies, `NAME[:option=value...][,NAME...]`; may be repeated")
	f.StringArrayVar(&p.wish.Ratios, "ratio", nil, "plan the strategy ratio with these ratios of the wait to the time elapsed, `R[,R...]`; may be repeated")
	f.IntVar(&p.wish.Retries, "retries", 10, "maximum number of retries of --backoff")
	f.DurationVar(&p.wish.RequestTimeout, "request-timeout", 0, "time for all attempts and waits of --backoff; 0 means no limit")
	f.DurationVar(&p.options.Attempt, "attempt", 0, "assumed duration of each failing attempt")
	f.DurationVar(&p.options.Elapsed, "elapsed", 0, "show what happens if the upstream recovers after this time")
	f.Uint64Var(&p.options.Seed, "seed", 1, "seed of the random waits; the same seed gives the same plan")
	f.StringVar(&p.axis, "axis", "", "linear, log or both; default log for text, both for JSON")
	f.StringVar(&p.show, "show", "wait", "wait: the wait before each retry; total: when it begins")
	f.BoolVar(&p.json, "json", false, "print the plot's numbers as JSON, for plot")
	o.completeRoutes(c)
	complete(c, "backoff", backoff.Strategies()...)
	complete(c, "axis", "linear", "log", "both")
	complete(c, "show", "wait", "total")
	return c
}

// check returns an error for combinations of flags without meaning.
func (p *planFlags) check(f *pflag.FlagSet) error {
	var errs []error
	named := len(p.wish.Backoffs) > 0 || len(p.wish.Ratios) > 0
	f.Visit(func(given *pflag.Flag) {
		if len(p.routes) > 0 && !named && slices.Contains(ofBackoff, given.Name) {
			errs = append(errs, fmt.Errorf("--%s applies to --backoff, but only --route is given", given.Name))
		}
		if d, err := time.ParseDuration(given.Value.String()); err == nil && d < 0 && given.Value.Type() == "duration" {
			errs = append(errs, fmt.Errorf("--%s: expected 0 or more", given.Name))
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

func (p *planFlags) run(o *outside, c *cobra.Command) error {
	if err := p.check(c.Flags()); err != nil {
		return wrong(c, err)
	}
	candidates, err := p.candidates(o, c)
	if err != nil {
		return err
	}
	plan := plan.Make(candidates, p.options)
	switch {
	case !p.json:
		plan.Text(o.stdout, p.view(), terminal.ScreenOf(o.stdout, config.Getenv(o.env)))
		return nil
	case !plan.Drawable():
		return errors.New("nothing to draw: there are no retries")
	}
	return text.JSON(o.stdout, plot.Document{Figure: plan.Figure(p.view())})
}

// candidates returns the routes, then the strategies named by flags.
func (p *planFlags) candidates(o *outside, c *cobra.Command) ([]plan.Candidate, error) {
	routes, err := o.routes(c, p.routes)
	if err != nil {
		return nil, err
	}
	var candidates []plan.Candidate
	for _, r := range routes {
		candidate, err := plan.FromRoute(r)
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, candidate)
	}
	if len(p.routes) > 0 && len(p.wish.Backoffs) == 0 && len(p.wish.Ratios) == 0 {
		return candidates, nil
	}
	named, err := plan.Parse(p.wish)
	if err != nil {
		return nil, wrong(c, err)
	}
	return append(candidates, named...), nil
}
