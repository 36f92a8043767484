package budget

import (
	"math"
	"time"
)

// The Budget of a fleet is one bucket for all of its processes, kept by a Ledger. Each
// process regularly reports what requests added and retries took (MakeReport), and receives
// how many tokens there are (ApplyGrant). Until the next response it may take its part of
// them, at least one retry while there is a whole token. So the bucket can be overdrawn by
// one round of responses; later requests pay for it.
//
// The process's own bucket keeps running as without a fleet, and applies while responses
// are missing.

const (
	// BudgetReportInterval is the minimum time between two reports while retries are made.
	BudgetReportInterval = 50 * time.Millisecond
	// budgetIdleReportInterval is the time between two reports without retries.
	budgetIdleReportInterval = time.Second
	// budgetGrantTimeout is how long a response is awaited, without blocking, before the
	// own bucket applies. budgetFresh is how long a response stays valid if no report is
	// sent.
	budgetGrantTimeout = 150 * time.Millisecond
	budgetFresh        = 3 * time.Second
)

// Share makes b a budget of a fleet. It calls notify, often, when MakeReport is worth
// calling; notify must not block. Call Share before any other method.
func (b *Budget) Share(notify func()) { b.requestReport = notify }

// Report is what a process reports about a budget.
type Report struct {
	Key      uint64 // of the budget, the same in all processes
	Config   Config
	Requests int // original requests since the last report
	Spent    int // retries since then, less those given back
}

// MakeReport returns the report that is due, or false if none is. The caller sets its Key.
func (b *Budget) MakeReport(now time.Duration) (a Report, due bool) {
	b.reportMu.Lock()
	defer b.reportMu.Unlock()
	all, _ := b.requests(now)
	spent := b.unreportedRetries.Load()
	every := time.Duration(budgetIdleReportInterval)
	if spent != 0 || b.waitingSince.Load() != 0 {
		every = BudgetReportInterval
	}
	if b.requestReport == nil || now-b.lastReportAt < every || all == b.reported && spent == 0 && b.waitingSince.Load() == 0 {
		return a, false
	}
	a = Report{
		Requests: int(min(all-b.reported, math.MaxInt32)), Spent: int(max(min(spent, math.MaxInt32), math.MinInt32)),
		Config: Config{Ratio: float64(b.ratio) / perToken, MinPerSecond: float64(b.perSecond) / perToken, Burst: int(b.burst / perToken)},
	}
	b.lastReportAt, b.reported = now, all
	b.unreportedRetries.Add(-spent)
	return a, true
}

// ApplyGrant processes the response to a report: how many retries the fleet's bucket holds,
// and the number of processes.
func (b *Budget) ApplyGrant(now time.Duration, level float64, processes int) {
	allowed := int64(0)
	if level >= 1 {
		allowed = max(1, int64(min(level, maxBurst))/int64(max(processes, 1)))
	}
	b.allowed.Store(allowed)
	b.freshTo.Store(int64(now + budgetFresh))
	b.waitingSince.Store(0)
}

// ReportFailed records that a report got no response.
func (b *Budget) ReportFailed() {
	b.freshTo.Store(0)
	b.waitingSince.Store(0)
}

// alone reports whether the own bucket applies.
func (b *Budget) alone(now time.Duration) bool {
	wanted := b.waitingSince.Load()
	return int64(now) >= b.freshTo.Load() || wanted != 0 && int64(now)-wanted >= int64(budgetGrantTimeout)
}

// tryShared is take in a fleet.
func (b *Budget) tryShared(now time.Duration) bool {
	own := b.tryOwn(now) // the own bucket pays too, as far as it can
	for !b.alone(now) {
		n := b.allowed.Load()
		if n < 1 {
			if own {
				b.used.Add(-perToken)
			}
			b.requestGrant(now)
			return false
		}
		if b.allowed.CompareAndSwap(n, n-1) {
			own = true
			break
		}
	}
	if own {
		b.unreportedRetries.Add(1)
		b.requestGrant(now)
	}
	return own
}

// requestGrant asks for a report to be sent.
func (b *Budget) requestGrant(now time.Duration) {
	if b.freshTo.Load() != 0 {
		b.waitingSince.CompareAndSwap(0, max(int64(now), 1))
	}
	b.requestReport()
}

// Ledger is the one bucket of a fleet, by the rules of Budget. Unused tokens of requests
// are lost with a time constant of ten seconds. In production it is a script in the engine.
// Only tests use this type: one compares it with the script.
//
// It is not safe for concurrent use. now is the ledger's own time. The zero value is a full
// bucket.
type Ledger struct {
	level  float64 // retries available; below 0: overdrawn
	recent float64 // retries added by recent requests
	at     time.Duration
	begun  bool
}

// Settle processes a report and returns how many retries are available.
func (l *Ledger) Settle(now time.Duration, a Report) float64 {
	burst := float64(a.Config.Burst)
	if !l.begun {
		l.level, l.at, l.begun = burst, now, true
	}
	took := max(0, (now - l.at).Seconds())
	earned := a.Config.Ratio * float64(a.Requests)
	l.recent = l.recent*math.Exp(-took/windowSeconds) + earned
	full := burst + l.recent
	l.level = min(l.level+earned+a.Config.MinPerSecond*took, full)
	l.level = max(l.level-float64(a.Spent), -full)
	l.at = now
	return l.level
}
