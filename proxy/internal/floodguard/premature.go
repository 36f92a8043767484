package floodguard

import (
	"context"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/proxy/bridge"
)

// A request that its client ends as soon as it was begun, by RST_STREAM or by a
// fault for which we must reset the stream, takes no place among the streams that the client
// may have at once, but costs the upstream something. A client may do so now and then,
// as hedging does. One that does it all the time has its requests queued for as long as such
// requests live: what ends meanwhile never reaches the upstream, and the others go on.
type Limits struct {
	Age       time.Duration // younger requests are premature when they end
	Most      int           // at once
	perSecond int
	Answers   int // responses that earn one more
}

var DefaultLimits = Limits{Age: 20 * time.Millisecond, Most: 50, perSecond: 10, Answers: 10}

// prematureEnds counts the requests of one connection that their client ended at once. Safe for
// concurrent use.
type PrematureEnds struct {
	limits Limits

	mu        sync.Mutex // guards all below
	allowance allowance
	answered  int
	running   int  // requests that passed and have not ended
	known     bool // a response went to the client whole
}

func NewPrematureEnds(l Limits) *PrematureEnds {
	return &PrematureEnds{limits: l, allowance: allowance{tokens: l.Most, max: l.Most, perSecond: l.perSecond, at: time.Now()}}
}

// hold lets a request pass, after a wait if the client has ended too many prematurely. It reports
// whether the request is still wanted.
func (e *PrematureEnds) Hold(ctx context.Context, stream *bridge.ClientStream) bool {
	if e.pass() {
		return true
	}
	if !e.awaitEnd(ctx, stream) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running++
	return true
}

// awaitEnd waits as long as a premature request lives. It reports false if this one ended meanwhile.
func (e *PrematureEnds) awaitEnd(ctx context.Context, stream *bridge.ClientStream) bool {
	t := time.NewTimer(e.limits.Age)
	defer t.Stop()
	for body := stream.BodyDone(); ; body = nil {
		select {
		case <-t.C:
			return !stream.ClientGone() && !stream.BodyBroken()
		case <-ctx.Done():
			return false
		case <-body:
			if stream.BodyBroken() {
				return false
			}
		}
	}
}

// pass reports whether a request may be served at once. While the client has had no response yet, and
// once it has ended requests prematurely, those that run count as if it ended them too: their ends are
// seen late, and a burst of them would pass before the first.
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

// answeredWhole counts a request that got its response.
func (e *PrematureEnds) AnsweredWhole() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known = true
	if e.answered++; e.answered >= e.limits.Answers {
		e.answered = 0
		e.allowance.earn(1)
	}
}

// seenLate is how much older, as a factor, a premature request may be when its end is seen. On a busy
// machine a stream's goroutine is that late: with 2, an attack that was cut to 16 to 72 requests a second
// upstream had 155 beside two builds on two cores.
const seenLate = 5

// ended counts a request that passed and was served for age. byClient means that its client ended it.
func (e *PrematureEnds) Ended(age time.Duration, byClient bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running--
	if byClient && age <= seenLate*e.limits.Age {
		e.allowance.tokens = max(e.allowance.tokens-1, 0)
	}
}
