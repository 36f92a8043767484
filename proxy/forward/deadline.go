package forward

import (
	"strconv"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// DeadlineHeader is a request header with the time that a client will wait. It is a closed
// set, meant for a metric label.
type DeadlineHeader uint8

// The headers.
const (
	DeadlineRequest       DeadlineHeader = iota // X-Request-Timeout: seconds as a decimal number ("2.5"), or a number with a unit ("2500ms")
	DeadlineGRPC                                // grpc-timeout: one to eight digits and one of H, M, S, m, u, n (gRPC over HTTP/2, "Requests")
	DeadlineEnvoy                               // x-envoy-expected-rq-timeout-ms: whole milliseconds
	DeadlineStainless                           // x-stainless-timeout, of the vendors' clients of OpenAI, Anthropic and others: as X-Request-Timeout
	DeadlineStainlessRead                       // x-stainless-read-timeout, likewise: how long they wait for a byte

	NumDeadlineHeaders = iota // number of headers: valid ones are in [0, NumDeadlineHeaders)
)

var deadlineNames = [NumDeadlineHeaders]string{
	DeadlineRequest: "x-request-timeout",
	DeadlineGRPC:    "grpc-timeout",
	DeadlineEnvoy:   "x-envoy-expected-rq-timeout-ms",

	DeadlineStainless:     "x-stainless-timeout",
	DeadlineStainlessRead: "x-stainless-read-timeout",
}

// String returns the header's name in lower case; "" for a value outside the set.
func (f DeadlineHeader) String() string {
	if int(f) >= len(deadlineNames) {
		return ""
	}
	return deadlineNames[f]
}

// DeadlineHeaderNames is the set of headers that Deadline.Read looks at. In a request
// without any of them it finds nothing.
const DeadlineHeaderNames = 1<<http1.ContentType | 1<<http1.XRequestTimeout | 1<<http1.GRPCTimeout | 1<<http1.XEnvoyExpectedTimeout |
	1<<http1.XStainlessTimeout | 1<<http1.XStainlessReadTimeout

// deadlineHeader returns the DeadlineHeader of a name, if it is one.
func deadlineHeader(id http1.HeaderName) (f DeadlineHeader, ok bool) {
	switch id {
	case http1.XRequestTimeout:
		return DeadlineRequest, true
	case http1.GRPCTimeout:
		return DeadlineGRPC, true
	case http1.XEnvoyExpectedTimeout:
		return DeadlineEnvoy, true
	case http1.XStainlessTimeout:
		return DeadlineStainless, true
	case http1.XStainlessReadTimeout:
		return DeadlineStainlessRead, true
	}
	return 0, false
}

// DeadlineSet is a set of headers. The zero value is empty.
type DeadlineSet uint8

// Has reports whether f is in the set.
func (s DeadlineSet) Has(f DeadlineHeader) bool { return s>>f&1 == 1 }

// With returns the set with f added.
func (s DeadlineSet) With(f DeadlineHeader) DeadlineSet { return s | 1<<f }

// maxDeadline caps a timeout. It keeps sums of durations far from overflow and fits all
// three notations.
const maxDeadline = 365 * 24 * time.Hour

// Deadline is how long a client will wait, by its own headers. It is for one request and
// not safe for concurrent use.
type Deadline struct {
	Timeout   time.Duration // with Given: the shortest value, in [0, a year]; 0 only from grpc-timeout
	Given     bool          // a header had a valid value
	GRPC      bool          // the request is a gRPC call
	Malformed DeadlineSet   // headers with an invalid value; they are forwarded as received

	notations [NumDeadlineHeaders]notation
}

// notation is how a client wrote a header; the upstream gets the same notation.
type notation uint8

const (
	absent notation = iota
	asSeconds
	asMillis // the header's own unit, or a number with a unit
)

// Read parses the request's headers. It does not allocate.
func (d *Deadline) Read(r *http1.Request) {
	*d = Deadline{}
	for i := range r.Headers {
		f := &r.Headers[i]
		if f.ID == http1.ContentType {
			d.GRPC = IsGRPC(f.Value)
			continue
		}
		if which, ok := deadlineHeader(f.ID); ok {
			d.note(which, f.Value)
		}
	}
}

func (d *Deadline) note(f DeadlineHeader, value []byte) {
	within, how, ok := readDeadline(f, value)
	switch {
	case !ok:
		d.Malformed = d.Malformed.With(f)
		return
	case !d.Given || within < d.Timeout:
		d.Timeout = within
	}
	d.Given, d.notations[f] = true, how
}

// Append writes the headers that were read again, with left in place of the client's value.
// It rounds down, to at least one of the header's smallest unit. The x-stainless headers, which
// only inform an upstream, are forwarded as received.
func (d *Deadline) Append(form wire.Form, dst []byte, left time.Duration) []byte {
	left = min(max(left, 1), maxDeadline)
	if d.notations[DeadlineRequest] != absent {
		var text [32]byte
		dst = wire.AppendHeader(form, dst, "X-Request-Timeout", appendTimeout(text[:0], left, d.notations[DeadlineRequest]))
	}
	if d.notations[DeadlineGRPC] != absent {
		var text [32]byte
		dst = wire.AppendHeader(form, dst, "grpc-timeout", appendGRPC(text[:0], left))
	}
	if d.notations[DeadlineEnvoy] != absent {
		dst = wire.AppendInt(form, dst, "x-envoy-expected-rq-timeout-ms", millis(left))
	}
	return dst
}

func millis(d time.Duration) int64 { return max(d.Milliseconds(), 1) }

// appendTimeout writes X-Request-Timeout in milliseconds.
func appendTimeout(dst []byte, d time.Duration, how notation) []byte {
	ms := millis(d)
	if how == asMillis {
		return append(strconv.AppendInt(dst, ms, 10), "ms"...)
	}
	dst = strconv.AppendInt(dst, ms/1000, 10)
	if ms %= 1000; ms == 0 {
		return dst
	}
	return append(dst, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10))
}

// appendGRPC writes d in the finest unit with at most eight digits.
func appendGRPC(dst []byte, d time.Duration) []byte {
	const limit = 1e8
	switch {
	case d < limit:
		return append(strconv.AppendInt(dst, int64(d), 10), 'n')
	case d < limit*time.Microsecond:
		return append(strconv.AppendInt(dst, d.Microseconds(), 10), 'u')
	case d < limit*time.Millisecond:
		return append(strconv.AppendInt(dst, d.Milliseconds(), 10), 'm')
	}
	return append(strconv.AppendInt(dst, int64(d/time.Second), 10), 'S')
}

// readDeadline parses a header's value. It returns false if the syntax is wrong or the
// value is 0, which some take for no limit. In grpc-timeout, 0 is valid and means that the
// time is over.
func readDeadline(f DeadlineHeader, value []byte) (d time.Duration, how notation, ok bool) {
	switch f {
	case DeadlineGRPC:
		d, ok = readGRPC(value)
		return d, asMillis, ok
	case DeadlineEnvoy:
		n, isNumber := http1.ParseUint(value)
		return times(n, time.Millisecond), asMillis, isNumber && n > 0
	}
	d, how, ok = readTimeout(value)
	return d, how, ok && d > 0
}

// readGRPC parses TimeoutValue and TimeoutUnit of the gRPC protocol.
func readGRPC(value []byte) (time.Duration, bool) {
	last := len(value) - 1
	if last < 1 || last > 8 {
		return 0, false
	}
	n, ok := http1.ParseUint(value[:last])
	switch value[last] {
	case 'H':
		return times(n, time.Hour), ok
	case 'M':
		return times(n, time.Minute), ok
	case 'S':
		return times(n, time.Second), ok
	case 'm':
		return times(n, time.Millisecond), ok
	case 'u':
		return times(n, time.Microsecond), ok
	case 'n':
		return times(n, 1), ok
	}
	return 0, false
}

// fractionDigits is the number of digits that fit: a fraction of an hour in nanoseconds is
// below 10^6 * 3.6*10^12 < 2^63. Further digits are ignored.
const fractionDigits = 6

// readTimeout parses a decimal number, of seconds or of the unit after it.
func readTimeout(value []byte) (time.Duration, notation, bool) {
	whole := digits(value)
	n, ok := http1.ParseUint(value[:whole])
	if !ok {
		return 0, absent, false
	}
	rest, part, scale := value[whole:], int64(0), int64(1)
	if len(rest) > 0 && rest[0] == '.' {
		k := digits(rest[1:])
		if k == 0 {
			return 0, absent, false
		}
		for _, c := range rest[1 : 1+min(k, fractionDigits)] {
			part, scale = part*10+int64(c-'0'), scale*10
		}
		rest = rest[1+k:]
	}
	unit, how, ok := unitOf(rest)
	if !ok {
		return 0, absent, false
	}
	return min(times(n, unit)+time.Duration(part*int64(unit)/scale), maxDeadline), how, true
}

// digits returns the number of leading digits of p.
func digits(p []byte) int {
	n := 0
	for n < len(p) && '0' <= p[n] && p[n] <= '9' {
		n++
	}
	return n
}

// unitOf parses the units of Go's durations.
func unitOf(p []byte) (time.Duration, notation, bool) {
	switch string(p) {
	case "":
		return time.Second, asSeconds, true
	case "s":
		return time.Second, asMillis, true
	case "ms":
		return time.Millisecond, asMillis, true
	case "us":
		return time.Microsecond, asMillis, true
	case "ns":
		return time.Nanosecond, asMillis, true
	case "m":
		return time.Minute, asMillis, true
	case "h":
		return time.Hour, asMillis, true
	}
	return 0, absent, false
}

// times returns n units, at most maxDeadline.
func times(n int64, unit time.Duration) time.Duration {
	if n > int64(maxDeadline/unit) {
		return maxDeadline
	}
	return time.Duration(n) * unit
}

// rewritesDeadline reports whether Deadline.Append writes a header again.
func rewritesDeadline(f *http1.Header) bool {
	which, ok := deadlineHeader(f.ID)
	if !ok || which >= DeadlineStainless {
		return false
	}
	_, _, ok = readDeadline(which, f.Value)
	return ok
}
