package policy

import "time"

// RateLimitHeaders reads what a response says about rate limits, for a 429 or 503 that
// has no Retry-After: when a rate limit is used up, the time until it is renewed is
// what a Retry-After would have said. A count above 0 left says nothing about
// the failure and is not looked at.
//
// The zero value is ready: Add every field of the head, then ask Wait. It keeps
// slices of the values given, so it must not outlive them. It does not
// allocate. Not safe for concurrent use.
//
// Four families are known, and the first of them that tells a wait counts:
//
//   - RateLimit and RateLimit-Policy as structured fields (RFC 9651), of
//     draft-ietf-httpapi-ratelimit-headers-08 to -10: r=0 with t, or, where t
//     is left out, with the window w of the policy of that name;
//   - RateLimit as draft -07 has it: limit=10, remaining=0, reset=7;
//   - RateLimit-Remaining and RateLimit-Reset of the drafts before;
//   - X-RateLimit-Remaining and -Reset, also spelt X-Rate-Limit-.
//
// Of several rate limits in one field the longest wait of those used up counts: all
// of them have to be renewed.
type RateLimitHeaders struct {
	current headerLines // RateLimit
	rules   headerLines // RateLimit-Policy
	old, x  remainder
}

// headerLines are the values of the lines of a list field. More lines than there is
// room for make the field unreadable.
type headerLines struct {
	values [4][]byte
	n      int
}

func (l *headerLines) add(value []byte) {
	if l.n < len(l.values) {
		l.values[l.n] = value
	}
	l.n++
}

// all is empty when there were too many.
func (l *headerLines) all() [][]byte {
	if l.n > len(l.values) {
		return nil
	}
	return l.values[:l.n]
}

// remainder is the pair of a count left and the time at which it is renewed.
type remainder struct{ remaining, reset singleHeader }

// singleHeader is a field that may be there once: of two, nobody knows which counts.
type singleHeader struct {
	value []byte
	n     int
}

func (s *singleHeader) add(value []byte) { s.value, s.n = value, s.n+1 }

// Add notes a field of the response when it is about rate limits.
func (q *RateLimitHeaders) Add(name, value []byte) {
	bare, isX := name, false
	for _, prefix := range [...]string{"x-ratelimit", "x-rate-limit"} {
		if len(name) > len(prefix) && equalFold(name[:len(prefix)], prefix) {
			bare, isX = name[len(prefix):], true
		}
	}
	const prefix = "ratelimit"
	if !isX {
		if len(name) < len(prefix) || !equalFold(name[:len(prefix)], prefix) {
			return
		}
		bare = name[len(prefix):]
	}
	pair := &q.old
	if isX {
		pair = &q.x
	}
	switch {
	case equalFold(bare, "-remaining"):
		pair.remaining.add(value)
	case equalFold(bare, "-reset"):
		pair.reset.add(value)
	case isX:
	case len(bare) == 0:
		q.current.add(value)
	case equalFold(bare, "-policy"):
		q.rules.add(value)
	}
}

// Wait is the time until the rate limit that is used up is renewed. No when no
// rate limit is used up, or none that says so until when; 0 when it was renewed
// already. date is the value of the response's Date field and now the local
// time; see ParseRetryAfter.
func (q *RateLimitHeaders) Wait(date []byte, now time.Time) (time.Duration, bool) {
	if d, ok := q.structured(); ok {
		return d, true
	}
	if d, ok := q.old.wait(date, now); ok {
		return d, true
	}
	return q.x.wait(date, now)
}

func (p *remainder) wait(date []byte, now time.Time) (time.Duration, bool) {
	if p.remaining.n != 1 || p.reset.n != 1 {
		return 0, false
	}
	if left, rest, ok := parseDecimal(p.remaining.value); !ok || left != 0 || rest {
		return 0, false
	}
	return parseReset(p.reset.value, date, now)
}

// A reset is either seconds from now or a moment in seconds since 1970, and
// nothing says which: GitHub, GitLab (as RateLimit-Reset) and Pexels send the
// moment, Reddit and the IETF's drafts the seconds from now. The size tells:
// epochFrom was in September 2001, and as seconds from now it would be 31
// years. From epochEnd on (the year 5138) it is no moment in seconds either,
// but most likely one in milliseconds, which nothing says: it is not read.
const (
	epochFrom = 1_000_000_000
	epochEnd  = 100_000_000_000
)

// parseReset reads the value of a reset field. A fraction is rounded up.
func parseReset(value, date []byte, now time.Time) (time.Duration, bool) {
	n, rest, ok := parseDecimal(value)
	if rest {
		n++
	}
	switch {
	case !ok || n >= epochEnd:
		return 0, false
	case n < epochFrom:
		return secondsToDuration(n), true
	}
	if sent, ok := parseDate(trimSpace(date), now); ok {
		return secondsToDuration(n - sent), true
	}
	return max(time.Unix(n, 0).Sub(now), 0), true
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
