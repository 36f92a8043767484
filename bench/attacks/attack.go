package main

import (
	"bufio"
	"context"
	"fmt"
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

// attack is a row of the table.
type attack struct {
	name       string
	conns      int                     // concurrent connections; each is opened again when it has ended
	bound      int64                   // how many bytes the process may grow by
	why        string                  // what the bound is for
	ends       bool                    // the proxy must end connections or streams of the attacker
	connection func(s *attacker) error // the life of one connection, until the proxy or the attack ends it
	prepare    func(st *stage) error   // sets up the stage before the proxy starts; nil if connection is enough
}

// stage is an attack in progress. prepare may set all of it.
type stage struct {
	rig.Bed
	rig.Findings
	spec   rig.Spec
	secure bool     // clients use TLS
	routes []string // names of the routes with an upstream of their own
	needs  needs    // the attack lasts until so much has been counted

	connection func(s *attacker) error
	begin      func(p *rig.Proxy) error                // called just before the attack; may be nil
	beside     func(ctx context.Context, p *rig.Proxy) // runs during the attack, until ctx ends; may be nil
	judge      func(p *rig.Proxy) (looked string)      // called after it, returns what it looked for; may be nil
}

// needs are the smallest counts, by name, that prove something.
type needs map[string]int64

// enough reports whether the needs are met.
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

// attacker is one connection of an attack.
type attacker struct {
	context.Context
	addr string
	*tally
}

// tally counts what an attack sent, and how it was turned away. It is safe for concurrent use.
type tally struct {
	sent   atomic.Int64 // frames, requests or pieces
	ended  atomic.Int64 // connections that the proxy closed
	resets atomic.Int64 // streams that it reset or refused, and its GOAWAY frames
}

func (t *tally) turnedAway() bool { return t.ended.Load()+t.resets.Load() > 0 }

// String returns the counts for parse.
func (t *tally) String() string {
	return fmt.Sprintf("%d %d %d", t.sent.Load(), t.ended.Load(), t.resets.Load())
}

// parse adds the counts that String returned in another process.
func (t *tally) parse(s string) error {
	var sent, ended, resets int64
	_, err := fmt.Sscanf(s, "%d %d %d", &sent, &ended, &resets)
	t.sent.Add(sent)
	t.ended.Add(ended)
	t.resets.Add(resets)
	return err
}

// pause is how long an attacker waits before it connects again.
const pause = 20 * time.Millisecond

// launch opens the connections of the attack, again and again, until ctx ends.
func (a *attack) launch(ctx context.Context, st *stage, addr string, t *tally) {
	var all sync.WaitGroup
	for range a.conns {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := st.connection(&attacker{ctx, addr, t}); ctx.Err() == nil && err != nil {
					t.ended.Add(1)
				}
				rig.Sleep(ctx, pause)
			}
		})
	}
	all.Wait()
}

// dial connects to addr. The connection is closed at the end of the attack.
func (s *attacker) dial(addr string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(s, "tcp", addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(s, func() { _ = nc.Close() })
	return nc, nil
}

// every calls do until it fails, with pauses of d.
func (s *attacker) every(d time.Duration, do func() error) error {
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

// ask sends raw over a new connection and calls got for each final response, until the connection ends or
// nothing comes for the time quiet.
func (s *attacker) ask(addr, raw string, quiet time.Duration, got func(r *http.Response)) error {
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

// inTurn returns a function that returns the elements of all in turn. It is safe for concurrent use.
func inTurn[T any](all []T) func() T {
	var n atomic.Int64
	return func() T { return all[int(n.Add(1))%len(all)] }
}

// asked returns the target that the upstream responded to; "" if the response is the proxy's own.
func asked(r *http.Response) string { return r.Header.Get(askedField) }

// perSlow is the memory of a request in flight over HTTP/1.1, with both connections.
const perSlow = 2 * 160 * kib
