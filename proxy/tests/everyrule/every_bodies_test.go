package everyrule

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

func retryBufferCap(n int64) func(*testing.T, *proxy.Config) {
	return func(_ *testing.T, c *proxy.Config) { c.Default.RetryBufferBytes = n }
}

// retryBufferRules: every attempt carries the same bytes, however many.
func retryBufferRules() []rule {
	var all []rule
	for _, size := range []int{0, 1, 4096, 64<<10 + 1, 300 << 10, 1 << 20} {
		for _, unknown := range []bool{false, true} {
			all = append(all, rule{name: fmt.Sprintf("a body of %d bytes, length unknown %v, is replayed whole", size, unknown),
				acts: []act{busy, resets, says(200, "ok")}, call: call{method: "PUT", body: peers.RandomBytes(size), unknown: unknown},
				want: want{status: 200, body: "ok", sends: 3, outcome: policy.OutcomeRecovered, check: sameHeaders}})
		}
	}
	return all
}

// uploads writes part, then the rest once go on is true, which ends the body.
func uploads(part string, until func(r *run) bool, rest string, end error) func(*run, io.Writer) error {
	return func(r *run, w io.Writer) error {
		if _, err := io.WriteString(w, part); err != nil {
			return err
		}
		peers.Soon(r, "what the upload waits for", func() bool { return until(r) })
		if _, err := io.WriteString(w, rest); err != nil {
			return err
		}
		return end
	}
}

func released(r *run) bool {
	select {
	case <-r.release:
		return true
	default:
		return false
	}
}

func responded(r *run) bool { return done(r.p.Seen) }

// readsOf reads n bytes of the body and lets the test go on.
func (a *arrival) readsOf(n int) {
	_, _ = io.ReadFull(a, make([]byte, n))
	a.r.goOn()
}

// endless uploads until it is stopped.
func endless(r *run, w io.Writer) error {
	piece := make([]byte, 16<<10)
	for {
		n, err := w.Write(piece)
		if r.client.put.Add(int64(n)); err != nil {
			return err
		}
	}
}

// What becomes of bodies.
var bodyRules = append(retryBufferRules(),
	rule{name: "the request's trailers come with every attempt", acts: []act{busy, says(200, "ok")},
		call: call{method: "PUT", body: []byte("hello"), trailers: http.Header{"X-Sum": {"5"}}},
		want: recoveredAfter(policy.Unknown, policy.ReasonStatus503)},
	rule{name: "a body over the cap is sent once", set: retryBufferCap(64 << 10), acts: []act{busy}, call: call{method: "PUT", body: peers.RandomBytes(100 << 10)},
		want: passedOn(503, 1, "busy", policy.ReasonBodyTooLarge)},
	rule{name: "a body of unknown length over the cap is sent once", set: retryBufferCap(64 << 10), acts: []act{busy},
		call: call{method: "PUT", body: peers.RandomBytes(100 << 10), unknown: true}, want: passedOn(503, 1, "busy", policy.ReasonBodyTooLarge)},
	rule{name: "a full retry buffer stops retries, not requests", acts: []act{busy}, call: call{method: "PUT", body: peers.RandomBytes(100 << 10)},
		set:  func(_ *testing.T, c *proxy.Config) { c.RetryBufferTotalBytes = 70 << 10 },
		want: passedOn(503, 1, "busy", policy.ReasonRetryBufferFull)},
	rule{name: "a large upload arrives whole", acts: []act{says(200, "ok")}, call: call{method: "POST", body: peers.RandomBytes(3 << 20)},
		want: want{status: 200, body: "ok", sends: 1, outcome: policy.OutcomeSuccess}},
	rule{name: "the first attempt is not delayed by buffering", call: call{method: "PUT", upload: uploads("1", released, "23", nil)},
		acts: []act{func(a *arrival) { a.readsOf(1); says(200, "ok")(a) }},
		want: want{status: 200, body: "ok", sends: 1, outcome: policy.OutcomeSuccess}},
	rule{name: "an early failing response is retried with the whole body",
		call: call{method: "PUT", upload: uploads("first ", released, "second", nil)},
		acts: []act{func(a *arrival) {
			a.headers(503, 4, nil)
			a.data("busy")
			a.readsOf(6)
			_ = a.readAll()
		}, says(200, "ok")},
		want: recoveredAfter(policy.Unknown, policy.ReasonStatus503).checked(func(r *run) {
			if a := r.up.all()[1]; string(a.body) != "first second" {
				r.Errorf("the retry carried %q", a.body)
			}
		})},
	rule{name: "an early final response is relayed", acts: []act{saysEarly(413, "big")}, call: call{method: "PUT", upload: uploads("first", responded, "", nil)},
		want: want{status: 413, body: "big", sends: 1, outcome: policy.OutcomeSuccess}},
	rule{name: "an early failing answer to a body over the cap is relayed", set: retryBufferCap(64 << 10), acts: []act{func(a *arrival) {
		_, _ = io.ReadFull(a, make([]byte, 100<<10))
		saysEarly(503, "busy")(a)
	}}, call: call{method: "PUT", upload: uploads(string(peers.RandomBytes(100<<10)), responded, "", nil)},
		want: passedOn(503, 1, "busy", policy.ReasonBodyTooLarge)},
	rule{name: "an upload that pauses too long is ended", set: bodyIdle, acts: []act{stalls},
		call:   call{method: "POST", upload: uploads("x", released, "y", nil)},
		during: func(r *run) { r.p.WantOutcome(0, policy.OutcomeRequestTimeout); r.goOn() },
		want:   want{status: 408, body: "*", sends: 1, reason: "request_timeout", outcome: policy.OutcomeRequestTimeout, givenUp: 1}},
	rule{name: "an upload that its client breaks off is broken off upstream", acts: []act{func(a *arrival) { a.readsOf(4); _ = a.readAll() }},
		call: call{method: "PUT", upload: uploads("half", released, "", errors.New("no more"))},
		want: want{sends: 1, outcome: policy.OutcomeRequestBroken, givenUp: 1},
		unlike: func(client, _ proto, w *want) string {
			if client == one {
				return ""
			}
			w.outcome = policy.OutcomeClientGone
			return "a connection of HTTP/1.1 that ends in the middle of a body is a body cut off; a stream that is reset is a client gone"
		}},
	rule{name: "a client that waits for 100 is told to go on", acts: []act{busy, says(200, "ok")},
		call: call{method: "PUT", body: []byte("hello"), headers: []string{"Expect", "100-continue"}},
		want: recoveredAfter(policy.Unknown, policy.ReasonStatus503)},
	rule{name: "a large response arrives whole", acts: []act{says(200, strings.Repeat("0123456789abcdef", 200<<10))},
		want: want{status: 200, body: strings.Repeat("0123456789abcdef", 200<<10), sends: 1, outcome: policy.OutcomeSuccess}},
	rule{name: "a response of unknown length with trailers", acts: []act{streams(200, "hello", "X-Sum", "1")},
		want: want{status: 200, body: "hello", sends: 1, outcome: policy.OutcomeSuccess, check: wantTrailer}},
	rule{name: "204 has no body", acts: []act{busy, says(204, "")}, want: want{status: 204, sends: 2, outcome: policy.OutcomeRecovered}},
	rule{name: "304 has no body", acts: []act{busy, says(304, "")}, want: want{status: 304, sends: 2, outcome: policy.OutcomeRecovered}},
)

func bodyIdle(_ *testing.T, c *proxy.Config) { c.Default.BodyIdleTimeout = 500 * time.Millisecond }
