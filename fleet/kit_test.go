package fleet

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/retryproxy/retryproxy/fleet/enginetest"
	"github.com/retryproxy/retryproxy/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is a Fleet at work with local state that only notes.
type process struct {
	*Fleet
	t    testing.TB
	logs *observer.ObservedLogs
	stop func() // ends it and waits

	mu        sync.Mutex
	learnt    map[uint64]time.Duration
	asks      []policy.QuotaAsk
	grants    []policy.QuotaGrant
	failed    int // questions
	processes int // as told
	told      []policy.BudgetAsk
	levels    []float64
	gateAsks  []policy.GateAsk
	turns     []policy.GateTurn
	heard     map[uint64]int // words that a gate opened
}

// QuotaAsks asks what the test put there, and then no more.
func (p *process) QuotaAsks([]policy.QuotaAsk) ([]policy.QuotaAsk, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asks := p.asks
	p.asks = nil
	return asks, policy.Forever
}

func (p *process) GrantQuota(_ uint64, g policy.QuotaGrant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grants = append(p.grants, g)
}

func (p *process) FailQuota(uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed++
}

func (p *process) ShareQuotas(processes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.processes = processes
}

// ask puts a question and waits for its answer; false: there was none.
func (p *process) ask(a policy.QuotaAsk) (g policy.QuotaGrant, ok bool) {
	p.t.Helper()
	p.mu.Lock()
	p.asks, p.grants, p.failed = []policy.QuotaAsk{a}, nil, 0
	p.mu.Unlock()
	p.QuotaWanted()
	soon(p.t, "answer", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		ok = len(p.grants) > 0
		if ok {
			g = p.grants[0]
		}
		return ok || p.failed > 0
	})
	return g, ok
}

func (p *process) LearnCooldown(key uint64, lasts time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.learnt[key] = lasts
}

// pause is what the process learnt of the key; 0 when nothing.
func (p *process) pause(key uint64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.learnt[key]
}

// join runs a process of the scope test until the test ends.
func join(t testing.TB, s *enginetest.Server) *process {
	t.Helper()
	return joinWith(t, Options{Engine: s.Engine(), Scope: "test"})
}

func joinWith(t testing.TB, o Options) *process {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	o.Log = zap.New(core)
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Fleet: f, t: t, logs: logs, learnt: map[uint64]time.Duration{}, heard: map[uint64]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx, p)
	}()
	p.stop = func() { cancel(); <-ended }
	t.Cleanup(p.stop)
	return p
}

// joined is join once the engine answers and the process listens.
func joined(t testing.TB, s *enginetest.Server) *process {
	t.Helper()
	p := join(t, s)
	p.listening()
	return p
}

// listening waits until what others tell is heard.
func (p *process) listening() {
	p.t.Helper()
	soon(p.t, "listening", func() bool { return p.Stats().Up && p.hearing.Load() })
}

// soon waits for a condition.
func soon(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// lines are how many log lines there are with the message.
func (p *process) lines(message string) int { return p.logs.FilterMessage(message).Len() }

const (
	lineUp   = "sharing with the fleet"
	lineLost = "the shared engine does not answer; each process goes on with its own state until it does"
)

// BudgetAsks tells what the test put there, and then no more.
func (p *process) BudgetAsks([]policy.BudgetAsk) []policy.BudgetAsk {
	p.mu.Lock()
	defer p.mu.Unlock()
	told := p.told
	p.told = nil
	return told
}

func (p *process) GrantBudget(_ uint64, level float64, processes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.levels, p.processes = append(p.levels, level), processes
}

func (p *process) FailBudget(uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed++
}

// settleOne tells of a budget and waits for its level; false: there was no answer.
func (p *process) settleOne(a policy.BudgetAsk) (level float64, ok bool) {
	p.t.Helper()
	p.mu.Lock()
	p.told, p.levels, p.failed = []policy.BudgetAsk{a}, nil, 0
	p.mu.Unlock()
	soon(p.t, "answer", func() bool {
		p.BudgetWanted()
		p.mu.Lock()
		defer p.mu.Unlock()
		ok = len(p.levels) > 0
		if ok {
			level = p.levels[0]
		}
		return ok || p.failed > 0
	})
	return level, ok
}

// GateAsks asks what the test put there, and then no more.
func (p *process) GateAsks([]policy.GateAsk) ([]policy.GateAsk, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asks := p.gateAsks
	p.gateAsks = nil
	return asks, policy.Forever
}

func (p *process) GrantGate(_ uint64, t policy.GateTurn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turns = append(p.turns, t)
}

func (p *process) HearGate(key uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard[key]++
}

// heardOf is how often the process heard that the gate opened.
func (p *process) heardOf(key uint64) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard[key]
}

// turn asks whose turn it is and waits for the answer.
func (p *process) turn(a policy.GateAsk) (t policy.GateTurn) {
	p.t.Helper()
	p.mu.Lock()
	p.gateAsks, p.turns = []policy.GateAsk{a}, nil
	p.mu.Unlock()
	p.GateWanted()
	soon(p.t, "answer", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.turns) > 0 {
			t = p.turns[0]
		}
		return len(p.turns) > 0
	})
	return t
}
