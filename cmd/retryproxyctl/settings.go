package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/text"
)

// settings returns the settings of the environment, or an error after it has printed what is wrong.
func (o *outside) settings() (*config.Settings, error) {
	s, problems := config.Load(o.env)
	if problems.Err() != nil {
		text.Problems(o.stderr, text.PaintFor(o.stderr, config.Getenv(o.env)), problems)
		return nil, fmt.Errorf("%w %w", errReported, config.ErrInvalid)
	}
	return s, nil
}

// routes returns the routes of the settings that a flag names, or none if it names none.
func (o *outside) routes(c *cobra.Command, named []string) ([]*config.Route, error) {
	if len(named) == 0 {
		return nil, nil
	}
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	var routes []*config.Route
	for name := range strings.SplitSeq(strings.Join(named, ","), ",") {
		r := s.Find(strings.TrimSpace(name))
		if r == nil {
			return nil, wrong(c, fmt.Errorf("no route %q; RETRYPROXY_ROUTES lists the routes", name))
		}
		if slices.Contains(routes, r) {
			return nil, wrong(c, errors.New("--route: "+r.Name+" is given twice"))
		}
		routes = append(routes, r)
	}
	return routes, nil
}

// completeRoutes offers the routes of the settings to the shell.
func (o *outside) completeRoutes(c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("route", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		s, _ := config.Load(o.env)
		for _, r := range s.All() {
			names = append(names, r.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}
