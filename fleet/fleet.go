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
	// LearnCooldown takes over a pause that began elsewhere, within the caps of
	// this process. It does not block.
	LearnCooldown(key uint64, lasts time.Duration)

	// QuotaAsks, GrantQuota, FailQuota and ShareQuotas: see proxy.Server.
	QuotaAsks(asks []policy.QuotaAsk) ([]policy.QuotaAsk, time.Duration)
	GrantQuota(key uint64, g policy.QuotaGrant)
	FailQuota(key uint64)
	ShareQuotas(processes int)

	// BudgetAsks, GrantBudget and FailBudget likewise.
	BudgetAsks(asks []policy.BudgetAsk) []policy.BudgetAsk
	GrantBudget(key uint64, level float64, processes int)
	FailBudget(key uint64)

	// GateAsks, GrantGate and HearGate likewise.
	GateAsks(asks []policy.GateAsk) ([]policy.GateAsk, time.Duration)
	GrantGate(key uint64, t policy.GateTurn)
	HearGate(key uint64)
}

// Fleet is this process's part in a fleet. Its life is New and one Run; all
// other methods at any time, before Run too. Safe for concurrent use.
type Fleet struct {
	link   *link
	member string // who we are among the others: a random number
	prefix string // of all keys
	told   chan pause
	wanted chan struct{} // slots are, where none were; room for one
	spent  chan struct{} // retries were, of a budget; room for one
	shut   chan struct{} // a gate is; room for one
	opened chan uint64   // gates

	members                atomic.Int64 // processes of the scope as last seen; 0: never
	hearing                atomic.Bool  // what others tell, all of it since we joined
	tells, learnt, dropped atomic.Uint64
	malformed              atomic.Uint64

	turnsOurs, turnsAnothers                atomic.Uint64
	openedTold, openedLearnt, openedDropped atomic.Uint64
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
		link:   l,
		member: fmt.Sprintf("%016x", rand.Uint64()),
		prefix: "retryproxy:" + hex.EncodeToString(scope[:8]) + ":",
		told:   make(chan pause, toldRoom),
		wanted: make(chan struct{}, 1),
		spent:  make(chan struct{}, 1),
		shut:   make(chan struct{}, 1),
		opened: make(chan uint64, openedRoom),
	}, nil
}

// Run shares until ctx ends, and then takes its leave of the others as far as
// that is quick.
func (f *Fleet) Run(ctx context.Context, local Local) {
	var parts sync.WaitGroup
	parts.Go(func() { f.beat(ctx, local) })
	parts.Go(func() { f.leaseSlots(ctx, local) })
	parts.Go(func() { f.settleBudgets(ctx, local) })
	parts.Go(func() { f.takeTurns(ctx, local) })
	parts.Go(func() { f.tellOpened(ctx) })
	parts.Go(func() { f.tell(ctx) })
	parts.Go(func() { f.listen(ctx, local) })
	<-ctx.Done()
	f.leave()
	_ = f.link.client.Close() // ends the calls under way
	parts.Wait()
}

// beatEvery is how often a process says that it is there, and how often it
// is known that the engine is; memberTTL is after how long of silence it is taken for gone.
const (
	beatEvery = time.Second
	memberTTL = 5 * time.Second
)

// beat says to the engine that we are there, until ctx ends. Of how many there
// are, less is believed only when it has been so for memberTTL: an engine that was
// emptied knows few at first.
func (f *Fleet) beat(ctx context.Context, local Local) {
	var fewer time.Time // since when there are
	for ctx.Err() == nil {
		n, err := f.link.number(ctx, present, []string{f.membersKey()}, f.member, memberTTL.Microseconds())
		if err == nil {
			n = min(max(n, 1), mostMembers)
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
			local.ShareQuotas(int(f.members.Load()))
		}
		sleep(ctx, spread(beatEvery))
	}
}

// mostMembers bounds what is believed.
const mostMembers = 1_000_000

// leaveTakes is how long an end may be held up by taking leave.
const leaveTakes = 100 * time.Millisecond

// leave takes us from the list of those who are there.
func (f *Fleet) leave() {
	if !f.link.up() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTakes)
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
	Errors   uint64 // of these, those without a good answer, and messages that could not be read

	CooldownsTold    uint64 // pauses begun here and told to the others
	CooldownsLearnt  uint64 // pauses begun elsewhere and taken over
	CooldownsDropped uint64 // pauses not told for want of room or of an engine

	TurnsOurs     uint64 // questions whose turn it is to probe, answered that it is ours
	TurnsAnothers uint64 // and another's
	OpenedTold    uint64 // upstreams found up here and told to the others
	OpenedLearnt  uint64 // words of others that one is up
	OpenedDropped uint64 // upstreams found up and not told for want of room or of an engine
}

// Stats gives a picture for metrics.
func (f *Fleet) Stats() Stats {
	l := f.link
	return Stats{
		Up: l.up(), Lost: l.lost.Load(), Members: int(f.members.Load()), Commands: l.commands.Load(), Errors: l.errors.Load() + f.malformed.Load(),
		CooldownsTold: f.tells.Load(), CooldownsLearnt: f.learnt.Load(), CooldownsDropped: f.dropped.Load(),
		TurnsOurs: f.turnsOurs.Load(), TurnsAnothers: f.turnsAnothers.Load(),
		OpenedTold: f.openedTold.Load(), OpenedLearnt: f.openedLearnt.Load(), OpenedDropped: f.openedDropped.Load(),
	}
}
