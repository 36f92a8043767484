package proxy

import (
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/proxyproto"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Stats is a snapshot of the server.
type Stats struct {
	Connections       int                            // clients connected
	AcceptPauses      uint64                         // times that accepting paused
	EvictedIdle       uint64                         // idle connections ended because others needed their slots
	EvictedSlow       uint64                         // likewise connections and streams of which headers, a handshake or a body came slowly
	EvictedStalled    uint64                         // likewise connections and streams whose client read nothing
	EvictedQueued     uint64                         // clients turned away before they had a slot, or the memory for a request
	Faults            uint64                         // requests that ended in a fault of the proxy itself
	HandshakeFailures uint64                         // clients whose TLS handshake failed
	HeaderFailures    [proxyproto.NumFailures]uint64 // connections without the PROXY protocol header that they must begin with
	RetryBufferUsed   int64                          // bytes kept for retries now
	InFlight          int                            // requests whose headers have begun to come and that have not ended
	Draining          bool                           // Drain was called
	RateLimitPauses   ratelimit.PauseState
	Paused            int                        // requests that wait for the end of a shared rate-limit pause
	RateLimits        []admission.RateLimitStats // in no order
	Upstreams         []UpstreamStats
}

// UpstreamStats is a snapshot of one upstream.
type UpstreamStats struct {
	Name         string // its URL, without secrets
	Pool         upstream.Stats
	Addresses    upstream.EndpointSummary
	BudgetTokens float64
	HasBudget    bool
	LastFailure  *admission.DialFailure // the last failed connection; nil: none failed yet
	admission.QueueStats
}

// Stats returns a snapshot of the server for metrics.
func (s *Server) Stats() Stats {
	n := s.settings.Load()
	st := Stats{Connections: int(s.connected.count.Load())}
	st.AcceptPauses, st.Faults, st.HandshakeFailures = s.listeners.pauses.Load(), s.faults.Load(), s.handshakeFailures.Load()
	e := &s.clients.evicting
	st.EvictedIdle, st.EvictedSlow, st.EvictedStalled, st.EvictedQueued = e.idle.Load(), e.slow.Load(), e.stalled.Load()+s.ahead.Backlog.Ended(), e.queued.Load()
	for why := range st.HeaderFailures {
		st.HeaderFailures[why] = s.headerFailures[why].Load()
	}
	st.RetryBufferUsed, st.InFlight, st.Draining = s.process.RetryBuffer.InUse(), int(s.drain.active.Load()), s.process.IsDraining()
	st.RateLimitPauses, st.Paused = s.process.RateLimitPauses.State(), int(s.process.Paused.Load())
	now := s.process.Clock.Elapsed()
	st.RateLimits = n.RateLimitStats()
	for _, u := range n.Upstreams() {
		st.Upstreams = append(st.Upstreams, UpstreamStats{
			Name: u.Pool.Target().String(), Pool: u.Pool.Stats(), Addresses: u.Pool.Endpoints(), BudgetTokens: u.RetryBudget.Tokens(now), HasBudget: n.Budgeted[u], LastFailure: u.DialFailures.Last.Load(),
			QueueStats: u.Admission.Stats(),
		})
	}
	return st
}
