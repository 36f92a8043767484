package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Snapshot is what the proxy holds at one moment. The function given to Watch
// makes one per scrape; the metrics package only reads it.
type Snapshot struct {
	Connections         int    // caller connections open
	ConnectionsAccepted uint64 // since the start
	AcceptPauses        uint64 // since the start
	ReplayBytes         int64  // memory that keeps bodies and responses for retries
	ReplayLimitBytes    int64  // the most that ReplayBytes may be
	Upstreams           []Upstream
	Certificates        []Certificate
}

// Upstream is the state of one upstream's pool and budget. Counts are since
// the start and never fall.
type Upstream struct {
	Name    string // the label: unique in a Snapshot and without credentials
	Idle    int    // connections kept for the next request
	Active  int    // connections in use
	Dialing int    // dials under way

	Dials      uint64   // connections made
	Reuses     uint64   // times a kept connection was used again
	DialErrors []uint64 // failed dials, one count per label of Options.DialErrorKinds
	IdleCloses uint64   // kept connections the upstream closed while idle

	HasBudget    bool
	BudgetTokens float64 // retries allowed now
}

// Certificate is one whose end of validity is watched.
type Certificate struct {
	Kind     string // whose it is, from a closed set of the caller's, e.g. "client", "upstream"
	Name     string // which, e.g. a file's name or an upstream's; unique per Kind
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
	connectionsTotal.emit(ch, float64(s.ConnectionsAccepted))
	acceptPausesTotal.emit(ch, float64(s.AcceptPauses))
	replayBytes.emit(ch, float64(s.ReplayBytes))
	replayLimitBytes.emit(ch, float64(s.ReplayLimitBytes))
	for i := range s.Upstreams {
		s.Upstreams[i].collect(ch, dialErrorKinds)
	}
	for _, c := range s.Certificates {
		certificateExpiry.emit(ch, float64(c.NotAfter.Unix()), valid(c.Kind), valid(c.Name))
	}
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
	if u.HasBudget {
		budgetTokens.emit(ch, u.BudgetTokens, name)
	}
}

// valid makes s fit for a label, which must be UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
