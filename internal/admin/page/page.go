// Package page shows a person what a running retryproxy does: the page on the
// admin listener, and the same as JSON for `retryproxy top`.
//
// Make a Page with New, give it to the data path as its journal, call Run in a
// goroutine, serve it (behind admin.Access: it has no check of its own) and Close
// it before the server that serves it.
//
// What it knows is bounded, whatever is configured and however much comes in:
// five minutes of at most maxRoutes routes and maxUpstreams upstreams, looked at
// every Step, and a handful of requests. docs/decisions/0014-page.md adds up
// the bytes. Nothing of it is on the way of a request but a look at two numbers
// when it ends; a request that failed, was repeated or was among the slowest is
// copied, cut to a fixed size, unless somebody else is just doing that.
//
// It never shows queries, fields or bodies.
package page

import (
	"context"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/printable"
)

// The history: how often it is looked at, and for how long that is kept.
const (
	Step   = 5 * time.Second
	Points = 60
	Window = Points * Step
)

// Options are where a Page looks. All but Host have to be set; the functions are called
// by several goroutines at once.
type Options struct {
	Version   string
	Host      string // name of this machine or Pod, "" if it is not known; New bounds it
	Metrics   *metrics.Metrics
	Process   func() Process
	Upstreams func() []metrics.Upstream // names are unique
	Route     func(name string) Rule    // the zero value for a name that is not known
}

// Process is the state of the whole process.
type Process struct {
	Position         string `json:"position"`
	Draining         bool   `json:"draining"`
	RateLimited      Queue  `json:"rate_limited"`       // requests that wait for a rate limit
	Paused           int    `json:"rate_limit_paused"`  // requests that wait for the end of a shared rate-limit pause
	RetryPercent     int    `json:"retry_percent"`      // of a hundred retries, those made
	Connections      int    `json:"connections"`        // clients connected
	RetryBufferUsed  int64  `json:"retry_buffer_bytes"` // kept for retries
	RetryBufferLimit int64  `json:"retry_buffer_limit_bytes"`
	Tokens           Tokens `json:"tokens"`
}

// Tokens are those of language models whose rate limits count them.
type Tokens struct {
	Used  int64 `json:"used"`  // in the last minute
	Limit int64 `json:"limit"` // a minute, of all keys; 0: not known
}

// Any reports whether there is anything to show.
func (t Tokens) Any() bool { return t != Tokens{} }

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

// Rule is what is configured for a route. Times are in milliseconds, 0 for no
// limit.
type Rule struct {
	Upstream         string `json:"upstream"`
	Backoff          string `json:"backoff"`
	MaxRetries       int    `json:"max_retries"`
	DryRun           bool   `json:"dry_run"` // no retry is made, only counted
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

// Page is all of it. Safe for concurrent use.
type Page struct {
	options Options
	started time.Time
	journal journal
	closed  chan struct{}
	once    sync.Once
	clients chan struct{} // one value per open stream of events

	mu      sync.Mutex // guards all below
	history history
	frames  frames
}

// maxHost bounds the name of the host, in bytes. Linux allows 64.
const maxHost = 64

// New makes a Page that has seen nothing yet.
func New(o Options) *Page {
	now := time.Now()
	o.Host = printable.Text(o.Host, maxHost)
	p := &Page{options: o, started: now, closed: make(chan struct{}), clients: make(chan struct{}, maxClients)}
	p.history.begin(now)
	return p
}

// Run looks every Step until ctx ends.
func (p *Page) Run(ctx context.Context) {
	ticker := time.NewTicker(Step)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			p.look(now)
		}
	}
}

// look takes a step.
func (p *Page) look(now time.Time) {
	upstreams := p.options.Upstreams()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.history.look(now, p.options.Metrics, upstreams)
}

// Close ends the streams of events. It may be called again.
func (p *Page) Close() { p.once.Do(func() { close(p.closed) }) }

var _ proxy.Journal = (*Page)(nil)

// Wants is for the data path, see proxy.Journal.
func (p *Page) Wants(endedUnixNano int64, took time.Duration, o policy.Outcome) bool {
	return p.journal.wants(endedUnixNano, took, o)
}

// Keep is for the data path, see proxy.Journal.
func (p *Page) Keep(e *proxy.Ended) { p.journal.keep(e) }
