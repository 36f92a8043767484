package peers

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// Recorder is a settings.Observer that remembers. Its fields are read under Lock while requests may be in flight.
type Recorder struct {
	mu       sync.Mutex
	Began    int
	Outcomes []policy.Outcome
	Codes    []int
	Attempts []int
	Classes  []policy.Class
	Retries  []policy.Reason
	Waits    []time.Duration
	Held     []time.Duration
	Waiting  int

	FallbackFailures      int
	WouldRetries          []policy.Reason
	Took                  []time.Duration
	HedgesSent, HedgesWon int
	Used                  [tokens.NumFates]tokens.Count
}

// Lock locks the fields for reading, and returns what unlocks them.
func (r *Recorder) Lock() func() { r.mu.Lock(); return r.mu.Unlock }

func (r *Recorder) RequestBegan() { defer r.Lock()(); r.Began++ }

func (r *Recorder) AttemptDone(c policy.Class, _ int, d time.Duration) {
	defer r.Lock()()
	r.Took = append(r.Took, d)
	r.Classes = append(r.Classes, c)
}

func (r *Recorder) Retry(w policy.Reason) { defer r.Lock()(); r.Retries = append(r.Retries, w) }

func (r *Recorder) Queued(d time.Duration) { defer r.Lock()(); r.Held = append(r.Held, d) }

func (r *Recorder) FallbackFailed() { defer r.Lock()(); r.FallbackFailures++ }

func (r *Recorder) WouldRetry(w policy.Reason) {
	defer r.Lock()()
	r.WouldRetries = append(r.WouldRetries, w)
}

func (r *Recorder) WaitBegan() { defer r.Lock()(); r.Waiting++ }

func (r *Recorder) TokensUsed(c tokens.Count, f tokens.Fate) {
	defer r.Lock()()
	u := &r.Used[f]
	u.Input, u.Cached, u.Output = u.Input+c.Input, u.Cached+c.Cached, u.Output+c.Output
}

func (r *Recorder) Hedged() { defer r.Lock()(); r.HedgesSent++ }

func (r *Recorder) HedgeWon() { defer r.Lock()(); r.HedgesWon++ }

func (r *Recorder) WaitEnded(d time.Duration) {
	defer r.Lock()()
	r.Waiting--
	r.Waits = append(r.Waits, d)
}

func (r *Recorder) RequestDone(_ []byte, code int, o policy.Outcome, _, _ time.Duration, attempts int) {
	defer r.Lock()()
	r.Outcomes = append(r.Outcomes, o)
	r.Codes = append(r.Codes, code)
	r.Attempts = append(r.Attempts, attempts)
}

func (r *Recorder) Traced(string, int, time.Duration) {}

// Always gives all requests of all routes the observer o.
func Always(o settings.Observer) func(string) func() settings.Observer {
	return func(string) func() settings.Observer { return func() settings.Observer { return o } }
}

// Requests is how many requests began.
func (r *Recorder) Requests() int { defer r.Lock()(); return r.Began }

// Retried is how many retries were counted.
func (r *Recorder) Retried() int { defer r.Lock()(); return len(r.Retries) }

// Outcome waits for the nth outcome (from 0): it is counted after the response.
func (r *Recorder) Outcome(t testing.TB, n int) policy.Outcome {
	t.Helper()
	for range 3000 {
		r.mu.Lock()
		if n < len(r.Outcomes) {
			o := r.Outcomes[n]
			r.mu.Unlock()
			return o
		}
		r.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no outcome number %d within 30 s", n)
	return 0
}

// Refusals collects the labels given to Config.Refused.
type Refusals struct {
	mu  sync.Mutex
	all []http1.Refusal
}

// Add is a value of Config.Refused.
func (r *Refusals) Add(why http1.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, why)
}

// List returns the labels so far.
func (r *Refusals) List() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Trim(fmt.Sprint(r.all), "[]")
}

// WaitsBegun is how many waits for a retry are in flight or over.
func (r *Recorder) WaitsBegun() int { defer r.Lock()(); return r.Waiting + len(r.Waits) }
