// Package page shows what a running retryproxy does: as a page on the admin listener, and as the
// JSON behind it.
//
// Make a Page with New, pass it to the data path as its journal, and call Run in a goroutine.
// Serve it behind admin.Access, because it has no access check of its own. Close it before the
// server that serves it.
//
// Its memory is bounded, whatever the configuration and the load: five minutes of at most
// maxRoutes routes and maxUpstreams upstreams, read every Step, and a few requests.
// docs/decisions/0014-page.md adds up the bytes. On the path of a request it reads two numbers
// when the request ends. A request that failed, was retried or was among the slowest is copied,
// cut to a limited size, unless another request is being copied.
//
// It never shows queries, headers or bodies.
package page

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/printable"
)

// The history: the interval of its steps, and how long they are kept.
const (
	Step   = 5 * time.Second
	Points = 60
	Window = Points * Step
)

// Options are the sources of a Page. All but Host and Shares are required. The functions must be safe for
// concurrent use.
type Options struct {
	Version   string
	Host      string // name of this machine or Pod, "" if unknown; New bounds it
	Metrics   *metrics.Metrics
	Process   func() Process
	Upstreams func() []metrics.Upstream // names are unique
	Route     func(name string) Rule    // the zero value for an unknown name
	Shares    bool                      // other processes may change its retry budgets at any time
}

// Process is the state of the whole process.
type Process struct {
	Position         string `json:"position"`
	Draining         bool   `json:"draining"`
	RateLimited      Queue  `json:"rate_limited"`       // requests that wait for a rate limit
	Paused           int    `json:"rate_limit_paused"`  // requests that wait for the end of a shared rate-limit pause
	RetryPercent     int    `json:"retry_percent"`      // percentage of retries that are made
	Connections      int    `json:"connections"`        // clients connected
	RetryBufferUsed  int64  `json:"retry_buffer_bytes"` // bytes kept for retries
	RetryBufferLimit int64  `json:"retry_buffer_limit_bytes"`
	Tokens           Tokens `json:"tokens"`
}

// Tokens are those of language models whose rate limits count them.
type Tokens struct {
	Used  int64 `json:"used"`  // in the last minute
	Limit int64 `json:"limit"` // a minute, of all keys; 0: not known
}

// Queue is the requests that are queued at one place.
type Queue struct {
	Requests  int   `json:"requests"`
	LongestMS int64 `json:"longest_ms"` // how long the first of them has been waiting
}

// Add adds the requests of another queue.
func (q *Queue) Add(o Queue) {
	q.Requests += o.Requests
	q.LongestMS = max(q.LongestMS, o.LongestMS)
}

// Rule is the configuration of a route. Times are in milliseconds; 0 means no limit.
type Rule struct {
	Match            string `json:"match"` // such as path /read; "" for the route default
	Upstream         string `json:"upstream"`
	Backoff          string `json:"backoff"`
	MaxRetries       int    `json:"max_retries"`
	DryRun           bool   `json:"dry_run"` // retries are counted but not made
	RequestTimeoutMS int64  `json:"request_timeout_ms"`
	AttemptTimeoutMS int64  `json:"attempt_timeout_ms"`
	Curve            []Wait `json:"curve"` // of the first retries
}

// Wait is the wait before one retry, in milliseconds.
type Wait struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

// Page collects and serves the state. It is safe for concurrent use.
type Page struct {
	options Options
	started time.Time
	journal journal
	closed  chan struct{}
	once    sync.Once
	clients chan struct{} // one value per open stream of events

	mu      sync.Mutex // guards all fields below
	history history
	asleep  bool // no steps are taken until a request begins, or a configuration is applied
}

// maxHost bounds the host's name, in bytes. Linux allows 64.
const maxHost = 64

// New returns a Page without history.
func New(o Options) *Page {
	now := time.Now()
	o.Host = printable.Text(o.Host, maxHost)
	p := &Page{options: o, started: now, closed: make(chan struct{}), clients: make(chan struct{}, maxClients)}
	p.history.begin(now)
	return p
}

// Run takes a step every Step until ctx ends. While nothing happens it sleeps, so that an idle process is not woken.
func (p *Page) Run(ctx context.Context) {
	timer := time.NewTimer(Step)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-timer.C:
			next := p.options.Metrics.NextRequest()
			if p.look(now) {
				select {
				case <-ctx.Done():
					return
				case <-next:
				}
			}
			timer.Reset(p.wake(time.Now()))
		}
	}
}

// look takes a step, and reports whether nothing will happen until the next request: nothing happened since the last
// step, nothing is in flight, and no upstream is probed, which could change the state of its breaker. Without a path,
// too, one is probed by connecting while its breaker is not closed, and slow start ends without a request. An abandoned
// attempt counts as in flight at its upstream until it expires. A process that shares is woken every second anyway.
func (p *Page) look(now time.Time) (quiet bool) {
	upstreams := p.options.Upstreams()
	p.mu.Lock()
	defer p.mu.Unlock()
	quiet = p.history.look(now, p.options.Metrics, upstreams)
	p.asleep = quiet && !p.options.Shares && !slices.ContainsFunc(upstreams, func(u metrics.Upstream) bool {
		return u.HasProbe || u.Guard.Breaker != breaker.Closed || u.Guard.Abandoned > 0
	})
	return p.asleep
}

// wake takes the steps that were slept through, and returns how long it is until the next one.
func (p *Page) wake(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.catchUp(now)
	p.asleep = false
	return p.history.at[p.history.step(0)].Add(Step).Sub(now)
}

// catchUp takes the steps that were slept through so far. It requires mu.
func (p *Page) catchUp(now time.Time) {
	if p.asleep {
		p.history.pass(now)
	}
}

// Close ends the event streams. It may be called again.
func (p *Page) Close() { p.once.Do(func() { close(p.closed) }) }

var _ proxy.Journal = (*Page)(nil)

// Wants implements proxy.Journal.
func (p *Page) Wants(endedUnixNano int64, took time.Duration, o policy.Outcome) bool {
	return p.journal.wants(endedUnixNano, took, o)
}

// Keep implements proxy.Journal.
func (p *Page) Keep(e *proxy.Ended) { p.journal.keep(e) }
