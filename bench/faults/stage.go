//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// stage is a fault in progress: an upstream, a proxy and clients.
type stage struct {
	rig.Bed
	ctx context.Context
	o   *options
	f   *fault
	dir string // removed at the end

	// What prepare may set before the processes start.
	spec   rig.Spec
	upAddr string   // where the upstream listens
	cert   string   // file with its certificate and key; "" means no TLS
	upBy   []string // command line that starts it
	net    *network // nil means loopback

	up      *upstream
	proxy   *rig.Proxy
	clients *clients
	before  rig.Series         // the beginning of the fault
	leave   context.CancelFunc // ends the crowd

	had      int64 // requests that a silent upstream had
	lastCame time.Time
}

// defaults are settings of the proxy: timeouts that are shorter than a fault, and the defaults for inbound,
// wherever the upstream is.
var defaults = []string{"RETRYPROXY_POSITION=inbound", "RETRYPROXY_ATTEMPT_TIMEOUT=1s", "RETRYPROXY_BODY_IDLE_TIMEOUT=2s"}

// build starts the upstream and the proxy.
func (st *stage) build() (err error) {
	st.dir, st.upAddr = st.TempDir(), rig.OwnAddresses(1)[0]
	st.spec = rig.Spec{Program: st.o.proxy, Upstream: "http://" + st.upAddr, Env: slices.Concat(defaults, st.f.settings)}
	if st.f.tls {
		if _, err := st.certificate("clients", time.Now().Add(time.Hour)); err != nil {
			return err
		}
		st.spec.Env = append(st.spec.Env, "RETRYPROXY_TLS_CERT="+st.dir+"/clients")
	}
	if err := inTurn(st.f.prepare, (*stage).startUpstream)(st); err != nil {
		return err
	}
	st.spec.Env = append(st.spec.Env, st.o.set...)
	st.proxy, err = st.Start(st.ctx, st.spec)
	return err
}

// begin begins the fault.
func (st *stage) begin() error {
	crowd := func(st *stage) error {
		var ctx context.Context
		ctx, st.leave = context.WithCancel(st.ctx)
		st.clients.call(ctx, st.f.crowd)
		return nil
	}
	return inTurn(st.f.begin, crowd, st.behavior(st.f.mode))(st)
}

// end ends it.
func (st *stage) end() error {
	st.leave()
	return inTurn(st.f.end, st.behavior(good))(st)
}

// behavior sets the behavior of the upstream if the fault has one. Otherwise the upstream may not be running.
func (st *stage) behavior(mode string) func(*stage) error {
	if st.f.mode == "" {
		return nil
	}
	return order("mode " + mode)
}

// within is how long something quick may take on a busy machine.
const within = 20 * time.Second

// await waits until so returns true. It fails if the proxy ends.
func (st *stage) await(what string, limit time.Duration, so func() bool) error {
	err := rig.Await(st.ctx, what, limit, func() bool { return st.proxy.Alive() != nil || so() })
	return errors.Join(err, st.proxy.Alive())
}

// hold returns when the fault has lasted long enough.
func (st *stage) hold() error {
	if st.f.until == nil {
		rig.Sleep(st.ctx, st.o.lasts)
		return st.ctx.Err()
	}
	return st.await("through with the fault", longestFault, func() bool { return st.f.until(st) })
}

// play plays a fault: alone, and with a SIGTERM in its middle.
func play(ctx context.Context, f *fault, o *options) (*result, error) {
	st := &stage{ctx: ctx, o: o, f: f}
	defer st.End()
	if err := st.build(); err != nil {
		return nil, err
	}
	network, addr := rig.Network(st.proxy.Addr)
	st.clients = &clients{network: network, addr: addr, tls: f.tls, open: map[string]time.Time{}}
	lasting, cancel := context.WithCancel(ctx)
	defer func() { st.clients.stopped.Store(true); cancel() }()
	all := slices.Clone(requestKinds)
	for i := range all {
		all[i].body = f.body
	}
	st.clients.call(lasting, all)
	r := &result{fault: f}
	if err := st.alone(r); err != nil {
		return nil, err
	}
	if err := st.inTheMiddle(r); err != nil {
		return nil, err
	}
	return r, ctx.Err()
}

// servedSince returns the number of requests served that began later than at.
func (st *stage) servedSince(at time.Time) (n int) {
	for _, e := range st.clients.since(at) {
		if e.verdict == served && e.began.After(at) {
			n++
		}
	}
	return n
}

// alone begins and ends the fault, and waits until clients are served again.
func (st *stage) alone(r *result) error {
	start := time.Now()
	if err := st.await("at work", within, func() bool { return st.servedSince(start) >= 5*len(requestKinds) }); err != nil {
		return fmt.Errorf("before the fault: %w; clients had: %v", err, counted(st.clients.since(start)))
	}
	var err error
	if st.before, err = st.proxy.Scrape(); err != nil {
		return err
	}
	began := time.Now()
	if err := inTurn((*stage).begin, (*stage).hold)(st); err != nil {
		return err
	}
	ended := time.Now()
	if err := st.end(); err != nil {
		return err
	}
	again := st.await("served again", patience, func() bool { return st.servedSince(ended) >= 5*len(requestKinds) })
	if err := st.await("done with what was in flight", patience+within, func() bool { return st.clients.inFlight(ended) == 0 }); err != nil {
		return err
	}
	events := st.clients.since(began)
	r.counts, r.meanwhile = counted(events), counted(until(events, ended)).both(served)
	r.recovered, r.again = recovered(events, ended), again == nil
	if r.effect == nil {
		r.times, err = st.up.order("count")
	} else {
		r.times, err = r.effect(st)
	}
	return err
}

// inTheMiddle begins the fault again and ends the proxy meanwhile, with requests in flight.
func (st *stage) inTheMiddle(r *result) error {
	st.clients.wait.Store(true)
	began := time.Now()
	if err := st.begin(); err != nil {
		return err
	}
	rig.Sleep(st.ctx, st.o.lasts/2)
	if err := st.awaitAccepted(); err != nil {
		return err
	}
	st.clients.stopped.Store(true)
	at := time.Now()
	r.inFlight = st.clients.inFlight(at)
	if err := st.proxy.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	rig.Sleep(st.ctx, st.o.lasts/2)
	if err := st.end(); err != nil {
		return err
	}
	for st.clients.inFlight(time.Now()) > 0 { // at most as long as a client's patience
		if !rig.Sleep(st.ctx, 10*time.Millisecond) {
			return st.ctx.Err()
		}
	}
	r.before, r.drained = counted(until(st.clients.since(began), at)), counted(st.clients.since(at))
	r.exit = st.proxy.Ended(within)
	return nil
}

// mostPauses is how often awaitAccepted pauses the clients until requests are in flight.
const mostPauses = 100

// awaitAccepted pauses the clients until the proxy has accepted all requests in flight. If all requests end
// meanwhile, the clients continue and are paused again, but those without a connection, which may not be
// accepted for long. It returns without requests in flight if they end at once, and the row may fail then.
func (st *stage) awaitAccepted() error {
	if st.f.instant {
		return nil
	}
	for range mostPauses {
		st.clients.paused.Store(true)
		some, err := st.settled()
		if some || err != nil {
			return err
		}
		st.clients.connected.Store(true)
		st.clients.paused.Store(false)
		rig.Sleep(st.ctx, 2*between)
	}
	st.clients.paused.Store(true)
	return st.ctx.Err()
}

// settled waits until the proxy has accepted all requests in flight of the paused clients, or all have ended.
// It reports whether some are in flight.
func (st *stage) settled() (some bool, err error) {
	times := 0 // in a row, because a client may begin a request during the first
	err = st.await("every request accepted or at its end", within, func() bool {
		m, err := st.proxy.Scrape()
		n := st.clients.inFlight(time.Now())
		some = n > 0
		if times++; some && (err != nil || int(m.Sum("requests_in_flight")) < n) {
			times = 0
		}
		return !some || times == 2
	})
	return some, err
}
