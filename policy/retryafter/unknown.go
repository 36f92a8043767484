package retryafter

import (
	"bytes"
	"time"
)

// The rule for headers that rows does not have. They count only if nothing else states a wait.

// Those are waits by their name, and rate limits as two headers whose names have the same words apart from
// those about what is left and when it is reset.

// unknownRow is the row of a pair that has one of these headers: what is its name, and remaining or reset
// its value.
const unknownRow = -1

// telling are the texts of which a name must contain one.
var telling = [...][]byte{[]byte("retry"), []byte("reset"), []byte("remaining"), []byte("backoff"), []byte("wait"), []byte("cooldown")}

// addUnknown records a header that is no order in rows.
func (h *Headers) addUnknown(name, value []byte) {
	if len(name) > maxName || len(value) > maxValue || !tells(name) {
		return
	}
	w := readHeaderName(name)
	switch {
	case w.counts:
	case w.left || w.reset:
		if h.n < maxPairs {
			p := &h.pairs[h.n]
			*p = pair{row: unknownRow, what: name}
			if w.left {
				p.remaining.add(value)
			} else {
				p.reset.add(value)
			}
			h.n++
		}
	case w.IsWait():
		if d, ok := parseLoosely(value, w.Unit, h.Date, h.Now); ok {
			h.guessed, h.hasGuessed = max(h.guessed, d), true
		}
	}
}

// readHeaderName is like ReadName, for a name whose case means nothing.
func readHeaderName(name []byte) Name {
	var b [maxName]byte
	return ReadName(lowered(b[:0], name))
}

// lowered appends name to b in lower case.
func lowered(b, name []byte) []byte {
	for _, c := range name {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		b = append(b, c)
	}
	return b
}

func tells(name []byte) bool {
	for i := range name {
		for _, text := range telling {
			if name[i]|0x20 == text[0] && i+len(text) <= len(name) && equalName(name[i:i+len(text)], text) {
				return true
			}
		}
	}
	return false
}

// unknownWait returns the longest wait that these headers state.
func (h *Headers) unknownWait() (longest time.Duration, told bool) {
	longest, told = h.guessed, h.hasGuessed
	for i := range h.pairs[:h.n] {
		p := &h.pairs[i]
		if p.row != unknownRow || p.reset.n == 0 || !h.isSpent(p.what) || h.isPaired(p.what) {
			continue
		}
		if d, ok := parseLoosely(p.reset.value, readHeaderName(p.what).Unit, h.Date, h.Now); ok {
			longest, told = max(longest, d), true
		}
	}
	return longest, told
}

// isSpent reports whether nothing is left of the rate limit that the header of that name resets.
func (h *Headers) isSpent(reset []byte) bool {
	for i := range h.pairs[:h.n] {
		p := &h.pairs[i]
		if p.row != unknownRow || p.remaining.n == 0 {
			continue
		}
		left, ok := parseNumber(tidy(p.remaining.value))
		if ok && left == (decimal{}) && haveOneSubject(p.what, reset) {
			return true
		}
	}
	return false
}

// isPaired reports whether a row reads the reset of that name together with what is left.
func (h *Headers) isPaired(name []byte) bool {
	for i := range h.pairs[:h.n] {
		p := &h.pairs[i]
		if p.row == unknownRow || p.reset.n == 0 || p.remaining.n == 0 {
			continue
		}
		if what, ok := patterns[p.row].header.match(name); ok && bytes.EqualFold(what, p.what) {
			return true
		}
	}
	return false
}

// haveOneSubject reports whether two names have the same words in the same order, apart from those about
// what is left and when it is reset.
func haveOneSubject(a, b []byte) bool {
	var lowerA, lowerB [maxName]byte
	a, b = lowered(lowerA[:0], a), lowered(lowerB[:0], b)
	for {
		var x, y []byte
		x, a = nextSubject(a)
		y, b = nextSubject(b)
		if len(x) != len(y) || !equalName(x, y) {
			return false
		}
		if len(x) == 0 {
			return true
		}
	}
}

// nextSubject cuts off the next word that is about the subject of a name; nil if there is none.
func nextSubject(name []byte) (word, rest []byte) {
	for len(name) > 0 {
		n := wordLength(name)
		w := Name{}
		w.add(name[:n])
		word, name = name[:n], name[n:]
		if w.other || w.counts || len(word) == 1 && word[0]|0x20 == 'x' {
			return word, name
		}
	}
	return nil, nil
}

// parseLoosely is like parseOrder, but words may precede the wait: "in 30 seconds".
func parseLoosely(value []byte, unit time.Duration, date []byte, now time.Time) (time.Duration, bool) {
	if d, ok := parseOrder(value, unit, date, now); ok {
		return d, true
	}
	at := bytes.IndexAny(value, "0123456789")
	if at <= 0 || bytes.IndexByte(value[:at], '-') >= 0 {
		return 0, false
	}
	return parseOrder(bytes.TrimRight(value[at:], " .)]'"), unit, date, now)
}
