// Package effective presents the configuration in effect: as JSON for the admin listener and
// `retryproxy check`, and as text.
package effective

import (
	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/policy/backoff"
)

// Config is the configuration in effect as shown by /config and `check --json`. Secrets are masked.
type Config struct {
	Position string           `json:"position"`
	Listen   []string         `json:"listen"`
	Admin    string           `json:"admin"`
	Settings map[string]Value `json:"settings"` // by variable
	Routes   []Route          `json:"routes"`   // default first
	Errors   []string         `json:"errors,omitempty"`
	Warnings []string         `json:"warnings,omitempty"`
}

// Value is the value of a setting.
type Value struct {
	Value string `json:"value"`
	SetBy string `json:"set_by,omitempty"` // the variable; absent for a default
	Place string `json:"place,omitempty"`  // file:line, if a file sets it
}

// Route is the settings of one route.
type Route struct {
	Name     string            `json:"name"`
	Match    map[string]string `json:"match,omitempty"`
	Settings map[string]Value  `json:"settings"` // by key
	Worst    *Worst            `json:"worst_case,omitempty"`
}

// Worst is the worst case of a route for a client and its upstream.
type Worst struct {
	// Attempts is the maximum number of attempts of a request, without policy.NotCounted, and the factor by which the load of
	// the upstream can grow while the budget's burst lasts.
	Attempts int `json:"attempts"`
	// Seconds is the time from sending the request to the response headers; null without a limit.
	Seconds *float64 `json:"seconds"`
	// SlowAttempts is the number of attempts if each lasts until its timeout and every wait is the
	// longest.
	SlowAttempts int `json:"slow_attempts"`
	// LastBeginsSeconds is when the last of those begins.
	LastBeginsSeconds float64 `json:"last_begins_seconds"`
	// Amplification is the factor by which the load of the upstream grows in the long run if every
	// request fails, without the budget's minimum per second.
	Amplification float64 `json:"amplification"`
	// BurstRetries are additional retries, once; 0 without a budget or without retries.
	BurstRetries int `json:"burst_retries"`
}

// Of returns the configuration in effect, with its problems.
func Of(s *config.Settings, problems config.Problems) *Config {
	v := &Config{Position: s.Position, Admin: string(s.AdminListen), Settings: map[string]Value{}}
	for _, a := range s.Listeners() {
		v.Listen = append(v.Listen, string(a))
	}
	for _, value := range s.Values() {
		v.Settings[config.Prefix+value.Key] = Value{value.Text, value.Variable, s.Place(value.Variable)}
	}
	for _, r := range s.All() {
		v.Routes = append(v.Routes, viewRoute(s, r))
	}
	for _, p := range problems.Errors() {
		v.Errors = append(v.Errors, p.String())
	}
	for _, p := range problems.Warnings() {
		v.Warnings = append(v.Warnings, p.String())
	}
	return v
}

func viewRoute(s *config.Settings, r *config.Route) Route {
	v := Route{Name: r.Name, Settings: map[string]Value{}}
	for _, value := range r.Values() {
		v.Settings[value.Key] = Value{value.Text, value.Variable, s.Place(value.Variable)}
	}
	for _, value := range r.MatcherValues() {
		if v.Match == nil {
			v.Match = map[string]string{}
		}
		v.Match[value.Key] = value.Text
	}
	v.Worst = worstOf(r)
	return v
}

// worstOf returns nil for a backoff that is not valid, which the errors report.
func worstOf(r *config.Route) *Worst {
	p, err := r.Policy()
	if err != nil {
		return nil
	}
	if r.DryRun || r.RetryOn.String() == "none" && r.HedgeAfter.Off() {
		p.MaxRetries = 0
	}
	w := p.Worst(r.RequestTimeout, r.AttemptTimeout.Value())
	v := &Worst{
		Attempts: w.Attempts, SlowAttempts: w.SlowAttempts, LastBeginsSeconds: w.LastBegins.Seconds(), Amplification: float64(w.Attempts),
	}
	if w.Total != backoff.Forever {
		seconds := w.Total.Seconds()
		v.Seconds = &seconds
	}
	if budget, has := r.Budget(); has {
		v.Amplification = budget.Amplification(w.Attempts, 0)
		if w.Attempts > 1 {
			v.BurstRetries = budget.Burst
		}
	}
	return v
}
