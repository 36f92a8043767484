// Package assemble makes the data path's configuration from checked settings.
//
// Config is all there is to call. It is the place where settings meet the
// world: it reads certificate files, the descriptor limit and the host's name.
// Everything that can be known from the settings alone was checked when they
// were loaded.
package assemble

import (
	"os"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/memlimit"
	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/settings"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/certs"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Config makes a proxy.Config without observers, refusal counter and logger,
// which are the client's to add. The error joins everything that keeps a route
// from working; ProblemsOf gives the variable to blame for each.
func Config(s *settings.Settings) (*proxy.Config, error) {
	m := &maker{settings: s, own: ownNames(s), targets: map[targetKey]targetResult{}}
	c := &proxy.Config{
		TrustedProxies:        s.TrustedProxies,
		ProxyProtocolFrom:     s.ProxyProtocolFrom,
		ForwardProxy:          s.ForwardProxy,
		Limits:                http1.Limits{HeaderBytes: int(s.MaxHeaderBytes), Headers: s.MaxHeaders},
		MaxConcurrentStreams:  s.MaxStreams,
		MaxConnections:        maxConnections(s.MaxConnections),
		ReadHeaderTimeout:     s.ReadHeaderTimeout,
		ClientIdleTimeout:     s.ClientIdleTimeout,
		WriteTimeout:          s.WriteTimeout,
		MinBodyRate:           int64(s.MinBodyRate),
		TunnelIdleTimeout:     s.TunnelIdleTimeout,
		ClientMemory:          clientMemory(memlimit.Soft()),
		RetryBufferTotalBytes: replayBytes(int64(s.RetryBufferTotalBytes), memlimit.Soft()),
		DrainTimeout:          s.DrainTimeout,
		AccessLog:             s.AccessLog,
		GaveUpLogPerMinute:    s.GaveUpLogPerMinute,
		Default:               m.route(&s.Default),
	}
	if s.TLSCert != "" {
		var err error
		c.TLS, err = certs.Load(certs.Files{Cert: s.TLSCert, Key: s.TLSKey, ClientCA: s.TLSClientCA})
		if err != nil {
			m.listenerTLS(err)
		}
	}
	for _, a := range s.Listeners() {
		c.Listen = append(c.Listen, a.String())
	}
	for i := range s.Routes {
		r := &s.Routes[i]
		made := m.route(r)
		made.Match = r.Match(s)
		c.Routes = append(c.Routes, made)
	}
	return c, m.err()
}

type maker struct {
	settings *settings.Settings
	own      []string // our authorities, for HOST=auto
	targets  map[targetKey]targetResult
	problems settings.Problems
}

// targetKey is what a target is made of; routes that agree share one, so that
// certificates are read once.
type targetKey struct {
	upstream string
	files    upstream.TLSFiles
}

type targetResult struct {
	target upstream.Target
	err    error
}

func (m *maker) route(r *settings.Route) proxy.Route {
	p, err := r.Policy()
	m.note(r, "BACKOFF", err)
	nested, err := r.LayeredRetriesRule()
	m.note(r, "LAYERED_RETRIES", err)
	budget, hasBudget := r.Budget()
	made := proxy.Route{
		Name:                r.Name,
		Upstream:            m.target(r),
		Policy:              p,
		Budget:              budget,
		NoBudget:            !hasBudget,
		Guard:               r.Guard(),
		Breaker:             outage(r.Breaker),
		QueueTimeout:        r.QueueTimeout,
		QueueMax:            r.QueueMax,
		QueueOrder:          queueOrder(r.QueueOrder),
		Eject:               eject(r),
		ClientThrottling:    r.ClientThrottling == "on",
		Fallback:            m.fallback(r),
		DryRun:              r.DryRun,
		FaultInjection:      r.FaultInjection.Injector(),
		HedgeAfter:          hedgeAfter(r),
		RateLimitPause:      rateLimitPause(r),
		RateLimit:           rateLimit(r),
		Probe:               proxy.Probe{Path: r.ProbePath.Path(), Host: r.Shared.UpstreamHost.Name()},
		RequestTimeout:      r.RequestTimeout,
		AttemptTimeout:      r.AttemptTimeout.Value(),
		BodyIdleTimeout:     r.BodyIdleTimeout,
		MaxBodyBytes:        int64(r.MaxBodyBytes),
		RetryBufferBytes:    int64(r.RetryBufferBytes),
		ResponseBufferBytes: int64(r.ResponseBufferBytes),
		GenerateKey:         r.IdempotencyKey == "generate",
		LayeredRetries:      nested,
		ResponseHeaders:     r.ResponseHeaders,
	}
	made.Forward = m.forward(r, made.Upstream.Host)
	m.note(r, "UPSTREAM_HOST", made.Forward.Check())
	return made
}

func queueOrder(word string) proxy.QueueOrder {
	if word == "oldest" {
		return proxy.QueueOldest
	}
	return proxy.QueueNewest
}

// hedgeAfter is the route's own, or what takes the place of an attempt timeout.
func hedgeAfter(r *settings.Route) policy.HedgeAfter {
	if r.HedgeAfter.Off() && r.AttemptTimeout.Auto() {
		return policy.SlowAttempt()
	}
	return r.HedgeAfter.HedgeAfter
}

func outage(word string) proxy.BreakerMode {
	if word == "fail-fast" {
		return proxy.BreakerFailFast
	}
	return proxy.BreakerQueue
}

func eject(r *settings.Route) proxy.Eject {
	e := proxy.Eject{After: r.EjectAfter, For: r.EjectFor}
	if e.After == 0 {
		e.After = -1
	}
	return e
}

func rateLimitPause(r *settings.Route) proxy.RateLimitPause {
	c := proxy.RateLimitPause{Max: r.RateLimitPauseMax, Header: r.RateLimitPauseKey.Header()}
	switch {
	case r.RateLimitPauseKey.Route():
		c.Kind = proxy.RateLimitPauseRoute
	case c.Header != "":
		c.Kind = proxy.RateLimitPauseHeader
	}
	return c
}

func rateLimit(r *settings.Route) proxy.RateLimit {
	q := proxy.RateLimit{Rate: r.RateLimit.RateLimit, Wait: r.RateLimitWait, Header: r.RateLimitKey.Header()}
	switch {
	case r.RateLimitKey.Route():
		q.Kind = proxy.RateLimitRoute
	case q.Header != "":
		q.Kind = proxy.RateLimitHeader
	}
	return q
}

// target adds certificates and the dial timeout to the upstream. An error is
// told for the first route that has it.
func (m *maker) target(r *settings.Route) upstream.Target {
	return m.targetOf(r, r.Upstream, upstream.TLSFiles{CA: r.UpstreamCA, Cert: r.UpstreamCert, Key: r.UpstreamKey, ServerName: r.UpstreamServerName})
}

// fallback takes nothing of the route's certificates, which are for its upstream.
func (m *maker) fallback(r *settings.Route) *proxy.Fallback {
	if r.Fallback.None() {
		return nil
	}
	status, body := r.Fallback.Answer()
	f := &proxy.Fallback{Status: status, Body: []byte(body)}
	if status == 0 {
		f.Upstream = m.targetOf(r, r.Fallback.Upstream(), upstream.TLSFiles{})
		f.Forward = m.forward(r, f.Upstream.Host)
		if f.Forward.Host == forward.HostName {
			f.Forward.Host = forward.HostUpstream // the name is the upstream's
		}
	}
	return f
}

func (m *maker) targetOf(r *settings.Route, to settings.Upstream, files upstream.TLSFiles) upstream.Target {
	target := to.Target()
	if to.TLS() {
		key := targetKey{to.String(), files}
		made, known := m.targets[key]
		if !known {
			made.err = target.UseTLS(key.files)
			made.target = target
			m.targets[key] = made
			m.note(r, "UPSTREAM", made.err)
		}
		target = made.target
	}
	target.DialTimeout = r.DialTimeout
	return target
}

func (m *maker) forward(r *settings.Route, upstreamHost string) forward.Settings {
	f := forward.Settings{
		UpstreamHost: upstreamHost,
		OwnHosts:     m.own,
		Forwarded:    r.Forwarded,
		Via:          r.Via,
		StripPrefix:  r.StripPrefix,
		Deadlines:    r.ClientDeadlines.DeadlineSet,
	}
	switch rule := r.Shared.UpstreamHost; {
	case rule.Auto():
		f.Host = forward.HostAuto
	case rule.Preserve():
		f.Host = forward.HostPreserve
	case rule.Upstream():
		f.Host = forward.HostUpstream
	default:
		f.Host, f.HostName = forward.HostName, rule.Name()
	}
	return f
}

// ownNames are the authorities by which clients know us: the addresses that we
// listen on and the host's name, which in a container is the container's.
// Loopback names are known to package forward.
func ownNames(s *settings.Settings) []string {
	var own []string
	for _, a := range s.Listeners() {
		if network, address := a.Split(); network == "tcp" && !a.Wildcard() {
			own = append(own, address)
		}
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		own = append(own, name)
	}
	return own
}
