package proxy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// sharedGate is what a queue tells a fleet of its breaker. The zero value tells
// nothing.
type sharedBreaker struct {
	key    uint64           // the same in every process with a route to the same upstream, probed the same way
	wanted func()           // Config.ProbeTurnWanted; nil: not shared
	opened func(key uint64) // Config.BreakerClosed
	told   uint64           // how often the breaker had opened when that was last told; guarded by queue.mu
}

// shareGate has a route's queue share its breaker where the upstream is one for all:
// reached over the network, and not each machine's own. A loopback address is
// that of all only where the default route's is one too: who shares then said so.
func (n *settings) shareBreaker(r *Route) (g sharedBreaker) {
	to := &r.Upstream
	if n.ProbeTurnWanted == nil || n.BreakerClosed == nil || r.FaultInjection != nil || to.Network == "unix" || to.Local() && !n.Default.Upstream.Local() {
		return g
	}
	h := sha256.Sum256(fmt.Appendf(nil, "breaker\x00%s\x00%+v", to.String(), r.Probe))
	return sharedBreaker{key: binary.BigEndian.Uint64(h[:]), wanted: n.ProbeTurnWanted, opened: n.BreakerClosed}
}

// requestProbeTurn says that whose turn it is to probe is worth knowing.
func (g *sharedBreaker) requestProbeTurn() {
	if g.wanted != nil {
		g.wanted()
	}
}

// announce tells the fleet how the breaker is now.
func (g *sharedBreaker) announce(s *policy.GuardState) {
	switch {
	case g.wanted == nil:
	case s.SlowStarts != g.told:
		g.told = s.SlowStarts
		g.opened(g.key)
	case s.Breaker == policy.BreakerOpen || s.Breaker == policy.BreakerHalfOpen:
		g.wanted()
	}
}

// ProbeTurnRequests appends the questions whose turn it is to probe that are due now to
// asks, and says when the next one is; policy.Forever: when Config.ProbeTurnWanted says
// so. Safe for concurrent use, as all that follows.
func (s *Server) ProbeTurnRequests(asks []policy.ProbeTurnRequest) ([]policy.ProbeTurnRequest, time.Duration) {
	now, next := s.elapsed(), policy.Forever
	s.withBreakers(func(d *admissionQueue) {
		a, due, at := d.guard.RequestProbeTurn(now)
		if due {
			a.Key = d.sharedBreaker.key
			asks = append(asks, a)
		}
		next = min(next, at)
	})
	if next != policy.Forever {
		next -= now
	}
	return asks, next
}

// ApplyProbeTurn takes in the answer to a question of ProbeTurnRequests.
func (s *Server) ApplyProbeTurn(key uint64, t policy.ProbeTurnGrant) {
	now := s.elapsed()
	s.withBreakers(func(d *admissionQueue) {
		if d.sharedBreaker.key == key {
			d.handleSignal(d.guard.ApplyProbeTurn(now, t))
		}
	})
}

// PeerFoundUp takes in that another process found an upstream up: key is what it
// was given by Config.BreakerClosed.
func (s *Server) PeerFoundUp(key uint64) {
	now := s.elapsed()
	s.withBreakers(func(d *admissionQueue) {
		if d.sharedBreaker.key == key {
			d.handleSignal(d.guard.PeerFoundUp(now))
		}
	})
}

// withGates calls do for each queue whose breaker is shared.
func (s *Server) withBreakers(do func(*admissionQueue)) {
	for _, u := range s.settings.Load().upstreams() {
		if u.door.sharedBreaker.wanted != nil {
			do(u.door)
		}
	}
}
