package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/show"
)

// session is a soak in flight.
type session struct {
	o        *options
	ledger   *ledger
	judge    *judge
	team     *team
	upstream *upstream
	proxy    *proxy
	before   level
	began    time.Time
}

// soak runs it all. An error means that it could not be run.
func soak(ctx context.Context, o *options, told *show.Progress) (*report, error) {
	r := &session{o: o, ledger: newLedger(o.seed)}
	up, ln, err := newUpstream(r.ledger)
	if err != nil {
		return nil, err
	}
	r.upstream = up
	upCtx, endUpstream := context.WithCancel(context.Background())
	upDone := make(chan error, 1)
	go func() { upDone <- up.serve(upCtx, ln, false) }()
	endAll := func() error { endUpstream(); return <-upDone }
	if r.proxy, err = startProxy(ctx, o.proxy, up.addr); err != nil {
		endAll()
		return nil, err
	}
	if r.before, err = r.proxy.level(); err != nil {
		r.proxy.kill()
		endAll()
		return nil, err
	}
	r.judge = &judge{ledger: r.ledger, timeout: attemptTimeout}
	r.team = &team{ledger: r.ledger, seed: o.seed, proxy: r.proxy.addr, judge: r.judge, patience: mostPatience}
	r.call(ctx, told)
	if err := endAll(); err != nil {
		r.ledger.violation("upstream", "%v", err)
	}
	return r.conclude(told), nil
}

// call lets the clients work for the time asked for and waits for their end.
func (r *session) call(ctx context.Context, told *show.Progress) {
	r.began = time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.o.lasts)
	defer cancel()
	var wg sync.WaitGroup
	for i := range r.o.clients {
		c := &client{t: r.team, from: net.IPv4(127, 1, byte(i>>8), byte(i))}
		wg.Go(func() { c.run(ctx) })
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			told.End()
			return
		case <-r.proxy.exited:
			r.ledger.violation("proxy ended", "%v; it said:\n%s", r.proxy.exitErr, r.proxy.log)
			cancel()
			<-ended
			return
		case <-tick.C:
			told.Line(r.status())
		}
	}
}

// conclude checks the counts and the end of the proxy.
func (r *session) conclude(told *show.Progress) *report {
	took := time.Since(r.began)
	told.Say("clients are done, waiting for the proxy to be idle")
	after := r.proxy.settle(r.ledger, r.before)
	s, err := r.proxy.scrape()
	if err != nil {
		r.ledger.violation("no metrics", "%v", err)
	} else {
		checkCounts(r.ledger, s, r.team.sent.Load(), r.upstream.heads.Load(), float64(r.team.breakers.Load()))
	}
	if err := r.proxy.stop(); err != nil {
		r.ledger.violation("end of the proxy", "%v", err)
	}
	for _, line := range r.proxy.log.faults() {
		r.ledger.violation("log", "%s", line)
	}
	return newReport(r, s, after, took)
}

// status is one line of progress.
func (r *session) status() string {
	sent := r.team.sent.Load()
	at := time.Since(r.began)
	line := fmt.Sprintf("%3.0fs  %d requests, %.0f/s", at.Seconds(), sent, float64(sent)/at.Seconds())
	s, err := r.proxy.scrape()
	if err != nil {
		r.ledger.violation("no metrics", "%v", err)
		return line
	}
	outcomes := s.By("outcomes_total", "outcome")
	return line + fmt.Sprintf("  recovered %.0f  gave up %.0f  broken %.0f  cut %d  replay %.1f MiB  goroutines %.0f  violations %d",
		outcomes["recovered"], gaveUp(outcomes), outcomes["response_broken"], r.judge.cut.Load(),
		s.Sum("retry_buffer_bytes")/(1<<20), s["go_goroutines"], r.ledger.violationCount())
}
