package retryafter

import (
	"bytes"
	"time"

	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// LimitRow is a rate limit that an upstream describes in the headers of all responses, including
// successful ones.
type LimitRow struct {
	Limit, Remaining, Reset string // names of headers; Limit and Reset are "" if Remaining includes them
	Kind                    ratelimit.Kind
	Model                   ratelimit.Model // the meaning of Reset
	Source                  string
}

// limitRows are the rate limits that are learned. Resets are parsed as in Headers, but their
// meaning differs: for OpenAI and Anthropic the bucket is full again, for the others a window ends.
var limitRows = [...]LimitRow{
	{"X-RateLimit-Limit-Requests", "X-RateLimit-Remaining-Requests", "X-RateLimit-Reset-Requests", ratelimit.Requests, ratelimit.Refilling,
		"OpenAI, \"Rate limits\" (\"time until the rate limit resets to its initial state\"), Groq"},
	{"X-RateLimit-Limit-Tokens", "X-RateLimit-Remaining-Tokens", "X-RateLimit-Reset-Tokens", ratelimit.Tokens, ratelimit.Refilling,
		"OpenAI, \"Rate limits\", Groq"},
	{"Anthropic-RateLimit-Requests-Limit", "Anthropic-RateLimit-Requests-Remaining", "Anthropic-RateLimit-Requests-Reset", ratelimit.Requests, ratelimit.Refilling,
		"Anthropic, \"Rate limits\" (\"when the rate limit will be fully replenished\")"},
	{"Anthropic-RateLimit-Tokens-Limit", "Anthropic-RateLimit-Tokens-Remaining", "Anthropic-RateLimit-Tokens-Reset", ratelimit.Tokens, ratelimit.Refilling,
		"Anthropic, \"Rate limits\""},
	{"Anthropic-RateLimit-Input-Tokens-Limit", "Anthropic-RateLimit-Input-Tokens-Remaining", "Anthropic-RateLimit-Input-Tokens-Reset", ratelimit.InputTokens, ratelimit.Refilling,
		"Anthropic, \"Rate limits\""},
	{"Anthropic-RateLimit-Output-Tokens-Limit", "Anthropic-RateLimit-Output-Tokens-Remaining", "Anthropic-RateLimit-Output-Tokens-Reset", ratelimit.OutputTokens, ratelimit.Refilling,
		"Anthropic, \"Rate limits\""},
	{"X-RateLimit-Limit-Requests-Day", "X-RateLimit-Remaining-Requests-Day", "X-RateLimit-Reset-Requests-Day", ratelimit.Requests, ratelimit.Windowed,
		"Cerebras, \"Rate limits\" (the time until the day's requests are renewed)"},
	{"X-RateLimit-Limit-Tokens-Minute", "X-RateLimit-Remaining-Tokens-Minute", "X-RateLimit-Reset-Tokens-Minute", ratelimit.Tokens, ratelimit.Windowed,
		"Cerebras, \"Rate limits\" (the time until the minute's tokens are renewed)"},
	{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", ratelimit.Requests, ratelimit.Windowed,
		"GitHub, \"Rate limits for the REST API\" (\"time at which the current rate limit window resets\")"},
	{"X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", ratelimit.Requests, ratelimit.Windowed,
		"X, formerly Twitter, \"Rate limits\" (windows of 15 minutes)"},
	{"X-RateLimit-Requests-Limit", "X-RateLimit-Requests-Remaining", "X-RateLimit-Requests-Reset", ratelimit.Requests, ratelimit.Windowed,
		"Linear, \"Rate limiting\""},
	{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", ratelimit.Requests, ratelimit.Windowed,
		"draft-ietf-httpapi-ratelimit-headers-00 to -06 (\"the current time window\")"},
	{"", "RateLimit", "", ratelimit.Requests, ratelimit.Windowed,
		"draft-ietf-httpapi-ratelimit-headers-07 to -10: `r` and `t`, with `q` of RateLimit-Policy"},
}

// LimitRows returns the rate limits that are learned. The slice belongs to the caller.
func LimitRows() []LimitRow { return append([]LimitRow(nil), limitRows[:]...) }

// NumLimits is the number of LimitRows.
const NumLimits = len(limitRows)

// structuredRow is the row of RateLimit.
const structuredRow = len(limitRows) - 1

const (
	partLimit = iota
	partRemaining
	partReset
	parts
)

// limitNames are the headers of limitRows.
var limitNames = func() (all [structuredRow][parts]pattern) {
	for i := range all {
		r := &limitRows[i]
		all[i] = [parts]pattern{newPattern(r.Limit), newPattern(r.Remaining), newPattern(r.Reset)}
	}
	return all
}()

// Limits reads what the headers of a response say about rate limits, exhausted or not.
//
// Set Date and Now, call Add for every header, then Each. It keeps slices of the values passed, so
// it must not outlive them. It is not safe for concurrent use. Unreadable values and rate limits
// with a duplicate header are ignored.
type Limits struct {
	Date []byte    // value of the response's Date header, or nil
	Now  time.Time // the local time, for a response without Date

	values     [structuredRow][parts]singleHeader
	structured structuredHeaders
	Any        bool // at least one such header was present
}

// Add records a header of the response if it says something about a rate limit.
func (l *Limits) Add(name, value []byte) {
	if !mayMatter(name) {
		return
	}
	if l.structured.add(name, value) {
		l.Any = true
		return
	}
	for i := range limitNames {
		for part := range limitNames[i] {
			if _, ok := limitNames[i][part].match(name); ok {
				l.values[i][part].add(value)
				l.Any = true
			}
		}
	}
}

// Each returns the i-th rate limit, for i in [0, len(LimitRows())). ok is false if the response
// says nothing about it.
func (l *Limits) Each(i int) (r ratelimit.Reading, ok bool) {
	row := &limitRows[i]
	r = ratelimit.Reading{Row: uint8(i), Kind: row.Kind, Model: row.Model}
	if i == structuredRow {
		return l.leastLeft(r)
	}
	v := &l.values[i]
	if v[partLimit].n != 1 || v[partRemaining].n != 1 || v[partReset].n != 1 {
		return r, false
	}
	limit, ok1 := limitNumber(v[partLimit].value)
	remaining, ok2 := limitNumber(v[partRemaining].value)
	reset, ok3 := parseReset(v[partReset].value, l.Date, l.Now)
	r.Limit, r.Remaining, r.Reset = limit, min(remaining, limit), reset
	return r, ok1 && ok2 && ok3 && limit > 0
}

// limitNumber parses a number of requests or tokens. Text after a comma or semicolon is for humans
// (draft-ietf-httpapi-ratelimit-headers-03 section 3.1).
func limitNumber(b []byte) (float64, bool) {
	if end := bytes.IndexAny(b, ",;"); end >= 0 {
		b = b[:end]
	}
	if len(b) > maxValue {
		return 0, false
	}
	n, ok := parseNumber(trimSpace(b))
	return float64(n.whole), ok
}

// leastLeft reads RateLimit. Of several rate limits it returns the one with the least left. A reset
// of 0 means that all is left.
func (l *Limits) leastLeft(r ratelimit.Reading) (ratelimit.Reading, bool) {
	found := false
	ok := l.structured.each(func(m rateLimitItem) {
		limit, remaining := float64(m.q), float64(min(m.r, m.q))
		if m.t == 0 {
			remaining = limit
		}
		if m.q <= 0 || m.r < 0 || m.t < 0 || found && remaining*r.Limit >= r.Remaining*limit {
			return
		}
		found = true
		r.Limit, r.Remaining, r.Reset = limit, remaining, decimal{whole: m.t}.times(time.Second)
	})
	return r, ok && found
}
