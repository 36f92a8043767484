package floodguard

import (
	"sync"
	"time"
)

// Limits bounds premature ends. A request ends prematurely if its client ends it right after it
// began, by RST_STREAM or by a fault for which we must reset the stream. Such a request does not
// use up the client's concurrent streams, but it costs the upstream something. A client may do so
// now and then, as hedging does. If a client does it all the time, its requests are queued for as
// long as such requests live. Those that end in the queue never reach the upstream; the others
// continue.
type Limits struct {
	Age       time.Duration // younger requests are premature when they end
	Most      int           // premature ends at once
	perSecond int
	Responses int // responses that earn one more premature end
}

var DefaultLimits = Limits{Age: 20 * time.Millisecond, Most: 50, perSecond: 10, Responses: 10}

// Stream is a request over HTTP/2.
type Stream interface {
	// Done returns a channel that is closed when the client has ended the request.
	Done() <-chan struct{}
	// ClientGone reports whether the client has ended the request.
	ClientGone() bool
}

// PrematureEnds counts the premature ends of one connection. It is safe for concurrent use.
type PrematureEnds struct {
	limits Limits

	mu        sync.Mutex // guards all fields below
	allowance allowance
	responded int
	running   int  // requests that passed and have not ended
	known     bool // the client got a complete response
}

func NewPrematureEnds(l Limits) *PrematureEnds {
	return &PrematureEnds{limits: l, allowance: allowance{tokens: l.Most, max: l.Most, perSecond: l.perSecond, at: time.Now()}}
}

// Hold lets a request pass, after a wait if the client has ended too many prematurely. It reports
// whether the request is still wanted.
func (e *PrematureEnds) Hold(stream Stream) bool {
	if e.pass() {
		return true
	}
	if !e.awaitEnd(stream) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running++
	return true
}

// awaitEnd waits as long as a premature request lives. It reports false if this one ended during
// the wait.
func (e *PrematureEnds) awaitEnd(stream Stream) bool {
	t := time.NewTimer(e.limits.Age)
	defer t.Stop()
	select {
	case <-t.C:
		return !stream.ClientGone()
	case <-stream.Done():
		return false
	}
}

// pass reports whether a request may be served at once. Running requests count as premature ends
// while the client has had no response yet, and after it has ended requests prematurely. Their
// ends are noticed late, and a burst of them would pass before the first.
func (e *PrematureEnds) pass() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.allowance.tokens < e.limits.Most {
		e.allowance.debt(time.Now())
	}
	if (!e.known || e.allowance.tokens < e.limits.Most) && e.allowance.tokens <= e.running {
		return false
	}
	e.running++
	return true
}

// RespondedWhole counts a request that got its response.
func (e *PrematureEnds) RespondedWhole() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known = true
	if e.responded++; e.responded >= e.limits.Responses {
		e.responded = 0
		e.allowance.earn(1)
	}
}

// seenLate is the factor by which a premature request may be older than Limits.Age when its end is
// read. On a busy machine that is so late. With a factor of 2, an attack
// limited to 16 to 72 requests per second upstream reached 155 beside two builds on two cores.
const seenLate = 5

// Ended counts a request that passed and ran for age. byClient means that its client ended it.
func (e *PrematureEnds) Ended(age time.Duration, byClient bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running--
	if byClient && age <= seenLate*e.limits.Age {
		e.allowance.tokens = max(e.allowance.tokens-1, 0)
	}
}
