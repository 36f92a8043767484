package serve

import (
	"fmt"
	"os"
	"time"

	"github.com/retryproxy/retryproxy/internal/admin/page"
	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
)

// newPage returns the page for the admin listener, which reads the state of a.
func (a *app) newPage(s *config.Settings) *page.Page {
	host, _ := os.Hostname() // "" on an error, which the page does not show
	return page.New(page.Options{
		Version: a.options.Build.Version, Host: host, Metrics: a.metrics, Process: a.process, Route: a.rule, Shares: s.SharedEngine.Set(),
		Upstreams: func() []metrics.Upstream { return upstreamsOf(a.proxy.Stats()) },
	})
}

func (a *app) process() page.Process {
	stats, now := a.proxy.Stats(), a.inForce.Load().settings
	var rateLimited page.Queue
	var tokens page.Tokens
	for _, q := range stats.RateLimits {
		rateLimited.Add(page.Queue{Requests: q.Waiting, LongestMS: q.Longest.Milliseconds()})
		tokens.Used += q.Tokens
		tokens.Limit += int64(q.TokenLimit)
	}
	return page.Process{
		RateLimited: rateLimited, Tokens: tokens, Paused: stats.Paused,
		Position: now.Position, Draining: a.phase.Load() == &phaseDraining, RetryPercent: a.proxy.RetryPercent(), Connections: stats.Connections,
		RetryBufferUsed: stats.RetryBufferUsed, RetryBufferLimit: int64(now.RetryBufferTotalBytes),
	}
}

// upstreamsOf returns the upstreams with unique names: routes to one upstream with separate
// budgets have separate pools.
func upstreamsOf(stats proxy.Stats) []metrics.Upstream {
	var all []metrics.Upstream
	seen := map[string]int{}
	for i := range stats.Upstreams {
		u := upstreamMetrics(&stats.Upstreams[i])
		if seen[u.Name]++; seen[u.Name] > 1 {
			u.Name = fmt.Sprintf("%s #%d", u.Name, seen[u.Name])
		}
		all = append(all, u)
	}
	return all
}

// rule describes the route of that name for the page, once per configuration. It returns the zero
// value if the route is not configured.
func (a *app) rule(name string) page.Rule {
	now := a.inForce.Load()
	if known, ok := now.rules.Load(name); ok {
		return known.(page.Rule)
	}
	made := ruleOf(now, name)
	now.rules.Store(name, made)
	return made
}

// The number of retries in the curve, and of samples for its means.
const (
	curveRetries = 8
	curveSamples = 2000
)

func ruleOf(now *inForce, name string) page.Rule {
	for i, s := range now.settings.All() {
		if s.Name != name {
			continue
		}
		made := &now.config.Default
		if i > 0 {
			made = &now.config.Routes[i-1]
		}
		return page.Rule{
			Match: s.MatchText(), Upstream: made.Upstream.String(), Backoff: s.Backoff.String(), MaxRetries: made.Policy.MaxRetries, DryRun: made.DryRun,
			RequestTimeoutMS: made.RequestTimeout.Milliseconds(), AttemptTimeoutMS: made.AttemptTimeout.Milliseconds(), Curve: curveOf(&made.Policy),
		}
	}
	return page.Rule{}
}

func curveOf(p *policy.Policy) []page.Wait {
	curve := []page.Wait{}
	for _, row := range policy.Plan(p.Backoff, min(p.MaxRetries, curveRetries), policy.PlanOptions{Samples: curveSamples}) {
		curve = append(curve, page.Wait{Min: inMillis(row.Wait.Min), Mean: inMillis(row.Wait.Mean), Max: inMillis(row.Wait.Max)})
	}
	return curve
}

func inMillis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
