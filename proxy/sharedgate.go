package proxy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// sharedGate is what a door tells a fleet of its gate. The zero value tells
// nothing.
type sharedGate struct {
	key    uint64           // the same in every process with a route to the same upstream, probed the same way
	wanted func()           // Config.GateWanted; nil: not shared
	opened func(key uint64) // Config.GateOpened
	told   uint64           // how often the gate had opened when that was last told; guarded by door.mu
}

// shareGate has a route's door share its gate where the upstream is one for all:
// reached over the network, and not each machine's own. A loopback address is
// that of all only where the default route's is one too: who shares then said so.
func (n *settings) shareGate(r *Route) (g sharedGate) {
	to := &r.Upstream
	if n.GateWanted == nil || n.GateOpened == nil || r.Faults != nil || to.Network == "unix" || to.Local() && !n.Default.Upstream.Local() {
		return g
	}
	h := sha256.Sum256(fmt.Appendf(nil, "gate\x00%s\x00%+v", to.String(), r.Probe))
	return sharedGate{key: binary.BigEndian.Uint64(h[:]), wanted: n.GateWanted, opened: n.GateOpened}
}

// want says that whose turn it is to probe is worth knowing.
func (g *sharedGate) want() {
	if g.wanted != nil {
		g.wanted()
	}
}

// tell tells the fleet how the gate is now.
func (g *sharedGate) tell(s *policy.GuardState) {
	switch {
	case g.wanted == nil:
	case s.Reopened != g.told:
		g.told = s.Reopened
		g.opened(g.key)
	case s.Gate == policy.GateClosed || s.Gate == policy.GateHalfOpen:
		g.wanted()
	}
}

// GateAsks appends the questions whose turn it is to probe that are due now to
// asks, and says when the next one is; policy.Forever: when Config.GateWanted says
// so. Safe for concurrent use, as all that follows.
func (s *Server) GateAsks(asks []policy.GateAsk) ([]policy.GateAsk, time.Duration) {
	now, next := s.elapsed(), policy.Forever
	s.withGates(func(d *door) {
		a, due, at := d.guard.AskTurn(now)
		if due {
			a.Key = d.shared.key
			asks = append(asks, a)
		}
		next = min(next, at)
	})
	if next != policy.Forever {
		next -= now
	}
	return asks, next
}

// GrantGate takes in the answer to a question of GateAsks.
func (s *Server) GrantGate(key uint64, t policy.GateTurn) {
	now := s.elapsed()
	s.withGates(func(d *door) {
		if d.shared.key == key {
			d.heed(d.guard.GrantTurn(now, t))
		}
	})
}

// HearGate takes in that another process found an upstream up: key is what it
// was given by Config.GateOpened.
func (s *Server) HearGate(key uint64) {
	now := s.elapsed()
	s.withGates(func(d *door) {
		if d.shared.key == key {
			d.heed(d.guard.HearOpen(now))
		}
	})
}

// withGates calls do for each door whose gate is shared.
func (s *Server) withGates(do func(*door)) {
	for _, u := range s.settings.Load().upstreams() {
		if u.door.shared.wanted != nil {
			do(u.door)
		}
	}
}
