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

	"github.com/retryproxy/retryproxy/fleet/engine"
	"github.com/retryproxy/retryproxy/fleet/enginetest"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is a running Fleet whose local state only records calls.
type process struct {
	*Fleet
	t    testing.TB
	logs *observer.ObservedLogs
	stop func() // ends it and waits

	mu             sync.Mutex
	pausesReceived map[uint64]time.Duration
	leaseRequests  []ratelimit.LeaseRequest
	grants         []ratelimit.LeaseGrant
	failed         int // requests
	processes      int // as last reported
	reports        []budget.Report
	levels         []float64
}

// RateLimitLeaseRequests returns the requests that the test prepared, once.
func (p *process) RateLimitLeaseRequests([]ratelimit.LeaseRequest) ([]ratelimit.LeaseRequest, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	requests := p.leaseRequests
	p.leaseRequests = nil
	return requests, backoff.Forever
}

func (p *process) ApplyRateLimitLease(_ uint64, g ratelimit.LeaseGrant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grants = append(p.grants, g)
}

func (p *process) FailRateLimitLease(uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed++
}

func (p *process) ShareRateLimits(processes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.processes = processes
}

// requestLease sends a request and waits for its response; false if there was none.
func (p *process) requestLease(a ratelimit.LeaseRequest) (g ratelimit.LeaseGrant, ok bool) {
	p.t.Helper()
	p.mu.Lock()
	p.leaseRequests, p.grants, p.failed = []ratelimit.LeaseRequest{a}, nil, 0
	p.mu.Unlock()
	p.RateLimitWanted()
	eventually(p.t, "answer", func() bool {
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

func (p *process) ApplyRateLimitPause(key uint64, lasts time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pausesReceived[key] = lasts
}

// pause returns the pause of the key that the process received; 0 if none.
func (p *process) pause(key uint64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pausesReceived[key]
}

// scoped returns the engine with another scope.
func scoped(e engine.Engine, scope string) engine.Engine {
	e.Scope = scope
	return e
}

// join runs a process of the scope test until the test ends.
func join(t testing.TB, s *enginetest.Server) *process {
	t.Helper()
	return joinWith(t, Options{Engine: s.Engine()})
}

func joinWith(t testing.TB, o Options) *process {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	o.Log = zap.New(core)
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Fleet: f, t: t, logs: logs, pausesReceived: map[uint64]time.Duration{}}
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

// joined is join; it returns once the engine responds and the process listens.
func joined(t testing.TB, s *enginetest.Server) *process {
	t.Helper()
	p := join(t, s)
	p.awaitListening()
	return p
}

// awaitListening waits until the process receives messages.
func (p *process) awaitListening() {
	p.t.Helper()
	eventually(p.t, "listening", func() bool { return p.Stats().Up && p.listening.Load() })
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// lines returns the number of log lines with the message.
func (p *process) lines(message string) int { return p.logs.FilterMessage(message).Len() }

const (
	lineUp   = "sharing with the fleet"
	lineLost = "the shared engine does not respond; each process continues with its own state until it does"
)

// BudgetReports returns the reports that the test prepared, once.
func (p *process) BudgetReports([]budget.Report) []budget.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	told := p.reports
	p.reports = nil
	return told
}

func (p *process) ApplyBudgetGrant(_ uint64, level float64, processes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.levels, p.processes = append(p.levels, level), processes
}

func (p *process) FailBudgetReport(uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed++
}

// settleOne reports a budget and waits for its level; false if there was no response.
func (p *process) settleOne(a budget.Report) (level float64, ok bool) {
	p.t.Helper()
	p.mu.Lock()
	p.reports, p.levels, p.failed = []budget.Report{a}, nil, 0
	p.mu.Unlock()
	eventually(p.t, "answer", func() bool {
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
