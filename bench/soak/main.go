package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func main() { rig.Main("soak", run) }

// Settings of the proxy that the judgement depends on.
const (
	attemptTimeout = 700 * time.Millisecond
	requestTimeout = 3 * time.Second
	mostRetries    = 3
)

// settings make the run lively: short timeouts, small memory, many retries.
var settings = []string{
	"RETRYPROXY_ROUTES=plain,unsafe",
	"RETRYPROXY_ROUTE_PLAIN_PATH=/plain/*",
	"RETRYPROXY_ROUTE_UNSAFE_PATH=/unsafe/*",
	"RETRYPROXY_ROUTE_UNSAFE_RETRY_UNSAFE=true",
	"RETRYPROXY_ATTEMPT_TIMEOUT=" + attemptTimeout.String(),
	"RETRYPROXY_REQUEST_TIMEOUT=" + requestTimeout.String(),
	"RETRYPROXY_MAX_RETRIES=" + strconv.Itoa(mostRetries),
	"RETRYPROXY_BACKOFF_BASE=5ms",
	"RETRYPROXY_BACKOFF_MAX=200ms",
	"RETRYPROXY_BACKOFF_THROTTLED_BASE=20ms",
	"RETRYPROXY_BUDGET_RATIO=0.5",
	"RETRYPROXY_BUDGET_BURST=50",
	"RETRYPROXY_RETRY_BUFFER_TOTAL_BYTES=4MiB",
	"RETRYPROXY_BODY_IDLE_TIMEOUT=10s",
	"RETRYPROXY_DRAIN_TIMEOUT=5s",
	"GORACE=halt_on_error=0",
}

// faultLine is what the proxy must not say.
var faultLine = regexp.MustCompile(`DATA RACE|panic|fatal error|"level":"(error|dpanic|panic|fatal)"`)

// session is a soak in flight.
type session struct {
	clients  int
	ledger   *ledger
	judge    *judge
	team     *team
	upstream *upstream
	proxy    *rig.Proxy
	before   rig.Level
	began    time.Time
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var program string
	var lasts time.Duration
	var seed uint64
	r := &session{}
	f := rig.NewFlags("soak", stderr, &program)
	rig.Number(f, &lasts, "for", time.Minute, time.Millisecond, 1000*time.Hour, "how long it lasts")
	rig.Number(f, &r.clients, "conns", 200, 1, 10000, "clients, each with one connection at a time")
	f.Seed(&seed, 0)
	if err := f.Parse(args); err != nil {
		return err
	}
	bed := &rig.Bed{}
	defer bed.End()
	dir, err := bed.TempDir()
	if err != nil {
		return err
	}
	r.ledger = newLedger(seed)
	if r.upstream, err = startUpstream(r.ledger, false); err != nil {
		return err
	}
	bed.Later(r.upstream.end)
	log := dir + "/log"
	if r.proxy, err = bed.Start(ctx, rig.Spec{Program: program, Upstream: "http://" + r.upstream.addr, Env: settings, Log: log}); err != nil {
		return err
	}
	if r.before, err = r.proxy.Level(); err != nil {
		return err
	}
	r.judge = &judge{ledger: r.ledger, timeout: attemptTimeout}
	r.team = &team{ledger: r.ledger, seed: seed, proxy: r.proxy.Addr, judge: r.judge, patience: mostPatience}
	told := rig.NewProgress(stderr)
	r.call(ctx, lasts, told)
	r.upstream.end()
	told.Line("clients are done, waiting for the proxy to be idle")
	told.End()
	if r.conclude(log, stdout); r.ledger.N() > 0 {
		return rig.ErrFound
	}
	return nil
}

// call lets the clients work for the time asked for and waits for their end.
func (r *session) call(ctx context.Context, lasts time.Duration, told *rig.Progress) {
	r.began = time.Now()
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	defer told.End()
	var wg sync.WaitGroup
	for i := range r.clients {
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
			return
		case <-r.proxy.Exited:
			r.ledger.violation("proxy ended", "it said:\n%s", r.proxy.Said())
			cancel()
			<-ended
			return
		case <-tick.C:
			s, err := r.proxy.Scrape()
			if err != nil {
				r.ledger.violation("no metrics", "%v", err)
			}
			told.Line("%3.0fs  %d requests  cut %d  retry buffer %.1f MiB  goroutines %.0f  violations %d", time.Since(r.began).Seconds(),
				r.team.sent.Load(), r.judge.cut.Load(), s.Sum("retry_buffer_bytes")/mib, s["go_goroutines"], r.ledger.N())
		}
	}
}

const mib = 1 << 20

// settleTime is how long the proxy has to get back to its idle level, once
// clients and upstream are gone.
const settleTime = 15 * time.Second

// conclude checks the counts and the end of the proxy, and prints what came of it.
func (r *session) conclude(log string, w io.Writer) {
	took := time.Since(r.began).Seconds()
	after, err := r.proxy.Settle(settleTime, func(l rig.Level) bool { return idle(l, r.before) })
	if err != nil {
		r.ledger.violation("no metrics", "%v", err)
	} else if !idle(after, r.before) {
		r.ledger.violation("not back at the idle level", "%v after the last client left: %+v, before the run %+v", settleTime, after, r.before)
	}
	s, err := r.proxy.Scrape()
	if err != nil {
		r.ledger.violation("no metrics", "%v", err)
	} else {
		checkCounts(r.ledger, s, r.team.sent.Load(), r.upstream.heads.Load(), float64(r.team.breakers.Load()))
	}
	_ = r.proxy.Signal(syscall.SIGTERM) // it may have ended, which shows
	if how := r.proxy.Ended(15 * time.Second); how != "exit status 0" {
		r.ledger.violation("end of the proxy", "%s; it said:\n%s", how, r.proxy.Said())
	}
	said, err := os.ReadFile(log)
	if err != nil {
		r.ledger.violation("log", "%v", err)
	}
	for line := range strings.Lines(string(said)) {
		if faultLine.MatchString(line) {
			r.ledger.violation("log", "%s", line)
		}
	}
	t, j := r.team, r.judge
	fmt.Fprintf(w, "seed %d: %d requests in %.0f s (%.0f/s), %d attempts at the upstream, %d MiB up, %d MiB down\n",
		t.seed, t.sent.Load(), took, float64(t.sent.Load())/took, r.upstream.heads.Load(), t.up.Load()/mib, t.down.Load()/mib)
	fmt.Fprintf(w, "cut as they should %d, answers of the proxy itself %d (%d never at the upstream), lost to a reset upload %d, stray 408 %d, attempts read late %d\n",
		j.cut.Load(), j.own.Load(), j.unseen.Load(), j.lost.Load(), j.stray.Load(), r.ledger.late.Load())
	fmt.Fprintf(w, "idle before: %+v\nidle after:  %+v\n", r.before, after)
	for title, counts := range map[string]map[string]float64{"outcomes": s.By("outcomes_total", "outcome"), "retries": s.By("retries_total", "reason")} {
		fmt.Fprint(w, title)
		for _, name := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return int(counts[b] - counts[a]) }) {
			if counts[name] > 0 {
				fmt.Fprintf(w, ", %s %.0f", name, counts[name])
			}
		}
		fmt.Fprintln(w)
	}
	if r.ledger.N() == 0 {
		fmt.Fprintln(w, "no violation")
		return
	}
	fmt.Fprintf(w, "VIOLATIONS:\n  %s\n", strings.Join(r.ledger.All(), "\n  "))
}
