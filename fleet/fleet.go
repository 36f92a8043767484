package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/fleet/engine"
	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// Options configures New.
type Options struct {
	Engine engine.Engine
	Log    *zap.Logger
}

// Local is this process's own state, which the data path works on. Its methods are called
// in the background and are safe for concurrent use.
type Local interface {
	// ApplyRateLimitPause applies a pause that began in another process, within the limits
	// of this process. It does not block.
	ApplyRateLimitPause(key uint64, lasts time.Duration)

	// RateLimitLeaseRequests, ApplyRateLimitLease, FailRateLimitLease and ShareRateLimits: see proxy.Server.
	RateLimitLeaseRequests(requests []ratelimit.LeaseRequest) ([]ratelimit.LeaseRequest, time.Duration)
	ApplyRateLimitLease(key uint64, g ratelimit.LeaseGrant)
	FailRateLimitLease(key uint64)
	ShareRateLimits(processes int)

	// BudgetReports, ApplyBudgetGrant and FailBudgetReport: see proxy.Server.
	BudgetReports(reports []budget.Report) []budget.Report
	ApplyBudgetGrant(key uint64, level float64, processes int)
	FailBudgetReport(key uint64)
}

// Fleet is this process's membership in a fleet. Call New, then Run once. All other methods
// may be called at any time, even before Run. It is safe for concurrent use.
type Fleet struct {
	link         *link
	member       string // our id among the members: a random number
	prefix       string // of all keys
	pauses       chan pause
	slotsWanted  chan struct{} // signals that slots are wanted; capacity one
	retriesSpent chan struct{} // signals that retries were made; capacity one

	members                                   atomic.Int64 // processes of the scope as last seen; 0 before the first response
	listening                                 atomic.Bool  // subscribed and caught up
	pausesSent, pausesReceived, pausesDropped atomic.Uint64
	malformed                                 atomic.Uint64
}

// New returns a Fleet and reads the files in o. It does not connect yet: an engine that is
// down is no error.
func New(o Options) (*Fleet, error) {
	l, err := newLink(&o)
	if err != nil {
		return nil, fmt.Errorf("shared state on %s: %w", o.Engine.Name(), err)
	}
	scope := sha256.Sum256([]byte("scope\x00" + o.Engine.Scope))
	return &Fleet{
		link:         l,
		member:       fmt.Sprintf("%016x", rand.Uint64()),
		prefix:       "retryproxy:" + hex.EncodeToString(scope[:8]) + ":",
		pauses:       make(chan pause, pauseBuffer),
		slotsWanted:  make(chan struct{}, 1),
		retriesSpent: make(chan struct{}, 1),
	}, nil
}

// Run shares until ctx ends. Then it removes this process from the members if that is
// quick.
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

// heartbeatInterval is the time between two heartbeats, which also check the engine.
// memberTTL is the time without a heartbeat after which a process is no longer a member.
const (
	heartbeatInterval = time.Second
	memberTTL         = 5 * time.Second
)

// heartbeat registers this process at the engine until ctx ends. It accepts a smaller
// number of members only after memberTTL: an engine that was emptied knows few at first.
func (f *Fleet) heartbeat(ctx context.Context, local Local) {
	var fewerSince time.Time // since when the number is smaller
	for ctx.Err() == nil {
		n, err := f.link.number(ctx, presentScript, []string{f.membersKey()}, f.member, memberTTL.Microseconds())
		if err == nil {
			n = min(max(n, 1), maxMembers)
			switch {
			case n >= f.members.Load():
				fewerSince = time.Time{}
			case fewerSince.IsZero():
				fewerSince = time.Now()
			}
			if fewerSince.IsZero() || time.Since(fewerSince) > memberTTL {
				f.members.Store(n)
				fewerSince = time.Time{}
			}
			local.ShareRateLimits(int(f.members.Load()))
		}
		sleep(ctx, spread(heartbeatInterval))
	}
}

// maxMembers limits the number of members that is accepted.
const maxMembers = 1_000_000

// leaveTimeout is how long leave may delay the shutdown.
const leaveTimeout = 100 * time.Millisecond

// leave removes this process from the members.
func (f *Fleet) leave() {
	if !f.link.up() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	_ = f.link.client.ZRem(ctx, f.membersKey(), f.member).Err()
}

func (f *Fleet) membersKey() string { return f.prefix + "members" }

// key returns the name of what is shared under a key of the data path.
func (f *Fleet) key(what string, key uint64) string {
	return f.prefix + what + ":" + strconv.FormatUint(key, 16)
}

// decimal returns a number for a script, in a form that Lua parses exactly.
func decimal(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// spread returns d plus or minus a tenth, so that processes that start together do not stay
// synchronised.
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

// Stats returns a snapshot for metrics.
func (f *Fleet) Stats() *metrics.Shared {
	l := f.link
	return &metrics.Shared{
		Up: l.up(), Lost: l.lost.Load(), Processes: int(f.members.Load()), Commands: l.commands.Load(), Errors: l.errors.Load() + f.malformed.Load(),
		PausesSent: f.pausesSent.Load(), PausesReceived: f.pausesReceived.Load(), PausesDropped: f.pausesDropped.Load(),
	}
}
