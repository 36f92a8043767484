package retryafter

import (
	"bytes"
	"time"
)

// Headers reads what the headers of a failed response say about a retry: whether the upstream wants
// one, and how long to wait. Rows lists the headers that state a wait.
//
// Call Begin, then Add for every header, then query it. It keeps slices of the values passed,
// so it must not outlive them. It is not safe for concurrent use.
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

	structured structuredHeaders
	pairs      [maxPairs]pair
	n          int

	guessed    time.Duration // the longest wait in a header that no row has
	hasGuessed bool
}

// Begin begins with the headers of another response, which has that Date or nil. now is the local time.
func (h *Headers) Begin(date []byte, now time.Time) {
	*h = Headers{} // in place; a literal with both fields would be built on the stack and copied
	h.Date, h.Now = date, now
}

const (
	maxPairs = 16
	maxName  = 64   // bytes of a name
	maxValue = 80   // bytes of the value of a single header; dates have about 30, those of JavaScript up to 76
	maxList  = 1024 // bytes of all lines of a list header together
)

// pair is the remaining count of a rate limit and the time at which it is replenished.
type pair struct {
	row              int    // or unknownRow
	what             []byte // what the * of the row stands for
	remaining, reset singleHeader
}

// singleHeader is a header that may occur only once: of two, it is unknown which one counts.
type singleHeader struct {
	value []byte
	n     int
}

func (s *singleHeader) add(value []byte) { s.value, s.n = value, s.n+1 }

// addOnce is like add, but an equal value again changes nothing: it is the work of a middlebox.
func (s *singleHeader) addOnce(value []byte) {
	if s.n != 1 || !bytes.Equal(trimSpace(s.value), trimSpace(value)) {
		s.add(value)
	}
}

// mayMatter rejects most names that are in no row, quickly.
func mayMatter(name []byte) bool {
	if len(name) < len("RateLimit") || len(name) > maxName {
		return false
	}
	switch name[0] | 0x20 {
	case 'r', 'a', 'x':
		return true
	}
	return false
}

// Add records a header of the response if it says something about a retry.
func (h *Headers) Add(name, value []byte) {
	if len(name) > len(forwarded) && equalName(name[:len(forwarded)], forwarded) {
		name = name[len(forwarded):]
	}
	if !mayMatter(name) && !ordersRetry(name) || !h.addRows(name, value) {
		h.addUnknown(name, value)
	}
}

// addRows records a header that is in rows. It reports whether it is an order to wait.
func (h *Headers) addRows(name, value []byte) (ordered bool) {
	for i := range rows {
		p := &patterns[i]
		if rows[i].Form == FormStructured {
			h.structured.add(name, value)
			continue
		}
		if rows[i].Order() {
			if _, ok := p.header.match(name); ok && !ordered { // the first row is the most specific
				h.addOrder(rows[i].Form, value)
				ordered = true
			}
			continue
		}
		if what, ok := p.header.match(name); ok {
			h.addTo(i, what, value, true)
		}
		if what, ok := p.left.match(name); ok {
			h.addTo(i, what, value, false)
		}
	}
	if _, ok := shouldRetry.match(name); ok {
		h.yes = h.yes || bytes.EqualFold(trimSpace(value), []byte("true"))
		h.no = h.no || bytes.EqualFold(trimSpace(value), []byte("false"))
	}
	return ordered
}

var shouldRetry = newPattern("X-Should-Retry")

// forwarded is the prefix that LiteLLM puts before the headers of the upstream ("Response Headers").
var forwarded = []byte("llm-provider-")

// ordersRetry reports whether name contains Retry-After, for which mayMatter does not look at every
// prefix.
func ordersRetry(name []byte) bool {
	if len(name) > maxName {
		return false
	}
	for i := 0; i+len(retryAfterName) <= len(name); i++ {
		if equalName(name[i:i+len(retryAfterName)], retryAfterName) {
			return true
		}
	}
	return false
}

var retryAfterName = []byte("Retry-After")

func (h *Headers) addOrder(f Form, value []byte) {
	if len(value) > maxValue {
		return
	}
	unit := time.Second
	if f == FormMilliseconds {
		unit = time.Millisecond
	}
	if d, ok := parseLoosely(value, unit, h.Date, h.Now); ok {
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
		if i = h.room(); i < 0 {
			return
		}
		h.pairs[i] = pair{row: row, what: what}
	}
	if reset {
		h.pairs[i].reset.addOnce(value)
	} else {
		h.pairs[i].remaining.addOnce(value)
	}
}

// room returns the index of a new pair. If there is none left, it takes that of a header that no row has;
// -1 if there is none either.
func (h *Headers) room() int {
	if h.n < maxPairs {
		h.n++
		return h.n - 1
	}
	for i := range h.pairs {
		if h.pairs[i].row == unknownRow {
			return i
		}
	}
	return -1
}

// Asked returns the longest wait that the upstream asked for; false if it asked for none. It is
// never negative.
func (h *Headers) Asked() (time.Duration, bool) { return h.asked, h.hasAsked }

// Renewed returns the time until all exhausted rate limits are replenished; false if none is
// exhausted, or none has a reset. It is never negative, and 0 if they are already replenished. Without
// one in the form of a row, it returns the wait of a header that no row has, see addUnknown.
func (h *Headers) Renewed() (time.Duration, bool) {
	longest, told := h.structured.wait()
	for i := range h.pairs[:h.n] {
		if d, ok := h.pairs[i].wait(h.Date, h.Now); ok {
			longest, told = max(longest, d), true
		}
	}
	if !told {
		return h.unknownWait()
	}
	return longest, told
}

// LimitsRate reports whether the response says that a rate limit refused the request: it asks for a
// wait, or 0 is left of a rate limit, whether or not a header says when that is replenished.
func (h *Headers) LimitsRate() bool {
	if h.hasAsked || h.structured.isExhausted() {
		return true
	}
	for i := range h.pairs[:h.n] {
		if h.pairs[i].isExhausted() {
			return true
		}
	}
	return false
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
	if p.reset.n != 1 || !p.isExhausted() {
		return 0, false
	}
	value := tidy(p.reset.value)
	if n, ok := parseNumber(value); ok && len(value) <= maxValue {
		return n.reset(date, now)
	}
	return ParseReset(p.reset.value, time.Second, date, now)
}

// isExhausted reports whether nothing is left of the rate limit.
func (p *pair) isExhausted() bool {
	if p.row == unknownRow {
		return false
	}
	value := tidy(p.remaining.value)
	if spent := rows[p.row].Spent; spent != "" {
		return p.remaining.n == 1 && bytes.EqualFold(value, []byte(spent))
	}
	left, ok := parseNumber(value)
	return p.remaining.n == 1 && ok && left == (decimal{})
}
