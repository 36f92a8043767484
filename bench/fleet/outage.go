package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/httpclient"
)

// outageResult is what a fleet makes of an upstream that is down for a while.
type outageResult struct {
	Name     string         `json:"name"`
	Says     string         `json:"says"`
	Probes   float64        `json:"probes_per_second"` // at the upstream, once all breakers are closed
	First    float64        `json:"ms_until_the_first_was_served"`
	Last     float64        `json:"ms_until_all_processes_were"` // after the upstream is up
	Longest  float64        `json:"longest_request_ms"`
	Answers  int            `json:"answers"`
	Failed   map[string]int `json:"failed,omitempty"`           // likewise
	Commands float64        `json:"engine_commands_per_second"` // during the outage, likewise
}

// outageArm is a fleet in an outage.
type outageArm struct {
	arm
	killed bool // the engine is, in the middle
}

var outageArms = []outageArm{
	{arm: arm{name: "probes-alone", says: "each process probes by itself"}},
	{arm: arm{name: "turns", says: "the breaker is shared", shared: true}},
	{arm: arm{name: "turns-killed", says: "the same, and the engine is killed in the middle", shared: true}, killed: true},
}

// probePath is asked for by probes and nothing else, so that they can be told apart.
const probePath = "/healthz"

func outageSettings(*options) []string {
	return []string{"RETRYPROXY_PROBE_PATH=" + probePath, "RETRYPROXY_QUEUE_TIMEOUT=2m", "RETRYPROXY_REQUEST_TIMEOUT=2m"}
}

// outage plays each of outageArms.
func outage(ctx context.Context, o *options, up *upstream, tell func(string)) ([]*outageResult, error) {
	var all []*outageResult
	for i := range outageArms {
		r, err := outageArms[i].play(ctx, o, up)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", outageArms[i].name, err)
		}
		tell(fmt.Sprintf("outage   %s: %.1f probes/s, all served %.0f ms after, failed %v", r.Name, r.Probes, r.Last, r.Failed))
		all = append(all, r)
	}
	return all, nil
}

// play has a few clients ask each process again and again, while the upstream
// answers, then says 503 to all, then answers again.
func (a *outageArm) play(ctx context.Context, o *options, up *upstream) (*outageResult, error) {
	a.env = outageSettings
	s, err := a.setUp(ctx, o, up)
	if err != nil {
		return nil, err
	}
	defer s.end()
	run, stop := context.WithCancel(ctx)
	w := &witness{served: make([]time.Time, o.proxies), failed: map[string]int{}}
	clients := w.call(run, s.fleet.addrs(), o.outage+30*time.Second)
	defer func() { stop(); s.fleet.end(); clients.Wait() }()
	r := &outageResult{Name: a.name, Says: a.says}
	if !httpclient.Sleep(run, o.settle) {
		return nil, ctx.Err()
	}
	if err := a.goDown(run, s, w, r); err != nil {
		return nil, err
	}
	back := time.Now()
	up.fail(false)
	for time.Since(back) < 30*time.Second && !w.all(back, r) {
		if !httpclient.Sleep(run, 5*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
	if !w.all(back, r) {
		return nil, fmt.Errorf("not all processes were of use half a minute after the upstream")
	}
	w.sumUp(r)
	return r, s.fleet.alive()
}

// goDown is the outage. It counts once no request has had a response for a second: then
// all breakers are closed. Before that some were out of retries.
func (a *outageArm) goDown(ctx context.Context, s *stage, w *witness, r *outageResult) error {
	defer s.up.fail(false)
	s.up.fail(true)
	for end := time.Now().Add(30 * time.Second); !w.quiet(time.Second); {
		if time.Now().After(end) {
			return errors.New("breakers are open half a minute after the upstream went down")
		}
		if !httpclient.Sleep(ctx, 10*time.Millisecond) {
			return ctx.Err()
		}
	}
	w.forget()
	probes, commands, began := s.up.probes.Load(), s.commands(ctx), time.Now()
	if !httpclient.Sleep(ctx, s.o.outage/2) {
		return ctx.Err()
	}
	half := s.commands(ctx)
	took := time.Since(began)
	r.Commands = float64(half-commands) / took.Seconds()
	if a.killed {
		s.engine.kill()
	}
	if !httpclient.Sleep(ctx, s.o.outage/2) {
		return ctx.Err()
	}
	r.Probes = float64(s.up.probes.Load()-probes) / time.Since(began).Seconds()
	return nil
}

// commands is how many the engine has run so far; 0 without one.
func (s *stage) commands(ctx context.Context) (n int) {
	if s.engine == nil {
		return 0
	}
	for range 5 {
		if stats, err := s.engine.info(ctx, "commandstats"); err == nil {
			for _, calls := range stats {
				n += calls
			}
			return n
		}
	}
	return 0
}

// witness notes what clients got. Safe for concurrent use.
type witness struct {
	mu      sync.Mutex
	served  []time.Time // by process: the last good answer to a request
	first   []time.Time // and the first since the upstream was back
	longest time.Duration
	last    time.Time // answer
	answers int
	failed  map[string]int
}

// call has clients ask until ctx ends.
func (w *witness) call(ctx context.Context, addrs []string, patience time.Duration) *sync.WaitGroup {
	const each = 4
	var all sync.WaitGroup
	for i := range each * len(addrs) {
		process := i % len(addrs)
		all.Go(func() {
			c := httpclient.Client{Addr: addrs[process], Request: request}
			defer c.HangUp()
			for httpclient.Sleep(ctx, 100*time.Millisecond) {
				began := time.Now()
				status, err := c.Exchange(ctx, began.Add(patience))
				if ctx.Err() == nil {
					w.note(process, status, err, time.Since(began))
				}
			}
		})
	}
	return &all
}

func (w *witness) note(process, status int, err error, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers++
	w.last = time.Now()
	w.longest = max(w.longest, took)
	switch {
	case err != nil:
		w.failed[httpclient.KindOf(err)]++
	case status != http.StatusOK:
		w.failed[strconv.Itoa(status)]++
	default:
		w.served[process] = time.Now()
	}
}

// all says whether each process has had a good response since a time, and notes when the
// first and the last of them had.
func (w *witness) all(back time.Time, r *outageResult) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first == nil {
		w.first = make([]time.Time, len(w.served))
	}
	var since []float64
	for i, at := range w.served {
		if w.first[i].IsZero() && at.After(back) {
			w.first[i] = at
		}
	}
	for i := range w.first {
		if w.first[i].IsZero() {
			return false
		}
		since = append(since, float64(w.first[i].Sub(back).Microseconds())/1e3)
	}
	r.First, r.Last = slices.Min(since), slices.Max(since)
	return true
}

// quiet says whether the last response is so long ago.
func (w *witness) quiet(d time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.last) >= d
}

// forget begins to count anew.
func (w *witness) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers, w.longest = 0, 0
	clear(w.failed)
}

func (w *witness) sumUp(r *outageResult) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Answers, r.Failed, r.Longest = w.answers, w.failed, float64(w.longest.Microseconds())/1e3
}
