package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// attack is one way to do harm.
type attack struct {
	name    string
	conns   int                   // that attack at once; each that is ended comes again
	bound   int64                 // bytes that the process may grow by
	why     string                // the bound is for
	ends    bool                  // the proxy has to end connections or streams of the attacker
	strike  func(s *strike) error // the life of one connection: until the proxy ends it or the time is over
	prepare func(st *stage) error // makes what the attack needs besides, before its proxy starts; nil: strike is all
}

// stage is where an attack runs. prepare may set all of it.
type stage struct {
	rig.Bed
	rig.Findings
	spec   rig.Spec
	secure bool     // clients come over TLS
	routes []string // names of those with an upstream of their own
	needs  needs    // the attack lasts until the judge has seen so much

	strike func(s *strike) error
	begin  func(p *rig.Proxy) error                // just before the attack; nil: nothing
	beside func(ctx context.Context, p *rig.Proxy) // during it, until ctx ends; nil: nothing
	judge  func(p *rig.Proxy) (looked string)      // after it; returns what it looked for; nil: what every attack is judged by is all
}

// needs is how much must be counted of something, by its name, before a judge can say anything.
type needs map[string]int64

// enough reports whether all that the judge needs has been counted.
func (st *stage) enough() bool {
	for what, n := range st.needs {
		if st.Counted(what) < n {
			return false
		}
	}
	return true
}

// set adds settings of the proxy.
func (st *stage) set(env ...string) { st.spec.Env = append(st.spec.Env, env...) }

// route adds a route with an upstream of its own.
func (st *stage) route(name, path string, h http.HandlerFunc, env ...string) {
	addr := st.Serve(echoing(h))
	st.routes = append(st.routes, name)
	prefix := "RETRYPROXY_ROUTE_" + strings.ToUpper(name) + "_"
	st.set("RETRYPROXY_ROUTES="+strings.Join(st.routes, ","), prefix+"PATH="+path, prefix+"UPSTREAM=http://"+addr)
	for _, e := range env {
		st.set(prefix + e)
	}
}

// strike is one connection of an attack in flight.
type strike struct {
	context.Context
	addr string
	*tally
}

// tally counts what an attack did and what it met. It is safe for concurrent use.
type tally struct {
	sent   atomic.Int64 // frames, requests or pieces
	ended  atomic.Int64 // by the proxy, in the middle
	resets atomic.Int64 // streams that it reset or refused, and connections that it told to go away
}

func (t *tally) turnedAway() bool { return t.ended.Load()+t.resets.Load() > 0 }

// pause is before an attacker that was turned away comes again.
const pause = 20 * time.Millisecond

// carryOut attacks until ctx ends.
func (a *attack) carryOut(ctx context.Context, st *stage, addr string, t *tally) {
	var all sync.WaitGroup
	for range a.conns {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := st.strike(&strike{ctx, addr, t}); ctx.Err() == nil && err != nil {
					t.ended.Add(1)
				}
				rig.Sleep(ctx, pause)
			}
		})
	}
	all.Wait()
}

// dial connects to addr; the connection ends with the attack.
func (s *strike) dial(addr string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(s, "tcp", addr)
	if err != nil {
		return nil, err
	}
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
		if d > 0 && !rig.Sleep(s, d) {
			return nil
		}
	}
}

// ask sends bytes over a connection of its own and calls got for each final response, until
// the connection ends or is quiet for so long.
func (s *strike) ask(addr, raw string, quiet time.Duration, got func(r *http.Response)) error {
	nc, err := s.dial(addr)
	if err != nil {
		return err
	}
	written := make(chan struct{})
	go func() { defer close(written); _, _ = io.WriteString(nc, raw) }()
	defer func() { _ = nc.Close(); <-written }()
	s.sent.Add(1)
	r := bufio.NewReader(&rig.Patient{Conn: nc, Quiet: quiet})
	for {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return nil
		}
		if res.StatusCode >= 200 {
			got(res)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			return nil
		}
	}
}

// inTurn returns one after the other, from the first again after the last. It is safe for concurrent use.
func inTurn[T any](all []T) func() T {
	var n atomic.Int64
	return func() T { return all[int(n.Add(1))%len(all)] }
}

// asked is the target that the upstream says it answers; "": the proxy answered itself.
func asked(r *http.Response) string { return r.Header.Get(askedField) }

// perSlow is a client of HTTP/1.1 with a request in flight, and its connection upstream.
const perSlow = 2 * 160 * kib
