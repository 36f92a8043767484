package everyrule

import (
	"net/http"
	"strings"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// notSent is what comes of a request that could never be sent.
func notSent(attempts int, why policy.Reason) want {
	return want{status: 502, body: "*", attempts: attempts, reason: why.String(), outcome: policy.GaveUp(why)}
}

// overHTTP2 is for what only an upstream of HTTP/2 can say.
func overHTTP2(_, up proto) string {
	if up == one {
		return "HTTP/1.1 has no word for it: a connection that ends without a response may have done the work"
	}
	return ""
}

// refusesStream says REFUSED_STREAM.
func refusesStream(a *arrival) { a.disown(0, true) }

// goesAway says GOAWAY with the last stream that counts from that of the attempt.
func goesAway(last int) act { return func(a *arrival) { a.disown(last, false) } }

// A request that was certainly not sent is retried, whatever the method and the body.
var unsentRules = []rule{
	{name: "a dial that is refused is retried for any method", down: -1, call: call{method: "POST", body: []byte("hello")},
		want: func() want {
			w := notSent(4, policy.ReasonRetriesExhausted)
			w.classes = []policy.Class{policy.NotSent, policy.NotSent, policy.NotSent, policy.NotSent}
			w.retries = []policy.Reason{policy.ReasonConnectFailure, policy.ReasonConnectFailure, policy.ReasonConnectFailure}
			return w.checked(func(r *run) { r.refuses.Store(0) })
		}()},
	{name: "a dial that is refused with retries off", down: 1, set: retries(0), call: call{method: "POST"}, want: notSent(1, policy.ReasonRetriesOff)},
	{name: "a dial that is refused and not in the list", down: 1, set: retryOn("5xx"), want: notSent(1, policy.ReasonNotInRetryOn)},
	{name: "a dial that is refused once, for a POST over the cap", down: 1, acts: []act{says(200, "ok")},
		call: call{method: "POST", body: peers.RandomBytes(3 << 20)},
		want: want{status: 200, body: "ok", sends: 1, attempts: 2, outcome: policy.OutcomeRecovered, retries: []policy.Reason{policy.ReasonConnectFailure}}},
	{name: "a pooled connection that has ended is not used", before: func(r *run) { r.warm(); r.up.dropAll(); r.untilNoticed() }, acts: []act{says(200, "ok")},
		call: call{method: "POST", body: []byte("hello")},
		want: want{status: 200, body: "ok", sends: 1, outcome: policy.OutcomeSuccess}},
	{name: "a refused stream is retried for any method", only: overHTTP2, acts: []act{refusesStream, says(200, "ok")},
		call: call{method: "POST", body: []byte("hello")}, want: recoveredAfter(policy.NotSent, policy.ReasonRefusedStream)},
	{name: "a stream that is refused each time", only: overHTTP2, acts: []act{refusesStream}, call: call{method: "POST", body: []byte("hello")},
		want: func() want {
			w := notSent(0, policy.ReasonRetriesExhausted)
			w.sends = 5 // one is free
			return w
		}()},
	{name: "a request beyond the last of a connection that goes away", only: overHTTP2, before: (*run).warm, call: call{method: "POST", body: []byte("hello")},
		set: retries(0), acts: []act{goesAway(-2), says(200, "ok")}, // it is free
		want: want{status: 200, body: "ok", sends: 2, outcome: policy.OutcomeRecovered, classes: []policy.Class{policy.NotSent, policy.ClassNone}}},
	{name: "a request on a new connection that goes away", only: overHTTP2, call: call{method: "POST", body: []byte("hello")},
		acts: []act{goesAway(-1), says(200, "ok")}, want: recoveredAfter(policy.NotSent, policy.ReasonRefusedStream)},
	{name: "the last request of a connection that goes away is answered", only: overHTTP2, call: call{method: "POST", body: []byte("hello")},
		acts: []act{func(a *arrival) { goesAway(0)(a); says(200, "ok")(a) }},
		want: want{status: 200, body: "ok", sends: 1, outcome: policy.OutcomeSuccess}},
	{name: "the last request of a connection that goes away and ends", only: overHTTP2, call: call{method: "POST", body: []byte("hello")},
		acts: []act{func(a *arrival) { goesAway(0)(a); hangsUp(a) }},
		want: passedOn(502, 1, "*", policy.ReasonNotIdempotent)},
}

// broken is what the client sees of a response cut off behind its head.
func broken(part string) want {
	return want{status: 200, body: part, cut: true, sends: 1, outcome: policy.OutcomeResponseBroken}
}

const large = 200 << 10

// A request that may have been processed is retried only if it may run twice. It is never retried
// after the client has seen the beginning of the response, which then looks cut off.
var unknownRules = []rule{
	{name: "a reset before the response, GET", acts: []act{resets, says(200, "ok")}, want: recoveredAfter(policy.Unknown, policy.ReasonReset)},
	{name: "a reset before the response, POST", acts: []act{resets}, call: call{method: "POST", body: []byte("hello")},
		want: passedOn(502, 1, "*", policy.ReasonNotIdempotent)},
	{name: "a reset each time", acts: []act{resets}, want: passedOn(502, 4, "*", policy.ReasonRetriesExhausted)},
	{name: "a reset that is not in the list", set: retryOn("5xx"), acts: []act{resets}, want: passedOn(502, 1, "*", policy.ReasonNotInRetryOn)},
	{name: "an end before the response, GET", acts: []act{hangsUp, says(200, "ok")}, want: recoveredAfter(policy.Unknown, policy.ReasonReset)},
	{name: "an end before the response, POST", acts: []act{hangsUp}, call: call{method: "POST", body: []byte("hello")},
		want: passedOn(502, 1, "*", policy.ReasonNotIdempotent)},
	{name: "what is no response, GET", acts: []act{func(a *arrival) { a.nonsense() }, says(200, "ok")},
		want: recoveredAfter(policy.Unknown, policy.ReasonMalformed)},
	{name: "what is no response, POST", acts: []act{func(a *arrival) { a.nonsense() }}, call: call{method: "POST"},
		want: passedOn(502, 1, "*", policy.ReasonNotIdempotent)},
	{name: "response headers over the limit", acts: []act{says(200, "ok", "X-Large", strings.Repeat("x", 100<<10)), says(200, "ok")},
		want: recoveredAfter(policy.Unknown, policy.ReasonResponseHeadersTooLarge)},
	{name: "a reset behind the head", acts: []act{breaksOff(200, 100, "")}, want: broken("")},
	{name: "a reset within a body", acts: []act{breaksOff(200, 100, "half")}, want: broken("half")},
	{name: "a reset within a body of unknown length", acts: []act{breaksOff(200, -1, "half")}, want: broken("half")},
	{name: "a reset within a large body", acts: []act{breaksOff(200, 2*large, strings.Repeat("x", large))}, want: broken(strings.Repeat("x", large))},
	{name: "an end within a body", acts: []act{endsEarly(200, 100, "half")}, want: broken("half")},
	{name: "an end within a body of unknown length", acts: []act{endsEarly(200, -1, "half")}, want: broken("half")},
	{name: "a body that stalls", set: bodyIdle, acts: []act{func(a *arrival) { _ = a.readAll(); a.headers(200, 100, nil); a.data("half"); a.givenUp() }},
		want: func() want { w := broken("half"); w.givenUp = 1; return w }()},
	{name: "a failing response that is cut off is retried", acts: []act{endsEarly(503, 100, "half"), says(200, "ok")},
		want: recoveredAfter(policy.Unknown, policy.ReasonStatus503)},
	{name: "a failing response that was cut off is cut off for the client", acts: []act{endsEarly(503, 100, "half"), resets},
		want: want{status: 503, body: "half", cut: true, sends: 4, reason: "retries_exhausted", outcome: policy.OutcomeResponseBroken}},
	{name: "answers before the last are passed on, from every attempt", acts: []act{interims(103, busy), interims(103, says(200, "ok"))},
		want: recoveredAfter(policy.Unknown, policy.ReasonStatus503).checked(func(r *run) {
			if n := len(r.client.result.interim); n != 2 {
				r.Errorf("%d answers before the last, want 2", n)
			}
		})},
	{name: "answers before the last, without end", set: retries(0), acts: []act{func(a *arrival) {
		for range 100 * attempt.MaxInformational {
			a.interim(http.StatusProcessing)
		}
		a.givenUp()
	}}, want: func() want {
		w := passedOn(502, 1, "*", policy.ReasonRetriesOff)
		w.givenUp = 1
		return w
	}()},
}

// interims sends a response before the one of then.
func interims(status int, then act) act {
	return func(a *arrival) {
		a.interim(status, "Link", "</x>")
		then(a)
	}
}
