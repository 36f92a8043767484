package proxy

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
type prematureLimits struct {
	age       time.Duration // younger requests are premature when they end
	most      int           // at once
	perSecond int
	answers   int // responses that earn one more
}

var defaultPrematureLimits = prematureLimits{age: 20 * time.Millisecond, most: 50, perSecond: 10, answers: 10}

// prematureEnds counts those of one connection. Safe for concurrent use.
type prematureEnds struct {
	limits prematureLimits

	mu        sync.Mutex // guards all below
	allowance allowance
	answered  int
}

func newPrematureEnds(l prematureLimits) *prematureEnds {
	return &prematureEnds{limits: l, allowance: allowance{tokens: l.most, max: l.most, perSecond: l.perSecond, at: time.Now()}}
}

// hold lets a request pass, after a wait where the client has ended too many prematurely.
// It reports whether the request is still wanted.
func (e *prematureEnds) hold(ctx context.Context, stream *bridge.ClientStream) bool {
	if !e.exhausted() {
		return true
	}
	t := time.NewTimer(e.limits.age)
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

func (e *prematureEnds) exhausted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.allowance.tokens > 0 {
		return false
	}
	e.allowance.debt(time.Now())
	return e.allowance.tokens <= 0
}

// answeredWhole takes note of a request that got its response.
func (e *prematureEnds) answeredWhole() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answered++; e.answered >= e.limits.answers {
		e.answered = 0
		e.allowance.earn(1)
	}
}

// ended takes note of a request that its client ended after it was served for age. It may be seen late.
func (e *prematureEnds) ended(age time.Duration) {
	if age > 2*e.limits.age {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.allowance.tokens = max(e.allowance.tokens-1, 0)
}

// endedByClient reports whether the request of this stream reached an upstream, or was on
// its way there, and was then ended by its client, in whatever way.
func (c *conn) endedByClient() bool {
	end := c.x.clientEnd.Load()
	switch {
	case c.x.attempts == 0:
		return false
	case c.stream.ResponseComplete():
		return end == clientBodyBroken
	}
	return end == clientBodyBroken || c.stream.ClientGone() || c.stream.BodyBroken()
}
