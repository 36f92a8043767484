package fleet

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/fleet/enginetest"
	"github.com/retryproxy/retryproxy/policy/budget"
)

// The script follows the rules of budget.Ledger. Without tokens per second they differ only by
// rounding.
func TestTheBudgetsScriptIsTheLedger(t *testing.T) {
	s := enginetest.Start(t)
	p := joined(t, s)
	r := rand.New(rand.NewPCG(8, 9))
	var ledger budget.Ledger
	began := time.Now()
	for i := range 40 {
		a := budget.Report{Key: 1, Config: budget.Config{Ratio: 0.2, Burst: 10}, Requests: r.IntN(200), Spent: r.IntN(40) - 3}
		got, ok := p.settleOne(a)
		want := ledger.Settle(time.Since(began), a)
		if !ok || math.Abs(got-want) > 1+math.Abs(want)/20 {
			t.Fatalf("%d: %+v: the engine says %v, the ledger %v", i, a, got, want)
		}
	}
	if left := s.Do("PTTL", p.key("budget", 1)).(int64); left <= 0 {
		t.Error("kept for ever")
	}
}

// Tokens that one process's requests add are available to another, and a retry of one takes from
// all.
func TestABudgetOfTwoProcesses(t *testing.T) {
	s := enginetest.Start(t)
	a, b := joined(t, s), joined(t, s)
	config := budget.Config{Ratio: 0.2, Burst: 10}
	if level, ok := a.settleOne(budget.Report{Key: 1, Config: config, Requests: 100}); !ok || level < 9 || level > 30 {
		t.Errorf("%v, %v", level, ok)
	}
	if level, ok := b.settleOne(budget.Report{Key: 1, Config: config, Requests: 100, Spent: 40}); !ok || level > 10.1 || level < -15 {
		t.Errorf("%v, %v", level, ok)
	}
	s.Do("HSET", a.key("budget", 1), "level", "inf", "recent", "nan", "at", "x")
	a.settleOne(budget.Report{Key: 1, Config: config})
	if level, ok := a.settleOne(budget.Report{Key: 1, Config: config}); !ok || level != 10 {
		t.Errorf("after nonsense: %v, %v", level, ok)
	}
	s.Kill()
	if _, ok := a.settleOne(budget.Report{Key: 1, Config: config}); ok {
		t.Error("a response of nobody")
	}
}
