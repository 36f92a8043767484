// Command soak runs retryproxy for a while in front of an upstream that fails in every way, with
// many clients that misbehave as well, and checks every byte and every count.
//
//	go run ./bench/soak --for 60s --proxy bin/retryproxy
//
// The proxy is the real program with short timeouts; clients and upstream live in this process. What
// a request says, what its client does in the middle of it, and what the upstream does with each
// attempt follow from a seed and the request's number (plan.go). So both ends know what the
// other must have sent. A run is without violation if
//
//   - every response that looks whole is, byte by byte, what the upstream sent to an attempt for this
//     request, and what it cut off looks cut off;
//   - every request body arrives whole, or visibly cut if the client cut it;
//   - what is not idempotent is sent once;
//   - the proxy's own errors are sent only if there was no response;
//   - the sums of outcomes, of requests and of what was sent are the same, and attempts add up;
//   - at the end goroutines, descriptors, connections and retry buffer are back at their idle level,
//     and the proxy ends with exit code 0 on SIGTERM.
//
// Exit codes: 0 without violation, 1 with, 2 for wrong arguments.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"regexp"
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
	"RETRYPROXY_ROUTE_UNSAFE_RETRY_METHODS=any",
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

const mib = 1 << 20

// settleTime is how long the proxy has to get back to its idle level, once clients and upstream are
// gone, and then to end.
const settleTime = 15 * time.Second

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var program string
	var lasts time.Duration
	var clients int
	s := newSoak(0)
	f := rig.NewFlags("soak", stderr, &program)
	rig.Number(f, &lasts, "for", time.Minute, time.Millisecond, 1000*time.Hour, "how long it lasts")
	rig.Number(f, &clients, "conns", 200, 1, 10000, "clients, each with one connection at a time")
	f.Seed(&s.seed, 0)
	if err := f.Parse(args); err != nil {
		return err
	}
	bed := &rig.Bed{}
	defer bed.End()
	logFile := bed.TempDir() + "/log"
	upstream, end, err := s.start(false)
	if err != nil {
		return err
	}
	bed.Later(end)
	p, err := bed.Start(ctx, rig.Spec{Program: program, Upstream: "http://" + upstream, Env: settings, Log: logFile})
	if err != nil {
		return err
	}
	before, err := p.Level()
	if err != nil {
		return err
	}
	began := time.Now()
	s.load(ctx, p, clients, lasts, log.New(stderr, "", 0))
	fmt.Fprintf(stdout, "seed %d: %d requests in %.0f s (%.0f/s)\n", s.seed, s.Counted(sent), time.Since(began).Seconds(), float64(s.Counted(sent))/time.Since(began).Seconds())
	end()
	s.conclude(p, before, stdout)
	s.checkLog(logFile)
	if s.N() == 0 {
		fmt.Fprintln(stdout, "no violation")
		return nil
	}
	fmt.Fprintf(stdout, "VIOLATIONS:\n  %s\n", strings.Join(s.All(), "\n  "))
	return rig.ErrFound
}

// load lets the clients work until the time is over, or the proxy ends, and waits for their end.
func (s *soak) load(ctx context.Context, p *rig.Proxy, clients int, lasts time.Duration, progress *log.Logger) {
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	var all sync.WaitGroup
	for i := range clients {
		c := &client{soak: s, proxy: p.Addr, from: net.IPv4(127, 1, byte(i>>8), byte(i)), patience: mostPatience}
		all.Go(func() { c.run(ctx) })
	}
	all.Go(func() {
		select {
		case <-ctx.Done():
		case <-p.Exited:
			s.violation("proxy ended", "it said:\n%s", p.Said())
			cancel()
		}
	})
	all.Go(func() {
		for began := time.Now(); rig.Sleep(ctx, time.Second); {
			m := s.scrape(p)
			progress.Printf("%3.0fs  %d requests  cut %d  retry buffer %.1f MiB  goroutines %.0f  violations %d", time.Since(began).Seconds(),
				s.Counted(sent), s.Counted(cutRight), m.Sum("retry_buffer_bytes")/mib, m["go_goroutines"], s.N())
		}
	})
	all.Wait()
}

func (s *soak) scrape(p *rig.Proxy) rig.Series {
	m, err := p.Scrape()
	if err != nil {
		s.violation("no metrics", "%v", err)
	}
	return m
}

// conclude checks what the proxy holds and has counted once all have gone, and how it ends.
func (s *soak) conclude(p *rig.Proxy, before rig.Level, w io.Writer) {
	after, err := p.Settle(settleTime, func(l rig.Level) bool { return idle(l, before) })
	if err != nil {
		s.violation("no metrics", "%v", err)
	} else if !idle(after, before) {
		s.violation("not back at the idle level", "%v after the last client left: %+v, before the run %+v", settleTime, after, before)
	}
	m := s.scrape(p)
	if m != nil {
		s.checkCounts(m)
	}
	_ = p.Signal(syscall.SIGTERM) // it may have ended, which shows
	if how := p.Ended(settleTime); how != "exit status 0" {
		s.violation("end of the proxy", "%s; it said:\n%s", how, p.Said())
	}
	fmt.Fprintf(w, "idle before: %+v\nidle after:  %+v\n", before, after)
	fmt.Fprintf(w, "counted %v\noutcomes %v\nretries %v\n", s.Counts(), m.By("outcomes_total", "outcome"), m.By("retries_total", "reason"))
}

func (s *soak) checkLog(file string) {
	said, err := os.ReadFile(file)
	if err != nil {
		s.violation("log", "%v", err)
	}
	for line := range strings.Lines(string(said)) {
		if faultLine.MatchString(line) {
			s.violation("log", "%s", line)
		}
	}
}
