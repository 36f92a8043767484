package main

import (
	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/certs"
)

// The data path tells the metrics through this interface.
var _ proxy.Observer = (*metrics.Route)(nil)

// snapshot is what a scrape shows of the data path at this moment.
func (a *app) snapshot() metrics.Snapshot {
	stats, now := a.proxy.Stats(), a.inForce.Load()
	s := metrics.Snapshot{
		Connections:       stats.Connections,
		AcceptPauses:      stats.AcceptPauses,
		Faults:            stats.Faults,
		HandshakeFailures: stats.HandshakeFailures,
		Draining:          a.phase.Load() == &phaseDraining, // from the delay's begin, when the data path does not yet
		ReplayBytes:       stats.ReplayBytes,
		RetryPercent:      a.proxy.RetryPercent(),
		Cooldowns:         stats.Cooldowns,
		ReplayLimitBytes:  int64(now.settings.TotalReplayBytes),
	}
	s.Upstreams = upstreamsOf(stats)
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

func upstreamMetrics(u *proxy.UpstreamStats) metrics.Upstream {
	return metrics.Upstream{
		Name:         u.Name,
		Idle:         u.Pool.Idle,
		Active:       u.Pool.Active,
		Dialing:      u.Pool.Dialing,
		Dials:        u.Pool.Dials,
		Reuses:       u.Pool.Reuses,
		DialErrors:   u.Pool.DialErrors[:],
		IdleCloses:   u.Pool.IdleCloses,
		HasBudget:    u.HasBudget,
		BudgetTokens: u.BudgetTokens,
		Guard:        u.Guard,
		HasThrottle:  u.HasThrottle,
		Throttle:     u.Throttle,
		HasProbe:     u.HasProbe,
		Probed:       u.Probed,
	}
}

// clientCertificates are those we show to upstreams, each file once.
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
