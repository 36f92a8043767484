package metrics

import (
	"math"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// Snapshot is the state of the proxy at one moment. The function passed to Watch makes one
// per scrape; this package only reads it.
type Snapshot struct {
	Connections           int               // open client connections
	AcceptPauses          uint64            // times that accepting paused, since the start
	LogLinesDropped       uint64            // lines of the log that nobody read in time, since the start
	EvictedIdle           uint64            // client connections ended while idle because others needed their slots, since the start
	EvictedSlow           uint64            // likewise, because headers, a handshake or a body came slowly
	EvictedStalled        uint64            // likewise, because the client did not read its response
	EvictedQueued         uint64            // clients turned away before they had a slot, or the memory for a request
	Faults                uint64            // requests that ended in a fault of the proxy itself, since the start
	HandshakeFailures     uint64            // clients whose TLS handshake failed, since the start
	HeaderFailures        map[string]uint64 // connections without the required PROXY protocol header, by reason, of a closed set
	Draining              bool              // the proxy is shutting down
	RetryBufferBytes      int64             // memory for bodies and responses kept for retries
	RetryBufferLimitBytes int64             // the maximum of RetryBufferBytes
	RetryPercent          int               // percentage of retries that are made
	RateLimitPauses       ratelimit.PauseState
	Paused                int // requests that wait for the end of a rate-limit pause
	RateLimits            []RateLimit
	Shared                *Shared // nil: nothing is shared
	Upstreams             []Upstream
	Certificates          []Certificate
}

// RateLimit is the state of one rate limit. Counts are since the start and never decrease.
type RateLimit struct {
	Upstream string // the label, without credentials
	Rate     string // such as 100/s; no two rate limits have the same Upstream and Rate
	Queued   int    // requests that wait for a slot
	Keys     int    // key values with a rate limit of their own
	State    ratelimit.State
	Tokens   float64 // that may be used a minute, of all keys; 0: not known
}

// Shared is the state of the shared engine. Counts are since the start and never decrease.
type Shared struct {
	Up        bool   // the engine responds
	Lost      uint64 // times that it stopped responding
	Processes int    // processes of the scope as last seen, this one included; 0 before the engine's first response
	Commands  uint64 // sent to it
	Errors    uint64 // failed commands, and messages that could not be parsed

	PausesSent     uint64 // pauses begun here and sent to the others
	PausesReceived uint64 // pauses begun elsewhere and applied
	PausesDropped  uint64 // pauses not sent because the buffer was full or the engine did not respond
}

// Upstream is the state of one upstream's pool and budget. Counts are since the start and
// never decrease.
type Upstream struct {
	Name    string // the label, without credentials; unique in a Snapshot
	Idle    int    // connections kept for the next request
	Active  int    // connections in use
	Dialing int    // dials in flight

	Dials      uint64   // connections made
	Reuses     uint64   // times a pooled connection was used again
	DialErrors []uint64 // failed dials, one count per label of Options.DialErrorKinds
	IdleCloses uint64   // pooled connections the upstream closed while idle

	Endpoints    [NumEndpointStates]int // number of endpoints in each state
	EachEndpoint []Endpoint             // the endpoints of an upstream with several, a limited number

	LastFailure *DialFailure // the last failed connection, for the page; not exported

	HasBudget    bool
	BudgetTokens float64 // retries allowed now

	Guard       breaker.GuardState // breaker and concurrency limit
	LongestWait time.Duration      // of queued requests, so far, for the page; not exported

	HasProbe bool                            // RETRYPROXY_HEALTH_PATH is set
	Probed   [breaker.NumProbeResults]uint64 // completed probes of that path, by result
}

// EndpointState is the state of an address of an upstream.
type EndpointState uint8

// The states, a closed set.
const (
	EndpointUsed      EndpointState = iota // requests may be sent to it
	EndpointEjected                        // ejected after failures
	EndpointUnhealthy                      // its health checks fail
	EndpointDraining                       // no longer in the DNS response, but with connections

	NumEndpointStates = iota // number of states
)

var endpointStates = [NumEndpointStates]string{"used", "ejected", "unhealthy", "draining"}

// Endpoint is one of several addresses of an upstream, or the sum of those not exported by
// name.
type Endpoint struct {
	Name      string // "" for the sum, which is exported as other
	Requests  int    // in flight
	Attempts  uint64
	Failures  uint64
	Ejected   bool
	Unhealthy bool
}

// DialFailure is a failed connection.
type DialFailure struct {
	At      time.Time
	Address string
	Kind    string
	Text    string // the cause, in one line of limited length
}

// Certificate is a certificate whose expiry is exported.
type Certificate struct {
	Kind     string // its use, from a closed set of the caller's, for example "client", "upstream"
	Name     string // for example a file's name or an upstream's; unique among those of its Kind
	NotAfter time.Time
}

// emit exports one value of f.
func (f *family) emit(ch chan<- prometheus.Metric, value float64, labels ...string) {
	kind := prometheus.CounterValue
	if f.kind == Gauge {
		kind = prometheus.GaugeValue
	}
	ch <- prometheus.MustNewConstMetric(f.desc, kind, value, labels...)
}

func (s *Snapshot) collect(ch chan<- prometheus.Metric, dialErrorKinds []string) {
	clientConnections.emit(ch, float64(s.Connections))
	acceptPausesTotal.emit(ch, float64(s.AcceptPauses))
	logLinesDroppedTotal.emit(ch, float64(s.LogLinesDropped))
	clientsEvictedTotal.emit(ch, float64(s.EvictedIdle), "idle")
	clientsEvictedTotal.emit(ch, float64(s.EvictedSlow), "slow")
	clientsEvictedTotal.emit(ch, float64(s.EvictedStalled), "stalled")
	clientsEvictedTotal.emit(ch, float64(s.EvictedQueued), "queued")
	faultsTotal.emit(ch, float64(s.Faults))
	handshakeFailuresTotal.emit(ch, float64(s.HandshakeFailures))
	for reason, n := range s.HeaderFailures {
		proxyHeaderFailuresTotal.emit(ch, float64(n), reason)
	}
	draining.emit(ch, oneIf(s.Draining))
	retryBufferBytes.emit(ch, float64(s.RetryBufferBytes))
	retryBufferLimitBytes.emit(ch, float64(s.RetryBufferLimitBytes))
	retriesEnabledRatio.emit(ch, float64(s.RetryPercent)/100)
	rateLimitPausesTotal.emit(ch, float64(s.RateLimitPauses.Begun))
	rateLimitPausesDroppedTotal.emit(ch, float64(s.RateLimitPauses.Dropped))
	rateLimitPaused.emit(ch, float64(s.Paused))
	for _, q := range s.RateLimits {
		name := valid(q.Upstream)
		rateLimitSlotsTotal.emit(ch, float64(q.State.Leased), name, q.Rate, "leased")
		rateLimitSlotsTotal.emit(ch, float64(q.State.Own), name, q.Rate, "own")
		rateLimitSlotsTotal.emit(ch, float64(q.State.Expired), name, q.Rate, "expired")
		rateLimitQueued.emit(ch, float64(q.Queued), name, q.Rate)
		rateLimitKeys.emit(ch, float64(q.Keys), name, q.Rate)
		if q.Tokens > 0 {
			tokenLimit.emit(ch, q.Tokens, name, q.Rate)
		}
	}
	if s.Shared != nil {
		s.Shared.collect(ch)
	}
	for i := range s.Upstreams {
		s.Upstreams[i].collect(ch, dialErrorKinds)
	}
	for _, c := range s.Certificates {
		certificateExpiry.emit(ch, float64(c.NotAfter.Unix()), valid(c.Kind), valid(c.Name))
	}
}

func (s *Shared) collect(ch chan<- prometheus.Metric) {
	sharedUp.emit(ch, oneIf(s.Up))
	sharedLostTotal.emit(ch, float64(s.Lost))
	sharedProcesses.emit(ch, float64(s.Processes))
	sharedCommandsTotal.emit(ch, float64(s.Commands))
	sharedErrorsTotal.emit(ch, float64(s.Errors))
	sharedRateLimitPausesTotal.emit(ch, float64(s.PausesSent), "told")
	sharedRateLimitPausesTotal.emit(ch, float64(s.PausesReceived), "learnt")
	sharedRateLimitPausesTotal.emit(ch, float64(s.PausesDropped), "dropped")
}

func (u *Upstream) collect(ch chan<- prometheus.Metric, dialErrorKinds []string) {
	name := valid(u.Name)
	upstreamConnections.emit(ch, float64(u.Active), name, "active")
	upstreamConnections.emit(ch, float64(u.Dialing), name, "dialing")
	upstreamConnections.emit(ch, float64(u.Idle), name, "idle")
	upstreamDialsTotal.emit(ch, float64(u.Dials), name)
	upstreamReusesTotal.emit(ch, float64(u.Reuses), name)
	idleClosesTotal.emit(ch, float64(u.IdleCloses), name)
	for i, n := range u.DialErrors[:min(len(u.DialErrors), len(dialErrorKinds))] {
		dialErrorsTotal.emit(ch, float64(n), name, dialErrorKinds[i])
	}
	u.collectEndpoints(ch, name)
	u.collectGuard(ch, name)
	if u.HasBudget {
		budgetTokens.emit(ch, u.BudgetTokens, name)
	}
	if u.HasProbe {
		for _, r := range breaker.AllProbeResults() {
			pathProbesTotal.emit(ch, float64(u.Probed[r]), name, r.String())
		}
	}
}

func (u *Upstream) collectEndpoints(ch chan<- prometheus.Metric, upstream string) {
	for s, n := range u.Endpoints {
		upstreamEndpoints.emit(ch, float64(n), upstream, endpointStates[s])
	}
	for _, a := range u.EachEndpoint {
		name := valid(a.Name)
		if name == "" {
			name = "other"
		}
		endpointRequests.emit(ch, float64(a.Requests), upstream, name)
		endpointAttemptsTotal.emit(ch, float64(a.Attempts), upstream, name)
		endpointFailuresTotal.emit(ch, float64(a.Failures), upstream, name)
		if a.Name != "" {
			endpointEjected.emit(ch, oneIf(a.Ejected), upstream, name)
			endpointUnhealthy.emit(ch, oneIf(a.Unhealthy), upstream, name)
		}
	}
}

func (u *Upstream) collectGuard(ch chan<- prometheus.Metric, name string) {
	g := &u.Guard
	for s := range breaker.NumBreakerStates {
		state := breaker.State(s)
		breakerState.emit(ch, oneIf(g.Breaker == state), name, state.String())
	}
	for by := 1; by < breaker.NumOpenedBy; by++ {
		breakerOpenedTotal.emit(ch, float64(g.Opened[by]), name, breaker.OpenedBy(by).String())
	}
	breakerProbesTotal.emit(ch, float64(g.Probes), name)
	breakerResetsTotal.emit(ch, float64(g.Resets), name)
	limit := math.Inf(1)
	if g.ConcurrencyLimit > 0 {
		limit = float64(g.ConcurrencyLimit)
	}
	concurrencyLimit.emit(ch, limit, name)
	concurrencyLimitBoundTotal.emit(ch, float64(g.LimitBound), name)
	permitsInUse.emit(ch, float64(g.InFlight-g.Abandoned), name, "awaited")
	permitsInUse.emit(ch, float64(g.Abandoned), name, "abandoned")
	queuedRequests.emit(ch, float64(g.Queued), name)
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// valid makes s usable as a label, which must be UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
