//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/httpclient"
	"github.com/retryproxy/retryproxy/bench/internal/process"
	"github.com/retryproxy/retryproxy/bench/internal/series"
)

// stage is where one fault is played: an upstream, a proxy and its clients.
type stage struct {
	ctx  context.Context
	o    *options
	f    *fault
	dir  string // of its own, removed at the end
	undo []func()

	// What a fault's prepare may set before the processes are started.
	upAddr   string   // where the upstream listens
	upArgs   []string // beside --listen
	upBy     []string // command by way of which the upstream is started
	proxyBy  []string // and the proxy
	program  string   // the proxy; empty: --proxy
	settings []string // of the proxy, over those of the fault
	target   string   // RETRYPROXY_UPSTREAM
	sockets  bool     // clients reach the proxy by unix sockets, as it is in a namespace of its own

	up     *child
	proxy  *proxy
	team   *team
	before series.Series // as the fault begins
}

// impossible is why this machine cannot play a fault.
type impossible struct{ why string }

func (i impossible) Error() string { return "not possible here: " + i.why }

// later has something done as the stage is cleared, the last first.
func (st *stage) later(do func()) { st.undo = append(st.undo, do) }

func (st *stage) clear() {
	for _, do := range slices.Backward(st.undo) {
		do()
	}
}

// build starts the upstream and the proxy.
func (st *stage) build() error {
	var err error
	if st.dir, err = os.MkdirTemp("", "faults-"); err != nil {
		return err
	}
	st.later(func() { _ = os.RemoveAll(st.dir) })
	own, err := process.OwnAddresses(3)
	if err != nil {
		return err
	}
	st.upAddr, st.target = own[0], "http://"+own[0]
	if st.f.prepare != nil {
		if err := st.f.prepare(st); err != nil {
			return err
		}
	}
	if err := st.startUpstream(); err != nil {
		return err
	}
	st.later(func() { st.up.Kill() })
	listen, admin := own[1], own[2]
	if st.sockets {
		listen, admin = "unix:"+filepath.Join(st.dir, "clients"), "unix:"+filepath.Join(st.dir, "admin")
	}
	st.proxy, err = startProxy(st.ctx, cmp.Or(st.program, st.o.proxy), listen, admin, st.proxyBy,
		defaults, []string{"RETRYPROXY_UPSTREAM=" + st.target}, st.f.settings, st.settings, st.o.set)
	if err != nil {
		return err
	}
	st.later(func() { st.proxy.Kill() })
	return nil
}

func (st *stage) startUpstream() (err error) {
	st.up, err = startRole(roleUpstream, st.upBy, append([]string{"--listen", st.upAddr}, st.upArgs...)...)
	return err
}

// within is how long something may take that happens soon on a machine that does nothing else.
const within = 20 * time.Second

// await waits until it is so.
func (st *stage) await(what string, limit time.Duration, so func() bool) error {
	for end := time.Now().Add(limit); !so(); {
		select {
		case <-st.proxy.Exited:
			return fmt.Errorf("the proxy has ended; it said:\n%s", st.proxy.Lines())
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("not %s within %v", what, limit)
		}
		if !httpclient.Sleep(st.ctx, 10*time.Millisecond) {
			return st.ctx.Err()
		}
	}
	return nil
}

// hold lasts as long as the fault does.
func (st *stage) hold() error {
	if st.f.until == nil {
		httpclient.Sleep(st.ctx, st.o.lasts)
		return st.ctx.Err()
	}
	return st.await("through with the fault", longestFault, func() bool { return st.f.until(st) })
}

// play plays a fault: alone, and with a SIGTERM in its middle.
func play(ctx context.Context, f *fault, o *options) (*result, error) {
	st := &stage{ctx: ctx, o: o, f: f}
	defer st.clear()
	if err := st.build(); err != nil {
		return nil, err
	}
	network, addr := ways(st.proxy.listen)
	st.team = &team{network: network, addr: addr, open: map[string]time.Time{}}
	clientsCtx, cancel := context.WithCancel(ctx)
	defer func() { st.team.stop(); cancel() }()
	st.team.call(clientsCtx, f.clients())
	r := &result{Name: f.name, How: f.how, expects: f.expects}
	if err := st.alone(r); err != nil {
		return nil, err
	}
	if err := st.inTheMiddle(r); err != nil {
		return nil, err
	}
	return r, ctx.Err()
}

// servedSince counts the requests served that began later than at.
func (st *stage) servedSince(at time.Time) (n int) {
	for _, e := range st.team.since(at) {
		if e.verdict == served && e.began.After(at) {
			n++
		}
	}
	return n
}

// alone makes the fault, ends it, and waits until clients are served again.
func (st *stage) alone(r *result) error {
	start := time.Now()
	if err := st.await("at work", within, func() bool { return st.servedSince(start) >= 5*len(manners) }); err != nil {
		return fmt.Errorf("before the fault: %w; clients had: %v", err, counted(st.team.since(start)))
	}
	var err error
	if st.before, err = st.proxy.scrape(st.ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := st.f.begin(st); err != nil {
		return err
	}
	if err := st.hold(); err != nil {
		return err
	}
	ended := time.Now()
	if err := st.f.end(st); err != nil {
		return err
	}
	again := st.await("served again", patience, func() bool { return st.servedSince(ended) >= 5*len(manners) })
	if err := st.await("done with what was in hand", patience+within, func() bool { return st.team.inHand(ended) == 0 }); err != nil {
		return err
	}
	r.Counts = counted(st.team.since(began))
	r.Meanwhile = served0(st.team.since(began), ended)
	r.Recovered, r.Again = recovered(st.team.since(began), ended), again == nil
	r.Felt, err = st.f.felt(st)
	return err
}

// allAccepted pauses the clients; it says whether the proxy has all that they
// have in hand, and has them go on where that is nothing.
func (st *stage) allAccepted() bool {
	st.team.paused.Store(true)
	m, err := st.proxy.scrape(st.ctx)
	n := st.team.inHand(time.Now())
	if n == 0 {
		st.team.paused.Store(false)
	}
	return err == nil && n > 0 && int(m.Sum("requests_in_flight")) >= n
}

// inTheMiddle makes the fault again and ends the proxy while it lasts, with requests in hand.
func (st *stage) inTheMiddle(r *result) error {
	st.team.wait.Store(true)
	began := time.Now()
	if err := st.f.begin(st); err != nil {
		return err
	}
	httpclient.Sleep(st.ctx, st.o.lasts/2)
	times := 0 // in a row: the first pause may come as a client begins
	accepted := func() bool {
		if times++; !st.allAccepted() {
			times = 0
		}
		return times == 2
	}
	if err := st.await("some requests accepted and none on its way", within, accepted); err != nil && (st.ctx.Err() != nil || st.team.inHand(time.Now()) > 0) {
		return err
	} // with none in hand the row is judged so
	st.team.stop()
	at := time.Now()
	r.InHand = st.team.inHand(at)
	if err := st.proxy.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	httpclient.Sleep(st.ctx, st.o.lasts/2)
	if err := st.f.end(st); err != nil {
		return err
	}
	for st.team.inHand(time.Now()) > 0 { // each ends after its client's patience
		if !httpclient.Sleep(st.ctx, 10*time.Millisecond) {
			return st.ctx.Err()
		}
	}
	r.Before = counted(before(st.team.since(began), at))
	r.Drained = counted(st.team.since(at))
	select {
	case <-st.proxy.Exited:
		r.Exit = st.proxy.Cmd.ProcessState.String()
	case <-time.After(within):
		r.Exit = fmt.Sprintf("still running %v after the last response", within)
	}
	return nil
}
