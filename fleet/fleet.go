package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/fleet/engine"
	"github.com/retryproxy/retryproxy/policy"
)

// Options are fixed at New.
type Options struct {
	Engine       engine.Engine
	Scope        string // whom to share with: those of the same scope on the same engine
	PasswordFile string // read at every connect; "" sends none
	CA           string // PEM file of the authorities for TLS; "" means the system's
	Cert, Key    string // PEM files of what is shown over TLS; "" shows nothing

	Log *zap.Logger
}

// Local is this process's own state, which the data path works on. Its methods
// are called in the background and are safe for concurrent use.
type Local interface {
	// ApplyRateLimitPause takes over a pause that began elsewhere, within the caps of
	// this process. It does not block.
	ApplyRateLimitPause(key uint64, lasts time.Duration)

	// RateLimitLeaseRequests, ApplyRateLimitLease, FailRateLimitLease and ShareRateLimits: see proxy.Server.
	RateLimitLeaseRequests(asks []policy.RateLimitLeaseRequest) ([]policy.RateLimitLeaseRequest, time.Duration)
	ApplyRateLimitLease(key uint64, g policy.RateLimitLeaseGrant)
	FailRateLimitLease(key uint64)
	ShareRateLimits(processes int)

	// BudgetReports, ApplyBudgetGrant and FailBudgetReport likewise.
	BudgetReports(asks []policy.BudgetReport) []policy.BudgetReport
	ApplyBudgetGrant(key uint64, level float64, processes int)
	FailBudgetReport(key uint64)
}

// Fleet is this process's part in a fleet. Its life is New and one Run; all
// other methods at any time, before Run too. Safe for concurrent use.
type Fleet struct {
	link         *link
	member       string // who we are among the others: a random number
	prefix       string // of all keys
	pauses       chan pause
	slotsWanted  chan struct{} // slots are, where none were; room for one
	retriesSpent chan struct{} // retries were, of a budget; room for one

	members                                   atomic.Int64 // processes of the scope as last seen; 0: never
	listening                                 atomic.Bool  // what others tell, all of it since we joined
	pausesSent, pausesReceived, pausesDropped atomic.Uint64
	malformed                                 atomic.Uint64
}

// New makes a Fleet and reads the files that o names. Nothing is connected yet:
// an engine that is not there is no error.
func New(o Options) (*Fleet, error) {
	l, err := newLink(&o)
	if err != nil {
		return nil, fmt.Errorf("shared state on %s: %w", o.Engine, err)
	}
	scope := sha256.Sum256([]byte("scope\x00" + o.Scope))
	return &Fleet{
		link:         l,
		member:       fmt.Sprintf("%016x", rand.Uint64()),
		prefix:       "retryproxy:" + hex.EncodeToString(scope[:8]) + ":",
		pauses:       make(chan pause, pauseBuffer),
		slotsWanted:  make(chan struct{}, 1),
		retriesSpent: make(chan struct{}, 1),
	}, nil
}

// Run shares until ctx ends, and then takes its leave of the others as far as
// that is quick.
func (f *Fleet) Run(ctx context.Context, local Local) {
	var parts sync.WaitGroup
	parts.Go(func() { f.heartbeat(ctx, local) })
	parts.Go(func() { f.leaseSlots(ctx, local) })
	parts.Go(func() { f.shareBudgets(ctx, local) })
	parts.Go(func() { f.publishPauses(ctx) })
	parts.Go(func() { f.listen(ctx, local) })
	<-ctx.Done()
	f.leave()
	_ = f.link.client.Close() // ends the calls in flight
	parts.Wait()
}

// heartbeatInterval is how often a process says that it is there, and how often it
// is known that the engine is; memberTTL is after how long of silence it is taken for gone.
const (
	heartbeatInterval = time.Second
	memberTTL         = 5 * time.Second
)

// heartbeat says to the engine that we are there, until ctx ends. Of how many there
// are, less is believed only when it has been so for memberTTL: an engine that was
// emptied knows few at first.
func (f *Fleet) heartbeat(ctx context.Context, local Local) {
	var fewer time.Time // since when there are
	for ctx.Err() == nil {
		n, err := f.link.number(ctx, presentScript, []string{f.membersKey()}, f.member, memberTTL.Microseconds())
		if err == nil {
			n = min(max(n, 1), maxMembers)
			switch {
			case n >= f.members.Load():
				fewer = time.Time{}
			case fewer.IsZero():
				fewer = time.Now()
			}
			if fewer.IsZero() || time.Since(fewer) > memberTTL {
				f.members.Store(n)
				fewer = time.Time{}
			}
			local.ShareRateLimits(int(f.members.Load()))
		}
		sleep(ctx, spread(heartbeatInterval))
	}
}

// maxMembers bounds what is believed.
const maxMembers = 1_000_000

// leaveTimeout is how long an end may be held up by taking leave.
const leaveTimeout = 100 * time.Millisecond

// leave takes us from the list of those who are there.
func (f *Fleet) leave() {
	if !f.link.up() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	_ = f.link.client.ZRem(ctx, f.membersKey(), f.member).Err()
}

func (f *Fleet) membersKey() string { return f.prefix + "members" }

// spread is d, give or take a tenth, so that processes which began together do not stay
// in step.
func spread(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5)
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// Stats is a picture of the sharing at one moment. Counts are since the start
// and never fall.
type Stats struct {
	Up       bool   // the engine answers
	Lost     uint64 // times that it stopped to
	Members  int    // processes of the scope as last seen, this one included; 0 before the engine ever answered
	Commands uint64 // sent to it
	Errors   uint64 // of these, those without a good response, and messages that could not be read

	PausesSent     uint64 // pauses begun here and told to the others
	PausesReceived uint64 // pauses begun elsewhere and taken over
	PausesDropped  uint64 // pauses not told for want of room or of an engine

}

// Stats gives a picture for metrics.
func (f *Fleet) Stats() Stats {
	l := f.link
	return Stats{
		Up: l.up(), Lost: l.lost.Load(), Members: int(f.members.Load()), Commands: l.commands.Load(), Errors: l.errors.Load() + f.malformed.Load(),
		PausesSent: f.pausesSent.Load(), PausesReceived: f.pausesReceived.Load(), PausesDropped: f.pausesDropped.Load(),
	}
}
