package storm

import (
	"math/rand/v2"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// Sharing is what the processes of a fleet do about a 429.
type Sharing uint8

// What they do.
const (
	// ShareNothing: the request that met the 429 waits, and is retried.
	ShareNothing Sharing = iota
	// ShareWithin: all requests of the process wait.
	ShareWithin
	// ShareRateLimitPauses: all requests of all processes wait, as soon as they know.
	ShareRateLimitPauses
	// ShareRateLimit: that, and all take turns, so that there are few 429s.
	ShareRateLimit
)

// Fleet is many processes that call one upstream which has a rate limit.
type Fleet struct {
	Seed      uint64
	Length    time.Duration // virtual time to play
	Settle    time.Duration // from the beginning on, not counted
	Processes int
	Share     Sharing
	// Delay is the time until another process knows what one told: half of it
	// to the engine, and from there about half of it, drawn once for each
	// process from [0, Delay].
	Delay time.Duration

	Clients int           // of each process, with one request at a time each
	Every   time.Duration // mean of the exponential pause of a client after a response
	Timeout time.Duration // of a request

	RateLimit    float64       // of the upstream, a second
	Burst        float64       // tokens that its bucket holds
	ResponseTime time.Duration // time of a good response

	RateLimitWait time.Duration // ShareRateLimit: the longest that a request waits for its turn

	Policy policy.Policy
	Budget policy.BudgetConfig
}

// DefaultFleet is what `make fleet` plays with fifty processes, with n: a rate limit
// of 500 requests a second, and a thousand clients of whom each pauses for a
// second on average, shared out evenly. With more processes than that there are
// as many clients, who pause longer: twice the rate limit is asked for in any case.
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

// Grow makes it the same for each process, whatever their number: as many more of
// everything as there are more processes than in a fleet of fifty.
func (f *Fleet) Grow() {
	times := float64(f.Processes) / 50
	f.Clients, f.Every = 20, time.Second
	f.RateLimit, f.Burst = 500*times, 250*times
}

// FleetResult is what came of it in the time that counts.
type FleetResult struct {
	Sent          int // requests that came to the upstream
	Limited       int // of them, answered 429
	Good          int // clients with a 200
	RateLimited   int // clients with a 429
	PausesShared  int // pauses told to all, in the whole time
	LeaseRequests int // questions to the ledger, in the whole time
	// Waited is the longest wait for a slot that was not in vain, in the whole time.
	Waited time.Duration
	// GoodShare is the good responses as a share of the rate limit, LimitedShare the
	// 429s as a share of what was sent.
	GoodShare, LimitedShare float64
}

// The kinds of events of a client.
const (
	fleetSends        eventKind = iota // a new request
	fleetAttempts                      // an attempt is due, unless all wait
	fleetResponds                      // 200
	fleetQueueTimeout                  // has waited long enough for a slot
)

// And those of a process; see door.
const (
	fleetSlotIsFree eventKind = iota + fleetQueueTimeout + 1
	fleetRequestsLease
	fleetLeases
	fleetIsGranted
)

// fleet is a Fleet in flight.
type fleet struct {
	Fleet
	*eventQueue
	rand         *rand.Rand
	clients      []fleetClient
	each         []process
	sharedPauses []sharedPause    // in the order of time
	queues       []rateLimitQueue // ShareRateLimit: of each process
	ledger       policy.RateLimitLedger
	tokens       float64
	filled       time.Duration // when tokens was right
	result       FleetResult
}

type fleetClient struct {
	began    time.Duration
	previous time.Duration
	retries  int
	waits    uint32        // for slots; voids the events of those that are over
	since    time.Duration // of the last one
}

type process struct {
	budget *policy.Budget
	until  time.Duration // end of the pause that it met itself
	delay  time.Duration // of what others tell
}

// sharedPause is one that the engine told.
type sharedPause struct{ at, until time.Duration }

// RunFleet plays it. The same Fleet gives the same result.
func RunFleet(c Fleet) FleetResult {
	f := &fleet{
		Fleet: c, eventQueue: newEventQueue(c.Length, c.ResponseTime), rand: rand.New(rand.NewPCG(c.Seed, 0x666c656574)),
		clients: make([]fleetClient, c.Processes*c.Clients), each: make([]process, c.Processes), tokens: c.Burst,
	}
	for i := range f.each {
		f.each[i] = process{budget: policy.NewBudget(c.Budget), delay: time.Duration(f.rand.Float64() * float64(c.Delay))}
	}
	if c.Share == ShareRateLimit {
		f.makeQueues()
	}
	for i := range f.clients {
		f.rest(int32(i))
	}
	for e, ok := f.next(); ok; e, ok = f.next() {
		f.happen(e)
	}
	r := &f.result
	r.GoodShare = float64(r.Good) / (c.RateLimit * (c.Length - c.Settle).Seconds())
	r.LimitedShare = float64(r.Limited) / float64(max(1, r.Sent))
	return *r
}

func (f *fleet) happen(e event) {
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

// of is the process of a client.
func (f *fleet) of(c int32) *process { return &f.each[int(c)/f.Clients] }

// count counts what happens in the time that counts.
func (f *fleet) count(n *int) {
	if f.now >= f.Settle {
		*n++
	}
}

// rest ends with a new request.
func (f *fleet) rest(c int32) {
	f.after(time.Duration(f.rand.ExpFloat64()*float64(f.Every)), fleetSends, c, 0)
}

// attempt sends, unless there is a pause to sit out.
func (f *fleet) attempt(c int32) {
	if left := f.pauseLeft(f.of(c)); left > 0 {
		wait, fits := policy.RateLimitPauseWait(left, f.left(c), f.rand)
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

// send is an attempt.
func (f *fleet) send(c int32) {
	f.count(&f.result.Sent)
	if f.take() {
		f.after(f.ResponseTime, fleetResponds, c, 0)
		return
	}
	f.count(&f.result.Limited)
	f.limited(c)
}

// left is the time left for a client's request.
func (f *fleet) left(c int32) time.Duration { return f.clients[c].began + f.Timeout - f.now }

// respond429 gives a client the 429 that there is.
func (f *fleet) respond429(c int32) {
	f.count(&f.result.RateLimited)
	f.rest(c)
}

// take is the upstream's bucket.
func (f *fleet) take() bool {
	f.tokens = min(f.tokens+f.RateLimit*(f.now-f.filled).Seconds(), f.Burst)
	f.filled = f.now
	if f.tokens < 1 {
		return false
	}
	f.tokens--
	return true
}

// fleetRetryAfter is what a 429 of the upstream tells: the least that whole seconds can.
const fleetRetryAfter = time.Second

// limited is an attempt that got a 429.
func (f *fleet) limited(c int32) {
	k, x := &f.clients[c], f.of(c)
	f.pauseBegins(x)
	d := f.Policy.Decide(&policy.Attempt{Status: 429, RetryAfter: fleetRetryAfter, HasRetryAfter: true}, &policy.Situation{
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

// pauseGrain is the least by which a pause grows, here and at the engine.
const pauseGrain = 100 * time.Millisecond

// pauseBegins notes the pause of a process and tells the others.
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

// knownPauseEnd is the end of the latest pause that a process knows of.
func (f *fleet) knownPauseEnd(x *process) time.Duration {
	for i := len(f.sharedPauses) - 1; i >= 0; i-- {
		if f.sharedPauses[i].at+x.delay <= f.now {
			return max(x.until, f.sharedPauses[i].until)
		}
	}
	return x.until
}

func (f *fleet) pauseLeft(x *process) time.Duration { return f.knownPauseEnd(x) - f.now }
