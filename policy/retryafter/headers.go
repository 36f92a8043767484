package retryafter

import (
	"bytes"
	"time"
)

// Headers reads what the headers of a failed response say about a retry: whether the upstream wants
// one, and how long to wait. Rows lists the headers that state a wait.
//
// Set Date and Now, call Add for every header, then query it. It keeps slices of the values passed,
// so it must not outlive them. It does not allocate. It is not safe for concurrent use.
//
// Of several orders to wait, the longest counts. Without an order, the longest wait for an
// exhausted rate limit counts, because all of them must be replenished. Orders take precedence
// because they are exact, while many resets are when a limit is replenished in full. The IETF
// drafts require the same.
//
// Unreadable values are ignored. So are a rate limit with a duplicate header, rate limits beyond
// the first maxPairs, and names and values longer than maxName and maxValue.
type Headers struct {
	Date []byte    // value of the response's Date header, or nil
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

// headerLines holds the values of the lines of a list header. If there are too many or too long
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

// all returns the lines, or nothing if there was too much.
func (l *headerLines) all() [][]byte {
	if l.n > len(l.values) || l.bytes > maxList {
		return nil
	}
	return l.values[:l.n]
}

// pair is the remaining count of a rate limit and the time at which it is replenished.
type pair struct {
	row              int
	what             []byte // what the * of the row stands for
	remaining, reset singleHeader
}

// singleHeader is a header that may occur only once: of two, it is unknown which one counts.
type singleHeader struct {
	value []byte
	n     int
}

func (s *singleHeader) add(value []byte) { s.value, s.n = value, s.n+1 }

// mayMatter reports whether a header with this name may be one of rows, or X-Should-Retry. It
// rejects most other names quickly.
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

// lowerName returns name in lower case, in buf. mayMatter must have accepted name, which limits its
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

// Add records a header of the response if it says something about a retry.
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

// addTo records a header of a rate limit.
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

// Asked returns the longest wait that the upstream asked for; false if it asked for none. It is
// never negative.
func (h *Headers) Asked() (time.Duration, bool) { return h.asked, h.hasAsked }

// Renewed returns the time until all exhausted rate limits are replenished; false if none is
// exhausted, or none has a reset. It is never negative, and 0 if they are already replenished.
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
// Renewed applies. GitHub answers 403; 529 is Anthropic's overload.
func MeansRateLimit(status int) bool {
	switch status {
	case 403, 429, 503, 529:
		return true
	}
	return false
}

// ShouldRetry returns the value of X-Should-Retry: retry or not, whatever the status. The APIs of
// OpenAI, Anthropic and others with generated client libraries send it (openai-python,
// `_base_client.py`). Both results are false without the header or for another value. If the values
// conflict, no counts.
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

// parseDecimal parses digits with or without a fraction, at most 15 before the point. It returns
// the whole part and whether the fraction is more than 0.
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
