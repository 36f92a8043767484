package everyrule

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// left is what comes of a request whose client left.
func left(sends int) want {
	return want{sends: sends, outcome: policy.OutcomeClientGone}
}

func leftMidway() want {
	w := left(1)
	w.givenUp, w.classes = 1, []policy.Class{policy.Unknown}
	return w
}

// waitLong is a response that makes the proxy wait.
var waitLong = says(503, "busy", "Retry-After", "20")

// begins sends a part of a response and waits until it is given up.
func begins(length int, part string) act {
	return func(a *arrival) {
		_ = a.readAll()
		a.headers(200, length, nil)
		a.data(part)
		a.givenUp()
	}
}

// A client that leaves ends everything done for its request, and affects no other client.
var leaveRules = []rule{
	{name: "leaving ends the wait for Retry-After", acts: []act{waitLong}, during: func(r *run) { r.untilWaiting(); r.client.leave() }, want: left(1)},
	{name: "leaving ends a backoff", set: waits(20 * time.Second), acts: []act{busy}, during: func(r *run) { r.untilWaiting(); r.client.leave() }, want: left(1)},
	{name: "leaving ends the wait with a body kept", acts: []act{waitLong}, call: call{method: "PUT", body: peers.RandomBytes(300 << 10)},
		during: func(r *run) { r.untilWaiting(); r.client.leave() }, want: left(1)},
	{name: "leaving ends the attempt", acts: []act{stalls}, during: func(r *run) { r.untilSent(1); r.client.leave() }, want: leftMidway()},
	{name: "leaving ends the attempt of a POST", acts: []act{stalls}, call: call{method: "POST", body: []byte("hello")},
		during: func(r *run) { r.untilSent(1); r.client.leave() }, want: leftMidway()},
	{name: "leaving ends the second attempt", acts: []act{busy, stalls}, during: func(r *run) { r.untilSent(2); r.client.leave() },
		want: want{sends: 2, outcome: policy.OutcomeClientGone, givenUp: 1, classes: []policy.Class{policy.Unknown, policy.Unknown}}},
	{name: "leaving ends a response being relayed", acts: []act{begins(100, "half")}, during: leaveInBody(4),
		want: want{status: 200, body: "half", cut: true, sends: 1, outcome: policy.OutcomeClientGone, givenUp: 1}},
	{name: "leaving ends a response of unknown length being relayed", acts: []act{begins(-1, "half")}, during: leaveInBody(4),
		want: want{status: 200, body: "half", cut: true, sends: 1, outcome: policy.OutcomeClientGone, givenUp: 1}},
	{name: "leaving ends a large response being relayed", acts: []act{begins(2*large, strings.Repeat("x", large))}, during: leaveInBody(large),
		want: want{status: 200, body: "*", cut: true, sends: 1, outcome: policy.OutcomeClientGone, givenUp: 1}},
	{name: "leaving ends a dial", during: func(r *run) {
		peers.Soon(r, "the dial", func() bool { return r.dials.Load() > 0 })
		r.client.leave()
	}, stuck: true, want: want{attempts: 1, outcome: policy.OutcomeClientGone, classes: []policy.Class{policy.NotSent}}},
	{name: "leaving ends an upload that the upstream reads", acts: []act{func(a *arrival) { a.readsOf(4); _ = a.readAll() }},
		call:   call{method: "PUT", upload: uploads("half", responded, "", errors.New("no more"))},
		during: func(r *run) { peers.Soon(r, "the first bytes", func() bool { return released(r) }); r.client.leave() },
		want:   want{sends: 1, outcome: policy.OutcomeClientGone, givenUp: 1},
		unlike: func(client, _ proto, w *want) string {
			if client == two {
				return ""
			}
			w.outcome = policy.OutcomeRequestBroken
			return "a connection of HTTP/1.1 that ends in the middle of a body is a body cut off"
		}},
	{name: "leaving ends an upload that is stuck", acts: []act{func(a *arrival) { <-a.r.release; _ = a.readAll() }},
		call: call{method: "PUT", upload: endless, rude: true}, // a polite end would stand behind what nobody reads

		during: func(r *run) {
			r.untilStuck()
			r.client.leave()
			r.p.Seen.Outcome(r, 0)
			r.goOn()
		}, want: want{sends: 1, outcome: policy.OutcomeClientGone, givenUp: 1}},
	{name: "a client that takes nothing is cut off", acts: []act{says(200, strings.Repeat("x", 16<<20))}, call: call{unread: true},
		set:    func(_ *testing.T, c *proxy.Config) { c.WriteTimeout = time.Second },
		during: func(r *run) { r.p.WantOutcome(0, policy.OutcomeClientGone); close(r.client.read) },
		want:   want{status: 200, body: "*", cut: true, sends: 1, outcome: policy.OutcomeClientGone}},
}

// done says whether a request has ended.
func done(r *peers.Recorder) bool { defer r.Lock()(); return len(r.Outcomes) > 0 }

func leaveInBody(n int64) func(*run) {
	return func(r *run) {
		peers.Soon(r, "the part", func() bool { return r.client.got.Load() >= n })
		r.client.leave()
	}
}

// untilStuck returns when the upload has reached the upstream and moves no more.
func (r *run) untilStuck() {
	r.Helper()
	r.untilSent(1)
	last, still := int64(-1), 0
	peers.Soon(r, "the upload being stuck", func() bool {
		now := r.client.put.Load()
		if still++; now != last {
			last, still = now, 0
		}
		return now > 0 && still > 50
	})
}

// drainsWell checks that a drain ended in order.
func drainsWell(r *run) {
	if err := peers.Within(r, "the end of the drain", r.drained); err != nil {
		r.Error(err)
	}
}

// A drain begins no retries and ends waits for them; running attempts finish.
var drainRules = []rule{
	{name: "a drain ends the wait for Retry-After", acts: []act{waitLong}, during: func(r *run) { r.untilWaiting(); r.drain() },
		want: passedOn(503, 1, "busy", policy.ReasonDraining).checked(drainsWell)},
	{name: "a drain ends a backoff", set: waits(20 * time.Second), acts: []act{busy}, during: func(r *run) { r.untilWaiting(); r.drain() },
		want: passedOn(503, 1, "busy", policy.ReasonDraining).checked(drainsWell)},
	{name: "a drain ends the wait after a reset", set: waits(20 * time.Second), acts: []act{resets}, during: func(r *run) { r.untilWaiting(); r.drain() },
		want: passedOn(502, 1, "*", policy.ReasonDraining).checked(drainsWell)},
	{name: "a drain ends the wait after a dial", set: waits(20 * time.Second), down: -1, during: func(r *run) { r.untilWaiting(); r.drain() },
		want: notSent(1, policy.ReasonDraining).checked(drainsWell)},
	{name: "a request in flight is answered in a drain", acts: []act{after(says(200, "ok"))}, during: func(r *run) { r.untilSent(1); r.drain(); r.goOn() },
		want: want{status: 200, body: "ok", sends: 1, outcome: policy.OutcomeSuccess, check: drainsWell}},
	{name: "a large response is relayed in a drain", acts: []act{after(says(200, strings.Repeat("x", 3<<20)))},
		during: func(r *run) { r.untilSent(1); r.drain(); r.goOn() },
		want:   want{status: 200, body: strings.Repeat("x", 3<<20), sends: 1, outcome: policy.OutcomeSuccess, check: drainsWell}},
	{name: "an upload in flight is finished in a drain", acts: []act{says(200, "ok")}, call: call{method: "POST", upload: uploads("x", released, "y", nil)},
		during: func(r *run) { r.untilSent(1); r.drain(); r.goOn() },
		want:   want{status: 200, body: "ok", sends: 1, outcome: policy.OutcomeSuccess, check: drainsWell}},
	{name: "a failing response is not retried in a drain", acts: []act{after(busy)}, during: func(r *run) { r.untilSent(1); r.drain(); r.goOn() },
		want: passedOn(503, 1, "busy", policy.ReasonDraining).checked(drainsWell)},
	{name: "a reset is not retried in a drain", acts: []act{after(resets)}, during: func(r *run) { r.untilSent(1); r.drain(); r.goOn() },
		want: passedOn(502, 1, "*", policy.ReasonDraining).checked(drainsWell)},
	{name: "what is left at the drain timeout is cut off", acts: []act{stalls}, set: func(_ *testing.T, c *proxy.Config) { c.DrainTimeout = brief },
		during: func(r *run) { r.untilSent(1); r.drain() },
		want: want{sends: 1, outcome: policy.OutcomeClientGone, givenUp: 1, check: func(r *run) {
			if err := peers.Within(r, "the end of the drain", r.drained); err != proxy.ErrDrainTimeout {
				r.Errorf("%v, want %v", err, proxy.ErrDrainTimeout)
			}
		}}},
}

func withBreakerRule(_ *testing.T, c *proxy.Config) { peers.WithBreaker(c) }

// untilQueued returns once the request waits at the breaker.
func (r *run) untilQueued() {
	r.Helper()
	peers.Soon(r, "the hold", func() bool { return r.p.Guard().Queued == 1 })
}

// The breaker, the limit, the fallback and hedges, as far as retries, leaving and drains meet them.
var queueRules = []rule{
	{name: "a request is held while the upstream is down", set: withBreakerRule, down: -1, acts: []act{says(200, "ok")}, call: call{method: "POST", body: []byte("hello")},
		during: func(r *run) { r.untilQueued(); r.refuses.Store(0) },
		want:   want{status: 200, body: "ok", sends: 1, attempts: -1, outcome: policy.OutcomeRecovered}},
	{name: "leaving ends a hold", set: withBreakerRule, down: -1, during: func(r *run) { r.untilQueued(); r.client.leave(); r.p.Seen.Outcome(r, 0); r.refuses.Store(0) },
		want: want{attempts: -1, outcome: policy.OutcomeClientGone}},
	{name: "a drain ends a hold", set: withBreakerRule, down: -1, during: func(r *run) { r.untilQueued(); r.drain() },
		want: want{status: -1, body: "*", attempts: -1, reason: "draining", outcome: policy.GaveUp(policy.ReasonDraining), check: drainsWell}},
	{name: "a hold has its end", set: and(withBreakerRule, func(_ *testing.T, c *proxy.Config) { c.Default.QueueTimeout = brief }), down: -1,
		want: want{status: 503, body: "*", attempts: -1, reason: "queue_timeout", outcome: policy.OutcomeQueueTimeout, check: func(r *run) { r.ended.Store(true) }}},
	{name: "a response of ours instead of a failing one", acts: []act{busy},
		set:  func(_ *testing.T, c *proxy.Config) { peers.StaticFallback(203, "later")(c) },
		want: want{status: 203, body: "later", sends: 1, reason: "retries_off", outcome: policy.OutcomeFallback}},
	{name: "a response of ours instead of none", acts: []act{resets}, call: call{method: "POST", body: []byte("hello")},
		set:  func(_ *testing.T, c *proxy.Config) { peers.StaticFallback(203, "later")(c) },
		want: want{status: 203, body: "later", sends: 1, reason: "not_idempotent", outcome: policy.OutcomeFallback}},
	{name: "a hedge overtakes a slow attempt", acts: []act{stalls, says(200, "ok")}, set: func(t *testing.T, c *proxy.Config) { peers.Hedged(t)(c) },
		want: want{status: 200, body: "ok", sends: 2, outcome: policy.OutcomeSuccess, givenUp: 1}},
	{name: "leaving ends both attempts of a race", acts: []act{stalls}, set: func(t *testing.T, c *proxy.Config) { peers.HedgedOnce(t)(c) },
		during: func(r *run) { r.untilSent(2); r.client.leave() }, want: want{sends: 2, outcome: policy.OutcomeClientGone, givenUp: 2}},
}

// What is said on the wire.
var wireRules = []rule{
	{name: "fields about one connection end here", acts: []act{says(200, "ok", "X-Answer", "1")},
		call: call{headers: []string{"Te", "trailers", "X-Twice", "1", "X-Twice", "2"}},
		want: want{status: 200, body: "ok", sends: 1, outcome: policy.OutcomeSuccess, check: func(r *run) {
			h := r.up.all()[0].header
			if got := strings.Join(h["X-Twice"], ","); got != "1,2" || h.Get("Connection") != "" && h.Get("Connection") != "TE" {
				r.Errorf("the upstream got %v", h)
			}
			if r.client.result.header.Get("X-Answer") != "1" {
				r.Errorf("the client got %v", r.client.result.header)
			}
		}}},
	{name: "the upstream learns whom the request is from", set: func(_ *testing.T, c *proxy.Config) {
		c.Default.Forward = forward.Settings{Host: forward.HostRule{Mode: forward.HostPreserve}}
	},
		acts: []act{busy, says(200, "ok")},
		want: recoveredAfter(policy.Unknown, policy.ReasonStatus503).checked(func(r *run) {
			for _, a := range r.up.all() {
				if a.header.Get("X-Forwarded-For") != "127.0.0.1" || a.header.Get("X-Request-Id") == "" {
					r.Errorf("the upstream got %v", a.header)
				}
			}
			sameHeaders(r)
		})},
}
