package main

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// attack is one way to do harm.
type attack struct {
	name  string
	conns int   // that attack at once; each that is ended comes again
	bound int64 // bytes that the process may grow by
	why   string
	// ends: the proxy has to end connections or streams of the attacker.
	ends bool
	// strike is the life of one connection: until the proxy ends it or the time is over.
	strike func(s *strike) error
	// prepare makes what the attack needs besides, before its proxy starts, and may set what it strikes with; nil: nothing.
	prepare func(st *stage) error
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// strike is one connection of an attack in flight.
type strike struct {
	context.Context
	addr, admin string
	*tally
}

// tally counts what an attack did and what it met. Safe for concurrent use.
type tally struct {
	sent   atomic.Int64 // frames, requests or pieces
	conns  atomic.Int64 // connections made
	ended  atomic.Int64 // by the proxy, in the middle
	resets atomic.Int64 // streams that it reset or refused, and connections that it told to go away
}

// pause is before an attacker that was turned away comes again.
const pause = 20 * time.Millisecond

// turnedAway says whether the proxy has turned an attacker away.
func (t *tally) turnedAway() bool { return t.ended.Load()+t.resets.Load() > 0 }

// carryOut attacks until ctx ends.
func (a *attack) carryOut(ctx context.Context, st *stage, p *rig.Process, t *tally) {
	var all sync.WaitGroup
	for range a.conns {
		all.Go(func() {
			for ctx.Err() == nil {
				err := st.strike(&strike{Context: ctx, addr: p.Addr, admin: p.Admin, tally: t})
				if ctx.Err() == nil && err != nil {
					t.ended.Add(1)
				}
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	all.Wait()
}

// dial connects; the connection ends with the attack.
func (s *strike) dial() (net.Conn, error) { return s.dialTo(s.addr) }

func (s *strike) dialTo(addr string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(s, "tcp", addr)
	if err != nil {
		return nil, err
	}
	s.conns.Add(1)
	context.AfterFunc(s, func() { _ = nc.Close() })
	return nc, nil
}

// every does something again and again until it fails; d apart.
func (s *strike) every(d time.Duration, do func() error) error {
	for {
		if err := do(); err != nil {
			return err
		}
		s.sent.Add(1)
		if d <= 0 {
			continue
		}
		select {
		case <-s.Done():
			return nil
		case <-time.After(d):
		}
	}
}

// held waits until the connection ends.
func (s *strike) held(nc net.Conn) error {
	var buf [4096]byte
	for {
		if _, err := nc.Read(buf[:]); err != nil {
			return err
		}
	}
}
