package main

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// judge tells whether what a client got is right, given what its request was
// and what the upstream did. Safe for concurrent use.
type judge struct {
	ledger  *ledger
	timeout time.Duration // of the proxy, for one attempt

	cut    atomic.Uint64 // answers cut off that looked so
	own    atomic.Uint64 // answers of the proxy itself
	lost   atomic.Uint64 // answers lost to the reset that an unread upload brings about
	stray  atomic.Uint64 // unasked 408s that came just when a request went out
	unseen atomic.Uint64 // own answers to requests that never reached the upstream
}

// inFlight is a size of upload beyond which bytes may be in flight when the
// proxy answers early and closes, which resets the connection.
const inFlight = 16 << 10

// matter is one reply and everything it is judged by.
type matter struct {
	*judge
	p    *plan
	got  *reply
	seen []attempt
}

// ruling judges one reply.
func (j *judge) ruling(e *entry, got *reply) {
	c := matter{judge: j, p: e.plan, got: got, seen: e.snapshot()}
	switch {
	case c.p.conduct == breaksRules:
		c.refused()
	case got.resp == nil:
		c.silent()
	case got.attempt < 0:
		c.ownAnswer()
	default:
		c.relayed()
	}
}

func (c *matter) bad(kind, format string, args ...any) {
	id := strconv.FormatUint(c.p.id, 10)
	c.ledger.violation(kind, "request "+id+" ("+c.p.method+"): "+format, args...)
}

func (c *matter) took() time.Duration { return c.got.ended.Sub(c.got.begun) }

// refused: a request that breaks a rule.
func (c *matter) refused() {
	r := &rules[c.p.broken]
	switch got := c.got; {
	case len(c.seen) > 0:
		c.bad("malformed request forwarded", "%s", r.name)
	case got.resp == nil:
		c.bad("malformed request not answered", "%s: %v", r.name, got.err)
	case !slices.Contains(r.status, got.resp.StatusCode):
		c.bad("malformed request not refused", "%s: status %d, not %v", r.name, got.resp.StatusCode, r.status)
	case !got.resp.Close:
		c.bad("malformed request keeps its connection", "%s", r.name)
	}
}

// silent: no head at all.
func (c *matter) silent() {
	if c.p.conduct == cutsUpload {
		return // the client ended the connection first
	}
	if c.p.body.size > inFlight && c.answeredEarly() {
		c.lost.Add(1)
		return
	}
	c.bad("no response", "after %v: %v", c.took(), c.got.err)
}

// answeredEarly: an attempt may have ended before the upload did.
func (c *matter) answeredEarly() bool {
	return len(c.seen) == 0 || slices.ContainsFunc(c.seen, func(a attempt) bool {
		return a.early || a.act.kind == resetsEarly
	})
}

// wholeAfter reports whether the upstream answered an attempt after number n in
// full. In a run on a busy machine the proxy may have stopped waiting for it:
// that takes at least its timeout.
func (c *matter) wholeAfter(n int) bool {
	return c.took() < c.timeout && slices.ContainsFunc(c.seen[min(n+1, len(c.seen)):], func(a attempt) bool { return a.whole })
}

// ownAnswer: the proxy's own, or something that is nobody's.
func (c *matter) ownAnswer() {
	got, status := c.got, c.got.resp.StatusCode
	reason := got.resp.Header.Get("X-Retryproxy-Reason")
	switch {
	case status == http.StatusRequestTimeout && got.resp.ContentLength == 0:
		c.stray.Add(1)
		return
	case c.p.conduct == cutsUpload && status == http.StatusBadRequest:
	case status != 502 && status != 503 && status != 504 || reason == "":
		c.bad("answer from nowhere", "status %d, reason %q, body %.60q", status, reason, got.text)
	case got.err != nil:
		c.bad("own response cut off", "status %d: %v", status, got.err)
	case c.p.method != http.MethodHead && !strings.Contains(got.text, `"`+reason+`"`):
		c.bad("own response without its reason", "status %d, reason %q, body %.60q", status, reason, got.text)
	case c.wholeAfter(-1):
		c.bad("answer withheld", "status %d, reason %q, though the upstream answered %s", status, reason, c.story())
	case status == 504 && c.took() < c.timeout:
		c.bad("hasty 504", "after %v, reason %q", c.took(), reason)
	}
	c.own.Add(1)
	if len(c.seen) == 0 {
		c.unseen.Add(1)
	}
}

// relayed: a response of the upstream.
func (c *matter) relayed() {
	got := c.got
	if got.attempt >= len(c.seen) {
		c.bad("answer from nowhere", "to attempt %d of %d", got.attempt, len(c.seen))
		return
	}
	a := &c.seen[got.attempt].act
	c.head(a)
	switch {
	case got.left:
	case got.wrong != "":
		c.bad("response body changed", "attempt %d: %s", got.attempt, got.wrong)
	case got.err != nil:
		c.cutOff(a)
	case a.kind == cuts && !c.bodyless(a):
		c.bad("cut response looks whole", "attempt %d, framing %d, %d of %d bytes", got.attempt, a.framing, got.n, a.body.size)
	default:
		c.trailer(a)
	}
	if c.wholeAfter(got.attempt) {
		c.bad("older answer given", "that of attempt %d: %s", got.attempt, c.story())
	}
}

func (c *matter) bodyless(a *act) bool {
	return c.p.method == http.MethodHead || a.framing == noContent
}

func (c *matter) head(a *act) {
	resp := c.got.resp
	if resp.StatusCode != a.status || !a.has() {
		c.bad("response headers changed", "attempt %d: status %d, not %d (kind %d)", c.got.attempt, resp.StatusCode, a.status, a.kind)
	}
	if twice := resp.Header[fieldTwice]; !slices.Equal(twice, []string{"a", "b"}) {
		c.bad("response headers changed", "%s is %q", fieldTwice, twice)
	}
	if n, err := strconv.Atoi(resp.Header.Get("X-Retryproxy-Attempts")); err != nil || n <= c.got.attempt {
		c.bad("attempts not told", "X-Retryproxy-Attempts is %q on the answer to attempt %d", resp.Header.Get("X-Retryproxy-Attempts"), c.got.attempt)
	}
	if c.p.close && !resp.Close {
		c.bad("close not said", "HTTP/1.%d", c.p.minor)
	}
	if c.p.method == http.MethodHead && (a.framing == byLength || a.framing == byHTTP10) && resp.ContentLength != a.body.size {
		c.bad("response headers changed", "Content-Length of a HEAD is %d, not %d", resp.ContentLength, a.body.size)
	}
	for _, status := range c.got.interim {
		if !slices.ContainsFunc(c.seen, func(s attempt) bool { return slices.Contains(s.act.interim, status) }) {
			c.bad("1xx from nowhere", "%d", status)
		}
	}
}

// cutOff: a response that looks cut off. It must have been.
func (c *matter) cutOff(a *act) {
	early := a.early && c.p.body.size > 0
	if a.kind != cuts && !early && c.p.conduct != cutsUpload {
		c.bad("whole response looks cut", "attempt %d, framing %d, after %d of %d bytes and %v: %v", c.got.attempt, a.framing, c.got.n, a.body.size, c.took(), c.got.err)
	}
	c.cut.Add(1)
}

func (c *matter) trailer(a *act) {
	want := ""
	if a.trailer && c.p.minor == 1 && !c.bodyless(a) {
		want = a.body.sum()
	}
	if got := c.got.resp.Trailer.Get(fieldSum); got != want {
		c.bad("response trailer changed", "%q, not %q", got, want)
	}
}

// story tells what the upstream did, for a violation.
func (c *matter) story() string {
	var all []string
	for _, a := range c.seen {
		all = append(all, fmt.Sprintf("kind %d status %d whole %v", a.act.kind, a.act.status, a.whole))
	}
	return strings.Join(all, ", ")
}

// slack is how many goroutines and descriptors more than at the beginning are
// no leak: the runtime starts some of its own.
const slack = 3

// idle reports whether the level is that of a proxy without work, as before the run.
func idle(l, before rig.Level) bool {
	return l.Connections+l.InFlight+l.Waiting == 0 && l.RetryBuffer == 0 && !l.Above(before, slack)
}

// checkCounts compares the proxy's counts with what was sent, and with each
// other, once nothing is in flight.
func checkCounts(l *ledger, s rig.Series, sent, heads uint64, breakers float64) {
	equal := func(what string, got float64, with string, want float64) {
		if math.Abs(got-want) > 0.5 {
			l.violation("counts do not add up", "%s is %.0f, %s %.0f", what, got, with, want)
		}
	}
	requests, attempts := s.Sum("requests_total"), s.Sum("attempts_total")
	equal("outcomes_total", s.Sum("outcomes_total"), "requests sent are", float64(sent))
	equal("requests_total", requests, "outcomes_total is", s.Sum("outcomes_total"))
	equal("request_duration_seconds_count", s.Sum("request_duration_seconds_count"), "requests_total is", requests)
	equal("attempts_per_request_sum", s.Sum("attempts_per_request_sum"), "attempts_total is", attempts)
	equal("attempt_duration_seconds_count", s.Sum("attempt_duration_seconds_count"), "attempts_total is", attempts)
	equal("outcome refused", s.By("outcomes_total", "outcome")["refused"], "malformed requests sent are", breakers)
	equal("parse_refusals_total", s.Sum("parse_refusals_total"), "malformed requests sent are", breakers)
	equal("faults_total", s.Sum("faults_total"), "should be", 0)
	if float64(heads) > attempts {
		l.violation("counts do not add up", "the upstream saw %d attempts, attempts_total is %.0f", heads, attempts)
	}
	if r := s.Sum("retries_total"); r > attempts {
		l.violation("counts do not add up", "retries_total is %.0f, attempts_total %.0f", r, attempts)
	}
}
