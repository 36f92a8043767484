package retryafter

import (
	"bytes"
	"time"
)

// Headers reads what the headers of a failed response say about a retry: whether one is wanted,
// and how long to wait before it. Rows lists the headers that tell a wait.
//
// Set Date and Now, Add every header, then ask. It keeps slices of the values given, so it must
// not outlive them. It does not allocate. Not safe for concurrent use.
//
// Of several orders to wait the longest counts. Only without an order, the longest wait counts
// for one of the rate limits that are used up: all of them have to be renewed. An order goes
// first because it is exact, while many a reset tells when a rate limit is renewed in full; the
// IETF's drafts ask for the same.
//
// What cannot be read is ignored, and so are a rate limit of which a header came twice, rate
// limits beyond the first maxPairs, and names and values longer than maxName and maxValue.
type Headers struct {
	Date []byte    // the value of the response's Date header, nil without one
	Now  time.Time // the local time, for a response without Date

	asked    time.Duration // the longest order
	hasAsked bool
	yes, no  bool // X-Should-Retry

	current headerLines // RateLimit
	rules   headerLines // RateLimit-Policy
	pairs   [maxPairs]pair
	n       int
}

const (
	maxPairs = 16
	maxName  = 64   // bytes of a name
	maxValue = 64   // bytes of the value of a single header; dates have about 30
	maxList  = 1024 // bytes of all lines of a list header together
)

// headerLines are the values of the lines of a list header. If there are too many, or too long
// ones, the header is unreadable.
type headerLines struct {
	values [4][]byte
	n      int
	bytes  int
}

func (l *headerLines) add(value []byte) {
	if l.n < len(l.values) {
		l.values[l.n] = value
	}
	l.n++
	l.bytes += len(value)
}

// all is empty if there was too much.
func (l *headerLines) all() [][]byte {
	if l.n > len(l.values) || l.bytes > maxList {
		return nil
	}
	return l.values[:l.n]
}

// pair is the count left of a rate limit, and the time at which it is renewed.
type pair struct {
	row              int
	what             []byte // what the * of the row stands for
	remaining, reset singleHeader
}

// singleHeader is a header that may be there once: of two, nobody knows which counts.
type singleHeader struct {
	value []byte
	n     int
}

func (s *singleHeader) add(value []byte) { s.value, s.n = value, s.n+1 }

// mayMatter reports whether a header with this name may be one of rows, or X-Should-Retry. It is
// quick to refuse most others.
func mayMatter(name []byte) bool {
	if len(name) < len("RateLimit") || len(name) > maxName {
		return false
	}
	switch name[0] | 0x20 {
	case 'r': // retry-, ratelimit
		return name[1]|0x20 == 'e' || name[1]|0x20 == 'a'
	case 'a': // anthropic-
		return name[1]|0x20 == 'n'
	case 'x': // x-rate-, x-ms-, x-amz-, x-should-
		c := name[2] | 0x20
		return c == 'r' || c == 'm' || c == 'a' || c == 's'
	}
	return false
}

// lowerName returns name in lower case, in buf. mayMatter must have passed name, which bounds its
// length.
func lowerName(buf *[maxName]byte, name []byte) []byte {
	small := buf[:len(name)]
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		small[i] = c
	}
	return small
}

// Add notes a header of the response if it says something about a retry.
func (h *Headers) Add(name, value []byte) {
	if !mayMatter(name) {
		return
	}
	var buf [maxName]byte
	small := lowerName(&buf, name)
	for i := range rows {
		p := &patterns[i]
		switch r := &rows[i]; {
		case r.Form == FormStructured:
			if string(small) == "ratelimit" {
				h.current.add(value)
			} else if string(small) == "ratelimit-policy" {
				h.rules.add(value)
			}
		case r.Order():
			if _, ok := p.header.match(small); ok {
				h.addOrder(r.Form, value)
			}
		default:
			if end, ok := p.header.match(small); ok {
				h.addTo(i, name[len(p.header.before):end], value, true)
			}
			if end, ok := p.left.match(small); ok {
				h.addTo(i, name[len(p.left.before):end], value, false)
			}
		}
	}
	if string(small) == "x-should-retry" {
		h.yes = h.yes || equalFold(trimSpace(value), "true")
		h.no = h.no || equalFold(trimSpace(value), "false")
	}
}

func (h *Headers) addOrder(f Form, value []byte) {
	if len(value) > maxValue {
		return
	}
	var d time.Duration
	var ok bool
	if f == FormMilliseconds {
		d, ok = parseMilliseconds(value)
	} else {
		d, ok = Parse(value, h.Date, h.Now)
	}
	if ok {
		h.asked, h.hasAsked = max(h.asked, d), true
	}
}

// addTo notes a header of a rate limit.
func (h *Headers) addTo(row int, what, value []byte, reset bool) {
	i := 0
	for i < h.n && (h.pairs[i].row != row || !bytes.EqualFold(h.pairs[i].what, what)) {
		i++
	}
	if i == h.n {
		if h.n == maxPairs {
			return
		}
		h.pairs[i] = pair{row: row, what: what}
		h.n++
	}
	if reset {
		h.pairs[i].reset.add(value)
	} else {
		h.pairs[i].remaining.add(value)
	}
}

// Asked is the longest wait that the upstream asked for; no if it asked for none. It is never
// negative.
func (h *Headers) Asked() (time.Duration, bool) { return h.asked, h.hasAsked }

// Renewed is the time until all rate limits are renewed that are used up; no if none is, or none
// that says until when. It is never negative, and 0 if they were renewed already.
func (h *Headers) Renewed() (time.Duration, bool) {
	longest, told := h.structured()
	for i := range h.pairs[:h.n] {
		if d, ok := h.pairs[i].wait(h.Date, h.Now); ok {
			longest, told = max(longest, d), true
		}
	}
	return longest, told
}

// MeansRateLimit reports whether a response with this status may be due to a rate limit, so that
// Renewed has to do with it. 403 is what GitHub answers; 529 is Anthropic's overload.
func MeansRateLimit(status int) bool {
	switch status {
	case 403, 429, 503, 529:
		return true
	}
	return false
}

// ShouldRetry is what X-Should-Retry says, a header of the APIs of OpenAI, Anthropic and others
// whose client libraries are made by the same generator (openai-python, `_base_client.py`):
// retry or not, whatever the status. Both are false without a header, or if it says something
// else. If one header says yes and another no, no counts.
func (h *Headers) ShouldRetry() (yes, no bool) { return h.yes && !h.no, h.no }

func (p *pair) wait(date []byte, now time.Time) (time.Duration, bool) {
	if p.remaining.n != 1 || p.reset.n != 1 {
		return 0, false
	}
	if left, rest, ok := parseDecimal(p.remaining.value); !ok || left != 0 || rest {
		return 0, false
	}
	return parseReset(p.reset.value, date, now)
}

// parseDecimal reads digits with or without a fraction, at most 15 before the
// point: the whole part, and whether the rest is more than 0.
func parseDecimal(b []byte) (whole int64, rest, ok bool) {
	b = trimSpace(b)
	i := 0
	for ; i < len(b) && isDigit(b[i]); i++ {
		if i == maxDigits {
			return 0, false, false
		}
		whole = whole*10 + int64(b[i]-'0')
	}
	if i == 0 || i == len(b) {
		return whole, false, i > 0
	}
	if b[i] != '.' || i+1 == len(b) {
		return 0, false, false
	}
	for _, c := range b[i+1:] {
		if !isDigit(c) {
			return 0, false, false
		}
		rest = rest || c != '0'
	}
	return whole, rest, true
}

// equalFold compares b with s, which is in lower case.
func equalFold(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != s[i] {
			return false
		}
	}
	return true
}
