package main

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// verdict judges a reply by its request and by what the upstream did.
type verdict struct {
	*soak
	p    *plan
	got  *reply
	seen []attempt
}

// judge judges the reply to a request.
func (s *soak) judge(r *record, got *reply) {
	v := verdict{soak: s, p: r.plan, got: got, seen: r.snapshot()}
	switch {
	case got.resp == nil:
		v.silent()
	case got.attempt < 0:
		v.own()
	case got.attempt >= len(v.seen):
		v.bad("answer from nowhere", "to attempt %d of %d", got.attempt, len(v.seen))
	default:
		v.relayed(&v.seen[got.attempt].script)
	}
}

func (v *verdict) bad(kind, format string, a ...any) {
	v.violation(kind, "request %d (%s): %s", v.p.id, v.p.method, fmt.Sprintf(format, a...))
}

// inFlight is how large an upload must be to have bytes in flight when the proxy responds early and closes.
// They turn the close into a reset.
const inFlight = 16 << 10

// silent judges that no response headers came.
func (v *verdict) silent() {
	early := func(a attempt) bool { return a.early || a.script.kind == resetsEarly } // it may have ended before the upload did
	switch {
	case v.p.behavior == cutsUpload: // the client ended the connection first
	case v.p.body.size > inFlight && (len(v.seen) == 0 || slices.ContainsFunc(v.seen, early)):
		v.Count(lostToReset, 1)
	default:
		v.bad("no response", "after %v: %v", v.got.took, v.got.err)
	}
}

// wholeAfter reports whether the upstream sent a whole response to an attempt after number n. It is false
// if the proxy may have timed out.
func (v *verdict) wholeAfter(n int) bool {
	return v.got.took < attemptTimeout && slices.ContainsFunc(v.seen[min(n+1, len(v.seen)):], func(a attempt) bool { return a.whole })
}

// own judges a response that is not from the upstream. It must be the proxy's own.
func (v *verdict) own() {
	got, status := v.got, v.got.resp.StatusCode
	reason := got.resp.Header.Get("X-Retryproxy-Reason")
	switch {
	case status == http.StatusRequestTimeout && got.resp.ContentLength == 0:
		v.Count(stray408, 1)
		return
	case v.p.behavior == cutsUpload && status == http.StatusBadRequest:
	case status != 502 && status != 503 && status != 504 || reason == "":
		v.bad("answer from nowhere", "status %d, reason %q, body %.60q", status, reason, got.text)
	case got.err != nil:
		v.bad("own response cut off", "status %d: %v", status, got.err)
	case v.p.method != http.MethodHead && !strings.Contains(got.text, `"`+reason+`"`):
		v.bad("own response without its reason", "status %d, reason %q, body %.60q", status, reason, got.text)
	case v.wholeAfter(-1):
		v.bad("answer withheld", "status %d, reason %q, though the upstream did this: %s", status, reason, v.story())
	case status == 504 && got.took < attemptTimeout:
		v.bad("hasty 504", "after %v, reason %q", got.took, reason)
	}
	v.Count(ownResponse, 1)
	if len(v.seen) == 0 {
		v.Count(neverThere, 1)
	}
}

// relayed judges a response from the upstream.
func (v *verdict) relayed(a *script) {
	got := v.got
	v.headers(a)
	switch {
	case got.left:
	case got.wrong != "":
		v.bad("response body changed", "attempt %d: %s", got.attempt, got.wrong)
	case got.err != nil: // it must have been cut off
		if early := a.early && v.p.body.size > 0; a.kind != cuts && !early && v.p.behavior != cutsUpload {
			v.bad("whole response looks cut", "attempt %d, %s, after %d of %d bytes and %v: %v", got.attempt, a.framing, got.n, a.body.size, got.took, got.err)
		}
		v.Count(cutRight, 1)
	case a.kind == cuts && !a.bodyless(v.p.method):
		v.bad("cut response looks whole", "attempt %d, %s, %d of %d bytes", got.attempt, a.framing, got.n, a.body.size)
	default:
		want := a.body.sum()
		if v.p.minor == 0 || a.bodyless(v.p.method) {
			want = ""
		}
		if is := got.resp.Trailer.Get(fieldSum); is != want {
			v.bad("response trailer changed", "%q, not %q", is, want)
		}
	}
	if v.wholeAfter(got.attempt) {
		v.bad("older answer given", "that of attempt %d: %s", got.attempt, v.story())
	}
}

func (v *verdict) headers(a *script) {
	got, resp := v.got, v.got.resp
	if resp.StatusCode != a.status || !a.has() {
		v.bad("response headers changed", "attempt %d: status %d, not %d of %s", got.attempt, resp.StatusCode, a.status, a.kind)
	}
	if twice := resp.Header[fieldTwice]; !slices.Equal(twice, []string{"a", "b"}) {
		v.bad("response headers changed", "%s is %q", fieldTwice, twice)
	}
	number := resp.Header.Get("X-Retryproxy-Attempts")
	if n, err := strconv.Atoi(number); err != nil || n <= got.attempt {
		v.bad("attempts not told", "X-Retryproxy-Attempts is %q on the response to attempt %d", number, got.attempt)
	}
	if v.p.close && !resp.Close {
		v.bad("close not said", "HTTP/1.%d", v.p.minor)
	}
	if v.p.method == http.MethodHead && (a.framing == byLength || a.framing == byHTTP10) && resp.ContentLength != a.body.size {
		v.bad("response headers changed", "Content-Length of a HEAD is %d, not %d", resp.ContentLength, a.body.size)
	}
	for _, status := range got.interim {
		if !slices.ContainsFunc(v.seen, func(s attempt) bool { return slices.Contains(s.script.interim, status) }) {
			v.bad("1xx from nowhere", "%d", status)
		}
	}
}

// story describes what the upstream did, for violations.
func (v *verdict) story() string {
	var all []string
	for _, a := range v.seen {
		all = append(all, fmt.Sprintf("%s, status %d, whole %v", a.script.kind, a.script.status, a.whole))
	}
	return strings.Join(all, "; ")
}

// slack is how many more goroutines and descriptors are no leak. The runtime has some of its own.
const slack = 3

// idle reports whether the level is that of an idle proxy, as before the run.
func idle(l, before rig.Level) bool {
	return l.Connections+l.InFlight+l.Waiting == 0 && l.RetryBuffer == 0 && !l.Above(before, slack)
}

// checkCounts compares the proxy's counts with what was sent, and with each other. Nothing may be in flight.
func (s *soak) checkCounts(m rig.Series) {
	requests, tried := m.Sum("requests_total"), m.Sum("attempts_total")
	for _, c := range []struct {
		what string
		got  float64
		with string
		want float64
	}{
		{"outcomes_total", m.Sum("outcomes_total"), "requests sent", float64(s.Counted(sent))},
		{"requests_total", requests, "outcomes_total", m.Sum("outcomes_total")},
		{"request_duration_seconds_count", m.Sum("request_duration_seconds_count"), "requests_total", requests},
		{"attempts_per_request_sum", m.Sum("attempts_per_request_sum"), "attempts_total", tried},
		{"attempt_duration_seconds_count", m.Sum("attempt_duration_seconds_count"), "attempts_total", tried},
		{"outcome refused", m.By("outcomes_total", "outcome")["refused"], "none", 0},
		{"parse_refusals_total", m.Sum("parse_refusals_total"), "none", 0},
		{"faults_total", m.Sum("faults_total"), "none", 0},
	} {
		if math.Abs(c.got-c.want) > 0.5 {
			s.violation("counts do not add up", "%s: %.0f, %s: %.0f", c.what, c.got, c.with, c.want)
		}
	}
	if n := s.Counted(attempts); float64(n) > tried {
		s.violation("counts do not add up", "the upstream saw %d attempts, attempts_total is %.0f", n, tried)
	}
	if n := m.Sum("retries_total"); n > tried {
		s.violation("counts do not add up", "retries_total is %.0f, attempts_total %.0f", n, tried)
	}
}
