package metrics

import (
	"math"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/retryproxy/retryproxy/policy"
)

// Snapshot is what the proxy holds at one moment. The function given to Watch
// makes one per scrape; the metrics package only reads it.
type Snapshot struct {
	Connections           int               // client connections open
	AcceptPauses          uint64            // times that accepting paused, since the start
	EvictedIdle           uint64            // client connections ended while idle, as others needed their slots, since the start
	EvictedStalled        uint64            // likewise, whose client took nothing of its response
	Faults                uint64            // requests that ended in a fault of the proxy itself, since the start
	HandshakeFailures     uint64            // clients whose TLS handshake failed, since the start
	HeaderFailures        map[string]uint64 // connections without the PROXY protocol header that they had to begin with, by reason, of a closed set
	Draining              bool              // the proxy is shutting down
	RetryBufferBytes      int64             // memory that keeps bodies and responses for retries
	RetryBufferLimitBytes int64             // the most that RetryBufferBytes may be
	RetryPercent          int               // of a hundred retries, those made
	RateLimitPauses       policy.RateLimitPauseState
	RateLimits            []RateLimit
	Shared                *Shared // nil: nothing is shared
	Upstreams             []Upstream
	Certificates          []Certificate
}

// RateLimit is the state of one rate limit. Counts are since the start and never fall.
type RateLimit struct {
	Upstream string // the label, without credentials
	Rate     string // 100/s; no two rate limits agree in both
	Queued   int    // requests that wait for their turn
	Keys     int    // values of a field with a rate limit of their own
	State    policy.RateLimiterState
}

// Shared is what is known of the shared engine. Counts are since the start and
// never fall.
type Shared struct {
	Up                                        bool
	Lost, Commands, Errors                    uint64
	Processes                                 int
	PausesSent, PausesReceived, PausesDropped uint64
}

// Upstream is the state of one upstream's pool and budget. Counts are since
// the start and never fall.
type Upstream struct {
	Name    string // the label, without credentials; those of one name are added up
	Idle    int    // connections kept for the next request
	Active  int    // connections in use
	Dialing int    // dials in flight

	Dials      uint64   // connections made
	Reuses     uint64   // times a kept connection was used again
	DialErrors []uint64 // failed dials, one count per label of Options.DialErrorKinds
	IdleCloses uint64   // kept connections the upstream closed while idle

	Endpoints    [NumEndpointStates]int // how many are in each state
	EachEndpoint []Endpoint             // those of an upstream with several, a bounded number

	LastFailure *DialFailure // the last failed connection, for the page; no metric shows it

	HasBudget    bool
	BudgetTokens float64 // retries allowed now

	Guard policy.GuardState // breaker and limit

	HasClientThrottling bool
	ClientThrottling    float64                        // share of requests not sent
	HasProbe            bool                           // RETRYPROXY_PROBE_PATH is set
	Probed              [policy.NumProbeResults]uint64 // probes of that path that ended, by result
}

// DialFailure is a failed connection.
type DialFailure struct {
	At      time.Time
	Address string
	Kind    string
	Text    string // the cause, in one bounded line
}

// Certificate is one whose end of validity is watched.
type Certificate struct {
	Kind     string // whose it is, from a closed set of the client's, e.g. "client", "upstream"
	Name     string // which, e.g. a file's name or an upstream's; of several with one name the first to end is shown
	NotAfter time.Time
}

// emit shows one value of f.
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
	clientsEvictedTotal.emit(ch, float64(s.EvictedIdle), "idle")
	clientsEvictedTotal.emit(ch, float64(s.EvictedStalled), "stalled")
	faultsTotal.emit(ch, float64(s.Faults))
	handshakeFailuresTotal.emit(ch, float64(s.HandshakeFailures))
	for reason, n := range s.HeaderFailures {
		proxyHeaderFailuresTotal.emit(ch, float64(n), reason)
	}
	draining.emit(ch, oneIf(s.Draining))
	retryBufferBytes.emit(ch, float64(s.RetryBufferBytes))
	retryBufferLimitBytes.emit(ch, float64(s.RetryBufferLimitBytes))
	retryPercent.emit(ch, float64(s.RetryPercent))
	rateLimitPausesTotal.emit(ch, float64(s.RateLimitPauses.Begun))
	rateLimitPausesDisplacedTotal.emit(ch, float64(s.RateLimitPauses.Displaced))
	for _, q := range s.RateLimits {
		name := valid(q.Upstream)
		rateLimitSlotsTotal.emit(ch, float64(q.State.Leased), name, q.Rate, "leased")
		rateLimitSlotsTotal.emit(ch, float64(q.State.Own), name, q.Rate, "own")
		rateLimitSlotsTotal.emit(ch, float64(q.State.Expired), name, q.Rate, "expired")
		rateLimitQueued.emit(ch, float64(q.Queued), name, q.Rate)
		rateLimitKeys.emit(ch, float64(q.Keys), name, q.Rate)
	}
	if s.Shared != nil {
		s.Shared.collect(ch)
	}
	for _, u := range merged(s.Upstreams) {
		u.collect(ch, dialErrorKinds)
	}
	for id, end := range earliest(s.Certificates) {
		certificateExpiry.emit(ch, float64(end.Unix()), id.kind, id.name)
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
	name := u.Name
	upstreamConnections.emit(ch, float64(u.Active), name, "active")
	upstreamConnections.emit(ch, float64(u.Dialing), name, "dialing")
	upstreamConnections.emit(ch, float64(u.Idle), name, "idle")
	upstreamDialsTotal.emit(ch, float64(u.Dials), name)
	upstreamReusesTotal.emit(ch, float64(u.Reuses), name)
	idleClosesTotal.emit(ch, float64(u.IdleCloses), name)
	for i, n := range u.DialErrors[:min(len(u.DialErrors), len(dialErrorKinds))] {
		dialErrorsTotal.emit(ch, float64(n), name, dialErrorKinds[i])
	}
	u.collectEndpoints(ch)
	u.collectGuard(ch)
	if u.HasClientThrottling {
		clientThrottlingProbability.emit(ch, u.ClientThrottling, name)
	}
	if u.HasBudget {
		budgetTokens.emit(ch, u.BudgetTokens, name)
	}
	if u.HasProbe {
		for _, r := range policy.AllProbeResults() {
			pathProbesTotal.emit(ch, float64(u.Probed[r]), name, r.String())
		}
	}
}

func (u *Upstream) collectGuard(ch chan<- prometheus.Metric) {
	g := &u.Guard
	for s := range policy.NumBreakerStates {
		state := policy.BreakerState(s)
		breakerState.emit(ch, oneIf(g.Breaker == state), u.Name, state.String())
	}
	for by := 1; by < policy.NumOpenedBy; by++ {
		breakerOpenedTotal.emit(ch, float64(g.Opened[by]), u.Name, policy.OpenedBy(by).String())
	}
	breakerProbesTotal.emit(ch, float64(g.Probes), u.Name)
	limit := math.Inf(1)
	if g.ConcurrencyLimit > 0 {
		limit = float64(g.ConcurrencyLimit)
	}
	concurrencyLimit.emit(ch, limit, u.Name)
	concurrencyLimitBoundTotal.emit(ch, float64(g.LimitBound), u.Name)
	permitsInUse.emit(ch, float64(g.InFlight-g.Abandoned), u.Name, "awaited")
	permitsInUse.emit(ch, float64(g.Abandoned), u.Name, "abandoned")
	queuedRequests.emit(ch, float64(g.Queued), u.Name)
}

// merged adds up upstreams of one name, such as those that differ only in
// their certificates: two series of the same labels would be an error.
func merged(upstreams []Upstream) []Upstream {
	at := make(map[string]int, len(upstreams))
	out := make([]Upstream, 0, len(upstreams))
	for _, u := range upstreams {
		u.Name = valid(u.Name)
		i, seen := at[u.Name]
		if !seen {
			at[u.Name] = len(out)
			out = append(out, u)
			continue
		}
		out[i].add(&u)
	}
	return out
}

type certificateID struct{ kind, name string }

// earliest is the end of validity by certificate: the first one for a name
// that is there twice, as two series of the same labels would be an error.
func earliest(certificates []Certificate) map[certificateID]time.Time {
	out := make(map[certificateID]time.Time, len(certificates))
	for _, c := range certificates {
		id := certificateID{valid(c.Kind), valid(c.Name)}
		if end, seen := out[id]; !seen || c.NotAfter.Before(end) {
			out[id] = c.NotAfter
		}
	}
	return out
}

func (u *Upstream) add(o *Upstream) {
	u.Idle += o.Idle
	u.Active += o.Active
	u.Dialing += o.Dialing
	u.Dials += o.Dials
	u.Reuses += o.Reuses
	u.IdleCloses += o.IdleCloses
	u.addEndpoints(o)
	u.addGuard(&o.Guard)
	u.HasBudget = u.HasBudget || o.HasBudget
	u.BudgetTokens += o.BudgetTokens
	u.HasClientThrottling = u.HasClientThrottling || o.HasClientThrottling
	u.ClientThrottling = max(u.ClientThrottling, o.ClientThrottling)
	u.HasProbe = u.HasProbe || o.HasProbe
	for i, n := range o.Probed {
		u.Probed[i] += n
	}
	errors := make([]uint64, max(len(u.DialErrors), len(o.DialErrors))) // the given ones are not ours to change
	copy(errors, u.DialErrors)
	for i, n := range o.DialErrors {
		errors[i] += n
	}
	u.DialErrors = errors
}

// addGuard adds counts up; of two breakers the one that is more open is shown.
func (u *Upstream) addGuard(o *policy.GuardState) {
	g := &u.Guard
	if g.Breaker == policy.BreakerClosed || o.Breaker == policy.BreakerOpen {
		g.Breaker = o.Breaker
	}
	for i, n := range o.Opened {
		g.Opened[i] += n
	}
	g.Probes += o.Probes
	g.LimitBound += o.LimitBound
	g.InFlight += o.InFlight
	g.Abandoned += o.Abandoned
	g.Queued += o.Queued
	g.ConcurrencyLimit += o.ConcurrencyLimit
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// valid makes s fit for a label, which must be UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
