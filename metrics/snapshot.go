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
	Connections       int               // caller connections open
	AcceptPauses      uint64            // times that accepting paused, since the start
	EvictedIdle       uint64            // client connections ended while idle, as others needed their slots, since the start
	EvictedStalled    uint64            // likewise, whose client took nothing of its response
	Faults            uint64            // requests that ended in a fault of the proxy itself, since the start
	HandshakeFailures uint64            // callers whose TLS handshake failed, since the start
	HeaderFailures    map[string]uint64 // connections without the PROXY protocol header that they had to begin with, by reason, of a closed set
	Draining          bool              // the proxy is shutting down
	ReplayBytes       int64             // memory that keeps bodies and responses for retries
	ReplayLimitBytes  int64             // the most that ReplayBytes may be
	RetryPercent      int               // of a hundred retries, those made
	Cooldowns         policy.CooldownState
	Quotas            []Quota
	Shared            *Shared // nil: nothing is shared
	Upstreams         []Upstream
	Certificates      []Certificate
}

// Quota is the state of one quota. Counts are since the start and never fall.
type Quota struct {
	Upstream string // the label, without credentials
	Rate     string // 100/s; no two quotas agree in both
	Waiting  int    // requests that wait for their turn
	Keys     int    // values of a field with a quota of their own
	State    policy.QuotaState
}

// Shared is what is known of the shared engine. Counts are since the start and
// never fall.
type Shared struct {
	Up                                               bool
	Lost, Commands, Errors                           uint64
	Processes                                        int
	CooldownsTold, CooldownsLearnt, CooldownsDropped uint64
	TurnsOurs, TurnsAnothers                         uint64 // to probe an upstream whose gate is not open
	OpenedTold, OpenedLearnt, OpenedDropped          uint64 // words that one is up
}

// Upstream is the state of one upstream's pool and budget. Counts are since
// the start and never fall.
type Upstream struct {
	Name    string // the label, without credentials; those of one name are added up
	Idle    int    // connections kept for the next request
	Active  int    // connections in use
	Dialing int    // dials under way

	Dials      uint64   // connections made
	Reuses     uint64   // times a kept connection was used again
	DialErrors []uint64 // failed dials, one count per label of Options.DialErrorKinds
	IdleCloses uint64   // kept connections the upstream closed while idle

	Addresses [NumAddressStates]int // how many are in each state
	Each      []Address             // those of an upstream with several, a bounded number

	LastFailure *DialFailure // the last failed connection, for the page; no metric shows it

	HasBudget    bool
	BudgetTokens float64 // retries allowed now

	Guard policy.GuardState // gate and limit

	HasThrottle bool
	Throttle    float64                        // share of requests not sent
	HasProbe    bool                           // RETRYPROXY_PROBE_PATH is set
	Probed      [policy.NumProbeResults]uint64 // probes of that path that ended, by result
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
	Kind     string // whose it is, from a closed set of the caller's, e.g. "client", "upstream"
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
	callerConnections.emit(ch, float64(s.Connections))
	acceptPausesTotal.emit(ch, float64(s.AcceptPauses))
	clientsEvictedTotal.emit(ch, float64(s.EvictedIdle), "idle")
	clientsEvictedTotal.emit(ch, float64(s.EvictedStalled), "stalled")
	faultsTotal.emit(ch, float64(s.Faults))
	handshakeFailuresTotal.emit(ch, float64(s.HandshakeFailures))
	for reason, n := range s.HeaderFailures {
		proxyHeaderFailuresTotal.emit(ch, float64(n), reason)
	}
	draining.emit(ch, oneIf(s.Draining))
	replayBytes.emit(ch, float64(s.ReplayBytes))
	replayLimitBytes.emit(ch, float64(s.ReplayLimitBytes))
	retryPercent.emit(ch, float64(s.RetryPercent))
	cooldownsTotal.emit(ch, float64(s.Cooldowns.Begun))
	cooldownsDisplacedTotal.emit(ch, float64(s.Cooldowns.Displaced))
	for _, q := range s.Quotas {
		name := valid(q.Upstream)
		quotaSlotsTotal.emit(ch, float64(q.State.Leased), name, q.Rate, "leased")
		quotaSlotsTotal.emit(ch, float64(q.State.Own), name, q.Rate, "own")
		quotaSlotsTotal.emit(ch, float64(q.State.Expired), name, q.Rate, "expired")
		quotaWaiting.emit(ch, float64(q.Waiting), name, q.Rate)
		quotaKeys.emit(ch, float64(q.Keys), name, q.Rate)
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
	sharedCooldownsTotal.emit(ch, float64(s.CooldownsTold), "told")
	sharedCooldownsTotal.emit(ch, float64(s.CooldownsLearnt), "learnt")
	sharedCooldownsTotal.emit(ch, float64(s.CooldownsDropped), "dropped")
	sharedTurnsTotal.emit(ch, float64(s.TurnsOurs), "ours")
	sharedTurnsTotal.emit(ch, float64(s.TurnsAnothers), "another")
	sharedOpenedTotal.emit(ch, float64(s.OpenedTold), "told")
	sharedOpenedTotal.emit(ch, float64(s.OpenedLearnt), "learnt")
	sharedOpenedTotal.emit(ch, float64(s.OpenedDropped), "dropped")
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
	u.collectAddresses(ch)
	u.collectGuard(ch)
	if u.HasThrottle {
		throttleProbability.emit(ch, u.Throttle, name)
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
	for s := range policy.NumGateStates {
		state := policy.GateState(s)
		gateState.emit(ch, oneIf(g.Gate == state), u.Name, state.String())
	}
	for by := 1; by < policy.NumClosedBy; by++ {
		gateClosedTotal.emit(ch, float64(g.Closed[by]), u.Name, policy.ClosedBy(by).String())
	}
	gateProbesTotal.emit(ch, float64(g.Probes), u.Name)
	limit := math.Inf(1)
	if g.Limit > 0 {
		limit = float64(g.Limit)
	}
	limitNow.emit(ch, limit, u.Name)
	limitBoundTotal.emit(ch, float64(g.Bound), u.Name)
	placesTaken.emit(ch, float64(g.InFlight-g.Abandoned), u.Name, "awaited")
	placesTaken.emit(ch, float64(g.Abandoned), u.Name, "abandoned")
	doorWaiting.emit(ch, float64(g.Waiting), u.Name)
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
	u.addAddresses(o)
	u.addGuard(&o.Guard)
	u.HasBudget = u.HasBudget || o.HasBudget
	u.BudgetTokens += o.BudgetTokens
	u.HasThrottle = u.HasThrottle || o.HasThrottle
	u.Throttle = max(u.Throttle, o.Throttle)
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

// addGuard adds counts up; of two gates the one that is less open is shown.
func (u *Upstream) addGuard(o *policy.GuardState) {
	g := &u.Guard
	if g.Gate == policy.GateOpen || o.Gate == policy.GateClosed {
		g.Gate = o.Gate
	}
	for i, n := range o.Closed {
		g.Closed[i] += n
	}
	g.Probes += o.Probes
	g.Bound += o.Bound
	g.InFlight += o.InFlight
	g.Abandoned += o.Abandoned
	g.Waiting += o.Waiting
	g.Limit += o.Limit
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// valid makes s fit for a label, which must be UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
