package config

import (
	"crypto/tls"
	"os"

	"github.com/retryproxy/retryproxy/internal/memlimit"
	"github.com/retryproxy/retryproxy/policy/hedge"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/certs"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Build returns a proxy.Config without observers, refusal counter and logger, which the
// caller adds. It reads the files of certificates and headers, the descriptor limit and the host's name; Load
// has checked the settings themselves. The error joins everything that keeps a route from
// working; ProblemsOf returns the variable to blame for each.
func Build(s *Settings) (*proxy.Config, error) {
	b := &builder{settings: s, own: ownAuthorities(s), targets: map[targetKey]targetResult{}, secrets: map[string][]http1.Header{}}
	c := &proxy.Config{
		TrustedProxies:        s.TrustedProxies,
		ProxyProtocolFrom:     s.ProxyProtocolFrom,
		ForwardProxy:          s.ForwardProxy(),
		Limits:                HeaderLimits(),
		MaxConcurrentStreams:  maxConcurrentStreams,
		MaxConnections:        maxConnections(),
		ReadHeaderTimeout:     readHeaderTimeout,
		ClientIdleTimeout:     clientIdleTimeout,
		WriteTimeout:          writeTimeout,
		MinBodyRate:           minBodyRate,
		TunnelIdleTimeout:     tunnelIdleTimeout,
		ClientMemory:          clientMemory(memlimit.Soft()),
		RetryBufferTotalBytes: replayBytes(int64(s.RetryBufferTotalBytes), memlimit.Soft()),
		DrainTimeout:          s.DrainTimeout,
		AccessLog:             s.AccessLog,
		GaveUpLogPerMinute:    gaveUpLogPerMinute,
		Default:               b.route(&s.Default),
	}
	if s.TLSCert != "" {
		var err error
		c.TLS, err = certs.Load(certs.Files{Cert: s.TLSCert, Key: s.TLSKey, ClientCA: s.TLSClientCA, MinVersion: tlsVersions[s.TLSMinVersion]})
		if err != nil {
			b.listenerTLS(err)
		}
	}
	for _, a := range s.Listeners() {
		c.Listen = append(c.Listen, string(a))
	}
	for i := range s.Routes {
		r := &s.Routes[i]
		made := b.route(r)
		made.Match = r.Match(s)
		c.Routes = append(c.Routes, made)
	}
	return c, b.err()
}

type builder struct {
	settings *Settings
	own      []string // our own authorities, for HOST=auto
	targets  map[targetKey]targetResult
	secrets  map[string][]http1.Header // headers by file
	problems Problems
}

// targetKey identifies a target; routes with equal keys share one, so that certificates are
// read once.
type targetKey struct {
	upstream string
	files    upstream.TLSFiles
}

type targetResult struct {
	target upstream.Target
	err    error
}

func (b *builder) route(r *Route) proxy.Route {
	p, err := r.Policy()
	b.note(r, "BACKOFF", err)
	p.QueueForBudget = b.settings.Position == "outbound" // in front of an application, load matters more
	budget, hasBudget := r.Budget()
	made := proxy.Route{
		Name:                r.Name,
		Upstream:            b.target(r),
		Policy:              p,
		Budget:              budget,
		NoBudget:            !hasBudget,
		Guard:               r.Guard(),
		FailFast:            r.Breaker == "fail-fast",
		QueueTimeout:        r.QueueTimeout,
		QueueMax:            r.QueueMax,
		QueueOldest:         r.QueueOrder == "oldest",
		Eject:               eject(r),
		HealthCheck:         healthCheck(r),
		Balance:             r.Balance.proxy(),
		Fallbacks:           b.fallbacks(r),
		ModelAPI:            r.Profile == "llm",
		DryRun:              r.DryRun,
		HedgeAfter:          hedgeAfter(r),
		RateLimitPause:      proxy.RateLimitPause{SharedBy: r.RateLimitPauseKey.Sharing, Max: r.RateLimitPauseMax},
		RateLimit:           rateLimit(r),
		CountTokens:         r.FirstContentTimeout > 0 || r.RateLimit.Auto || r.TokenLimit.Limited(),
		Probe:               admission.Probe{Path: string(r.HealthPath), Host: r.UpstreamHost.Name},
		RequestTimeout:      r.RequestTimeout,
		AttemptTimeout:      r.AttemptTimeout.Value(),
		DialTimeout:         r.dialTimeout(),
		AttemptTimeoutHard:  r.AttemptTimeout.Hard(),
		FirstContentTimeout: r.FirstContentTimeout,
		BodyIdleTimeout:     r.BodyIdleTimeout,
		RetryBufferBytes:    int64(r.RetryBufferBytes),
		ResponseBufferBytes: min(responseBufferBytes, int64(b.settings.RetryBufferTotalBytes)),
		ErrorCodes:          r.FatalErrorCodes.list,
		GenerateKey:         r.RetryMethods.AddKey(),
		LayeredRetries:      r.LayeredRetries,
		ResponseChanges:     forward.NewHeaderChanges(http1Headers(r.ResponseHeadersSet), r.ResponseHeadersRemove),
	}
	made.Forward = b.forward(r, &made.Upstream)
	made.Forward.Changes = b.requestChanges(r)
	b.note(r, "UPSTREAM_HOST", made.Forward.Check())
	return made
}

// hedgeAfter returns the route's own setting, or the replacement of an attempt timeout. With
// RETRY_ON=none no attempt is replaced.
func hedgeAfter(r *Route) hedge.After {
	if r.HedgeAfter.Off() && r.AttemptTimeout.Auto() && !r.retriesNothing() {
		return hedge.SlowAttempt()
	}
	return r.HedgeAfter
}

// eject returns the defaults of package upstream. With BREAKER=off no endpoint is ejected.
func eject(r *Route) upstream.Eject {
	if r.Breaker == "off" {
		return upstream.Eject{After: -1}
	}
	return upstream.Eject{}
}

func rateLimit(r *Route) admission.RateLimit {
	q := admission.RateLimit{
		Rate: r.RateLimit.Rate, Learn: r.RateLimit.Auto, Tokens: r.TokenLimit, Wait: r.RateLimitWait,
		SharedBy: r.RateLimitKey.Sharing,
	}
	if q.Learn {
		q.Probe = r.RateLimitPauseMax
	}
	return q
}

// healthCheck returns the health check of the route's endpoints.
func healthCheck(r *Route) upstream.HealthCheck {
	if r.HealthPath == "" {
		return upstream.HealthCheck{}
	}
	return upstream.HealthCheck{Path: string(r.HealthPath), Host: r.UpstreamHost.Name}
}

// target adds certificates to the upstream. An error is reported for
// the first route that has it.
func (b *builder) target(r *Route) upstream.Target {
	return b.targetOf(r, r.Upstream, upstream.TLSFiles{CA: r.UpstreamCA, Cert: r.UpstreamCert, Key: r.UpstreamKey, ServerName: serverName(r.UpstreamHost)})
}

// fallbacks returns the route's fallbacks. If the route is itself in its inherited list, it only
// falls back to the entries after it, so that the entries do not fall back to each other in a
// circle.
func (b *builder) fallbacks(r *Route) (all []proxy.Fallback) {
	for i := range r.Fallback.list {
		e := &r.Fallback.list[i]
		if to := b.settings.Find(e.route); to == r {
			all = nil
		} else {
			all = append(all, b.fallback(r, e, to))
		}
	}
	return all
}

// fallback does not use the route's certificates and secret headers, which belong to its upstream.
// A fallback to another route, to, uses those of that route.
func (b *builder) fallback(r *Route, e *FallbackEntry, to *Route) proxy.Fallback {
	f := proxy.Fallback{Status: e.status, Body: []byte(e.body)}
	switch {
	case e.status != 0:
	case to != nil:
		f.Upstream = b.target(to)
		f.Forward = b.forward(to, &f.Upstream)
		f.Forward.StripPrefix = r.StripPrefix // from the path, which matched r
		f.Forward.Changes = b.requestChanges(to).Hiding(b.requestChanges(r))
	default:
		f.Upstream = b.targetOf(r, e.upstream, upstream.TLSFiles{})
		f.Forward = b.forward(r, &f.Upstream)
		f.Forward.Changes = b.publicChanges(r).Hiding(b.requestChanges(r))
		if f.Forward.Host.Name != "" {
			f.Forward.Host = forward.HostRule{Mode: forward.HostUpstream} // an upstream has its own name
		}
	}
	return f
}

func (b *builder) targetOf(r *Route, to Upstream, files upstream.TLSFiles) upstream.Target {
	target := to.Target()
	if to.TLS() {
		key := targetKey{to.String(), files}
		made, known := b.targets[key]
		if !known {
			made.err = target.UseTLS(key.files)
			made.target = target
			b.targets[key] = made
			b.note(r, "UPSTREAM", made.err)
		}
		target = made.target
	}
	return target
}

func (b *builder) forward(r *Route, to *upstream.Target) forward.Settings {
	return forward.Settings{
		Host:         r.UpstreamHost,
		UpstreamHost: to.Host,
		HostVaries:   !to.OneHost(),
		BasePath:     to.BasePath,
		OwnHosts:     b.own,
		StripPrefix:  r.StripPrefix,
	}
}

// ownAuthorities returns the authorities under which clients know this proxy: its listener
// addresses and the host's name, which in a container is the container's. Package forward
// knows loopback names itself.
func ownAuthorities(s *Settings) []string {
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

// tlsVersions are the words of TLS_MIN_VERSION.
var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}
