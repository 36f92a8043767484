package serve

import (
	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/certs"
	"github.com/retryproxy/retryproxy/proxy/proxyproto"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// The data path counts through this interface.
var _ proxy.Observer = (*metrics.Stripe)(nil)

// snapshot returns the current state of the data path for a scrape.
func (a *app) snapshot() metrics.Snapshot {
	stats, now := a.proxy.Stats(), a.inForce.Load()
	s := metrics.Snapshot{
		Connections:           stats.Connections,
		AcceptPauses:          stats.AcceptPauses,
		LogLinesDropped:       a.options.Log.Dropped(),
		EvictedIdle:           stats.EvictedIdle,
		EvictedSlow:           stats.EvictedSlow,
		EvictedQueued:         stats.EvictedQueued,
		EvictedStalled:        stats.EvictedStalled,
		Faults:                stats.Faults,
		HandshakeFailures:     stats.HandshakeFailures,
		Draining:              a.phase.Load() == &phaseDraining, // true from the start of the delay, before the data path drains
		RetryBufferBytes:      stats.RetryBufferUsed,
		RetryPercent:          a.proxy.RetryPercent(),
		RateLimitPauses:       stats.RateLimitPauses,
		Paused:                stats.Paused,
		Shared:                a.sharedMetrics(),
		RetryBufferLimitBytes: now.config.RetryBufferTotalBytes,
	}
	s.HeaderFailures = headerFailures(&stats)
	s.Upstreams = upstreamsOf(stats)
	for _, q := range stats.RateLimits {
		s.RateLimits = append(s.RateLimits, metrics.RateLimit{Upstream: q.Upstream, Rate: q.Rate, Queued: q.Waiting, Keys: q.Keys, State: q.State, Tokens: q.TokenLimit})
	}
	for i := range stats.Upstreams {
		if expiry := stats.Upstreams[i].Pool.PeerExpiry; !expiry.IsZero() {
			s.Certificates = append(s.Certificates, metrics.Certificate{Kind: "upstream", Name: s.Upstreams[i].Name, NotAfter: expiry})
		}
	}
	s.Certificates = append(s.Certificates, clientCertificates(now)...)
	if notAfter, ok := certs.Expiry(now.config.TLS); ok {
		s.Certificates = append(s.Certificates, metrics.Certificate{Kind: "listener", Name: now.settings.TLSCert, NotAfter: notAfter})
	}
	return s
}

func headerFailures(stats *proxy.Stats) map[string]uint64 {
	all := map[string]uint64{}
	for why := proxyproto.None + 1; why < proxyproto.NumFailures; why++ {
		all[why.String()] = stats.HeaderFailures[why]
	}
	return all
}

func upstreamMetrics(u *proxy.UpstreamStats) metrics.Upstream {
	m := metrics.Upstream{
		Name:         u.Name,
		Idle:         u.Pool.Idle,
		Active:       u.Pool.Active,
		Dialing:      u.Pool.Dialing,
		Dials:        u.Pool.Dials,
		Reuses:       u.Pool.Reuses,
		DialErrors:   u.Pool.DialErrors[:],
		IdleCloses:   u.Pool.IdleCloses,
		Endpoints:    [metrics.NumEndpointStates]int{metrics.EndpointUsed: u.Addresses.Used, metrics.EndpointEjected: u.Addresses.Ejected, metrics.EndpointUnhealthy: u.Addresses.Unhealthy, metrics.EndpointDraining: u.Addresses.Draining},
		EachEndpoint: addressMetrics(&u.Addresses),
		HasBudget:    u.HasBudget,
		BudgetTokens: u.BudgetTokens,
		Guard:        u.Guard,
		LongestWait:  u.LongestWait,
		HasProbe:     u.HasProbe,
		Probed:       u.Probed,
	}
	if f := u.LastFailure; f != nil {
		m.LastFailure = &metrics.DialFailure{At: f.At, Address: f.Err.Addr, Kind: f.Err.Kind.String(), Text: f.Err.Text()}
	}
	return m
}

func addressMetrics(all *upstream.EndpointSummary) []metrics.Endpoint {
	var list []metrics.Endpoint
	for _, a := range all.Each {
		list = append(list, metrics.Endpoint{Name: a.Addr, Requests: a.Active, Attempts: a.Attempts, Failures: a.Failures, Ejected: a.Ejected, Unhealthy: a.Unhealthy})
	}
	return list
}

// clientCertificates returns the client certificates for upstreams, each file once.
func clientCertificates(now *inForce) []metrics.Certificate {
	var list []metrics.Certificate
	seen := map[string]bool{"": true}
	targets := append([]proxy.Route{now.config.Default}, now.config.Routes...)
	for i, r := range now.settings.All() {
		if seen[r.UpstreamCert] {
			continue
		}
		seen[r.UpstreamCert] = true
		if notAfter, ok := targets[i].Upstream.CertificateExpiry(); ok {
			list = append(list, metrics.Certificate{Kind: "client", Name: r.UpstreamCert, NotAfter: notAfter})
		}
	}
	return list
}
