package sim

import (
	"math/rand/v2"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// Sharing is how the processes of a fleet react to a 429.
type Sharing uint8

// The kinds of Sharing.
const (
	// ShareNothing: only the request that got the 429 waits, and is retried.
	ShareNothing Sharing = iota
	// ShareWithin: all requests of the process wait.
	ShareWithin
	// ShareRateLimitPauses: all requests of all processes wait, as soon as they know.
	ShareRateLimitPauses
	// ShareRateLimit: the same, and all share the rate limit, so that there are few 429s.
	ShareRateLimit
)

// Fleet is a simulation of many processes that send to one upstream with a rate limit.
type Fleet struct {
	Seed      uint64
	Length    time.Duration // virtual time to simulate
	Settle    time.Duration // initial time that is not counted
	Processes int
	Share     Sharing
	// Delay is the time for information to reach another process: half of it to the engine,
	// and from there about half of it, drawn once for each process from [0, Delay].
	Delay time.Duration

	Clients int           // of each process, with one request in flight each
	Every   time.Duration // mean of a client's exponential pause after a response
	Timeout time.Duration // of a request

	RateLimit    float64       // of the upstream, per second
	Burst        float64       // capacity of its bucket, in tokens
	ResponseTime time.Duration // time of a good response

	RateLimitWait time.Duration // ShareRateLimit: the longest wait of a request for a slot

	Policy policy.Policy
	Budget budget.Config
}

// DefaultFleet is the simulation of `make fleet`, which uses fifty processes, with n
// processes. The rate limit is 500 requests per second. A thousand clients, which pause for
// a second on average, are divided evenly. With more than a thousand processes there is one
// client each, with longer pauses: the demand is always twice the rate limit.
func DefaultFleet(n int) Fleet {
	p := DefaultProxy()
	f := Fleet{
		Length: 33 * time.Second, Settle: 3 * time.Second, Processes: n, Delay: 10 * time.Millisecond,
		Clients: max(1, 1000/n), Timeout: 30 * time.Second,
		RateLimit: 500, Burst: 250, ResponseTime: 5 * time.Millisecond, RateLimitWait: time.Second,
		Policy: p.Policy, Budget: p.Budget,
	}
	f.Every = time.Duration(n*f.Clients) * time.Millisecond
	return f
}

// Grow keeps the load per process constant: everything grows in proportion to a fleet of
// fifty processes.
func (f *Fleet) Grow() {
	times := float64(f.Processes) / 50
	f.Clients, f.Every = 20, time.Second
	f.RateLimit, f.Burst = 500*times, 250*times
}

// FleetResult is the result of a Fleet after Settle.
type FleetResult struct {
	Sent          int // requests sent to the upstream
	Limited       int // those answered with 429
	Good          int // clients that got a 200
	RateLimited   int // clients that got a 429
	PausesShared  int // pauses sent to all, over the whole time
	LeaseRequests int // requests to the ledger, over the whole time
	// Waited is the longest successful wait for a slot, over the whole time.
	Waited time.Duration
	// GoodShare is the ratio of good responses to the rate limit, LimitedShare that of 429s
	// to requests sent.
	GoodShare, LimitedShare float64
}

// The kinds of events of a client.
const (
	fleetSends        eventKind = iota // a new request
	fleetAttempts                      // an attempt is due, unless there is a pause
	fleetResponds                      // 200
	fleetQueueTimeout                  // the wait for a slot took too long
)

// The kinds of events of a process; see rateLimitQueue.
const (
	fleetSlotIsFree eventKind = iota + fleetQueueTimeout + 1
	fleetRequestsLease
	fleetLeases
	fleetIsGranted
)

// fleet is a running simulation of a Fleet.
type fleet struct {
	Fleet
	*eventQueue
	rand         *rand.Rand
	clients      []fleetClient
	each         []process
	sharedPauses []sharedPause    // in the order of time
	queues       []rateLimitQueue // ShareRateLimit: of each process
	ledger       ratelimit.Ledger
	tokens       float64
	filled       time.Duration // when tokens was last updated
	result       FleetResult
}

type fleetClient struct {
	began    time.Duration
	previous time.Duration
	retries  int
	waits    uint32        // counts waits for slots; voids the events of earlier ones
	since    time.Duration // start of the current wait
}

type process struct {
	budget *budget.Budget
	until  time.Duration // end of the pause that it got itself
	delay  time.Duration // until it learns of a shared pause
}

// sharedPause is a pause published by the engine.
type sharedPause struct{ at, until time.Duration }

// RunFleet runs the simulation. The same Fleet returns the same result.
func RunFleet(c Fleet) FleetResult {
	f := &fleet{
		Fleet: c, eventQueue: newEventQueue(c.Length), rand: rand.New(rand.NewPCG(c.Seed, 0x666c656574)),
		clients: make([]fleetClient, c.Processes*c.Clients), each: make([]process, c.Processes), tokens: c.Burst,
	}
	for i := range f.each {
		f.each[i] = process{budget: budget.New(c.Budget), delay: time.Duration(f.rand.Float64() * float64(c.Delay))}
	}
	if c.Share == ShareRateLimit {
		f.makeQueues()
	}
	for i := range f.clients {
		f.rest(int32(i))
	}
	for e, ok := f.next(); ok; e, ok = f.next() {
		f.handle(e)
	}
	r := &f.result
	r.GoodShare = float64(r.Good) / (c.RateLimit * (c.Length - c.Settle).Seconds())
	r.LimitedShare = float64(r.Limited) / float64(max(1, r.Sent))
	return *r
}

func (f *fleet) handle(e event) {
	switch e.kind {
	case fleetSends:
		f.of(e.who).budget.Request(f.now)
		f.clients[e.who] = fleetClient{began: f.now, waits: f.clients[e.who].waits}
		f.attempt(e.who)
	case fleetAttempts:
		f.attempt(e.who)
	case fleetResponds:
		f.count(&f.result.Good)
		f.rest(e.who)
	default:
		f.queueEvent(e)
	}
}

// of returns the process of a client.
func (f *fleet) of(c int32) *process { return &f.each[int(c)/f.Clients] }

// count increments n after Settle.
func (f *fleet) count(n *int) {
	if f.now >= f.Settle {
		*n++
	}
}

// rest waits before a new request.
func (f *fleet) rest(c int32) {
	f.after(time.Duration(f.rand.ExpFloat64()*float64(f.Every)), fleetSends, c, 0)
}

// attempt sends, unless there is a pause.
func (f *fleet) attempt(c int32) {
	if left := f.pauseLeft(f.of(c)); left > 0 {
		wait, fits := ratelimit.PauseWait(left, f.left(c), f.rand)
		if !fits {
			f.respond429(c)
			return
		}
		f.after(wait, fleetAttempts, c, 0)
		return
	}
	if f.queues != nil {
		f.admit(c)
		return
	}
	f.send(c)
}

// send sends an attempt.
func (f *fleet) send(c int32) {
	f.count(&f.result.Sent)
	if f.take() {
		f.after(f.ResponseTime, fleetResponds, c, 0)
		return
	}
	f.count(&f.result.Limited)
	f.limited(c)
}

// left returns the time left for a client's request.
func (f *fleet) left(c int32) time.Duration { return f.clients[c].began + f.Timeout - f.now }

// respond429 ends a client's request with a 429.
func (f *fleet) respond429(c int32) {
	f.count(&f.result.RateLimited)
	f.rest(c)
}

// take takes a token from the upstream's bucket and reports whether there was one.
func (f *fleet) take() bool {
	f.tokens = min(f.tokens+f.RateLimit*(f.now-f.filled).Seconds(), f.Burst)
	f.filled = f.now
	if f.tokens < 1 {
		return false
	}
	f.tokens--
	return true
}

// fleetRetryAfter is the Retry-After of the upstream's 429: the shortest in whole seconds.
const fleetRetryAfter = time.Second

// limited handles an attempt that got a 429.
func (f *fleet) limited(c int32) {
	k, x := &f.clients[c], f.of(c)
	f.pauseBegins(x)
	d := f.Policy.Decide(&policy.Result{Status: 429, RetryAfter: fleetRetryAfter, HasRetryAfter: true}, &policy.Situation{
		Retries: k.retries, MaxRetries: f.Policy.MaxRetries, Safe: true, Left: f.left(c), Elapsed: f.now - k.began, Previous: k.previous,
	}, x.budget, f.now, f.rand)
	if !d.Retry {
		f.respond429(c)
		return
	}
	k.retries++
	k.previous = d.Wait
	f.after(d.Wait, fleetAttempts, c, 0)
}

// pauseGrain is the minimum by which a pause grows, as in the engine.
const pauseGrain = 100 * time.Millisecond

// pauseBegins records the pause of a process and shares it.
func (f *fleet) pauseBegins(x *process) {
	until := f.now + fleetRetryAfter
	if f.Share == ShareNothing || until < f.knownPauseEnd(x)+pauseGrain {
		return
	}
	x.until = until
	if f.Share == ShareWithin {
		return
	}
	at := f.now + f.Delay/2
	if n := len(f.sharedPauses); n > 0 && until < f.sharedPauses[n-1].until+pauseGrain {
		return
	}
	f.sharedPauses = append(f.sharedPauses, sharedPause{at, until})
	f.result.PausesShared++
}

// knownPauseEnd returns the end of the latest pause that a process knows of.
func (f *fleet) knownPauseEnd(x *process) time.Duration {
	for i := len(f.sharedPauses) - 1; i >= 0; i-- {
		if f.sharedPauses[i].at+x.delay <= f.now {
			return max(x.until, f.sharedPauses[i].until)
		}
	}
	return x.until
}

func (f *fleet) pauseLeft(x *process) time.Duration { return f.knownPauseEnd(x) - f.now }
