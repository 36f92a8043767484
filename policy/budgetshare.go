package policy

import (
	"math"
	"time"
)

// A Budget of a fleet is one bucket for all of its processes, kept by a ledger
// (BudgetLedger). Each process tells it from time to time what requests put in
// and what retries took (Ask), and hears how much there is (Grant). Until the next answer
// it may take its part of that, one retry at least while there is a whole one. So
// the bucket can be overdrawn by one round of answers and pays for it after.
//
// Beside that the process's own bucket goes on as without a fleet, and is what counts
// while answers are missing.

const (
	// BudgetReportInterval is the least time between two questions while retries are made.
	BudgetReportInterval = 50 * time.Millisecond
	// budgetIdleReportInterval is the time between two where none are.
	budgetIdleReportInterval = time.Second
	// budgetGrantTimeout is how long a response is waited for, by nobody, before the own
	// bucket counts; and budgetFresh how long one is believed when nothing is asked.
	budgetGrantTimeout = 150 * time.Millisecond
	budgetFresh        = 3 * time.Second
)

// Share makes the budget a fleet's. wish is called, often, when a question is
// worth asking; it must not block. Called before all else.
func (b *Budget) Share(wish func()) { b.requestReport = wish }

// BudgetReport is what is told of a budget.
type BudgetReport struct {
	Key      uint64 // whose, the same in all processes
	Config   BudgetConfig
	Requests int // original requests since the last time
	Spent    int // retries since, less those given back
}

// MakeReport makes the question that is due; no when none is.
func (b *Budget) MakeReport(now time.Duration) (a BudgetReport, due bool) {
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
	a = BudgetReport{
		Requests: int(min(all-b.reported, math.MaxInt32)), Spent: int(max(min(spent, math.MaxInt32), math.MinInt32)),
		Config: BudgetConfig{Ratio: float64(b.ratio) / perToken, MinPerSecond: float64(b.perSecond) / perToken, Burst: int(b.burst / perToken)},
	}
	b.lastReportAt, b.reported = now, all
	b.unreportedRetries.Add(-spent)
	return a, true
}

// ApplyGrant takes in the response: how many retries the fleet's bucket holds, and how
// many processes there are.
func (b *Budget) ApplyGrant(now time.Duration, level float64, processes int) {
	allowed := int64(0)
	if level >= 1 {
		allowed = max(1, int64(min(level, maxBurst))/int64(max(processes, 1)))
	}
	b.allowed.Store(allowed)
	b.freshTo.Store(int64(now + budgetFresh))
	b.waitingSince.Store(0)
}

// ReportFailed notes that a question had no response.
func (b *Budget) ReportFailed() {
	b.freshTo.Store(0)
	b.waitingSince.Store(0)
}

// alone says whether the own bucket counts.
func (b *Budget) alone(now time.Duration) bool {
	wanted := b.waitingSince.Load()
	return int64(now) >= b.freshTo.Load() || wanted != 0 && int64(now)-wanted >= int64(budgetGrantTimeout)
}

// tryShared is TryRetry in a fleet.
func (b *Budget) tryShared(now time.Duration) bool {
	own := b.tryOwn(now) // it pays too, as far as it can
	for !b.alone(now) {
		n := b.allowed.Load()
		if n < 1 {
			if own {
				b.used.Add(-perToken)
			}
			b.want(now)
			return false
		}
		if b.allowed.CompareAndSwap(n, n-1) {
			own = true
			break
		}
	}
	if own {
		b.unreportedRetries.Add(1)
		b.want(now)
	}
	return own
}

// want has a question asked.
func (b *Budget) want(now time.Duration) {
	if b.freshTo.Load() != 0 {
		b.waitingSince.CompareAndSwap(0, max(int64(now), 1))
	}
	b.requestReport()
}

// BudgetLedger is the one bucket of a fleet, by the rules of Budget: what requests put in and
// nobody used is lost with a time constant of ten seconds. In production it is a script at the
// engine, which a test holds to this one; simulations use it as it is.
//
// It is not safe for concurrent use. now is the ledger's own time. The zero value
// is a full bucket.
type BudgetLedger struct {
	level  float64 // retries that it holds; below 0: overdrawn
	recent float64 // retries put in by requests lately
	at     time.Duration
	begun  bool
}

// Settle takes in what a process tells and says how many retries there are.
func (l *BudgetLedger) Settle(now time.Duration, a BudgetReport) float64 {
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
