package ratelimit

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// TokenRate is the number of tokens of an upstream that may be used per period. The zero value is
// no limit.
type TokenRate struct {
	Tokens int64         // 1 to 1 000 000 000 000
	Per    time.Duration // a second, a minute or an hour
}

// ParseTokenRate parses a number, a slash and s, m or h: 200000/m.
func ParseTokenRate(text string) (TokenRate, error) {
	number, period, _ := strings.Cut(text, "/")
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil || n < 1 || n > maxLimit {
		return TokenRate{}, fmt.Errorf("%q is not a number from 1 to %d", number, int64(maxLimit))
	}
	for _, p := range rateLimitPeriods {
		if p.name == period {
			return TokenRate{int64(n), p.long}, nil
		}
	}
	return TokenRate{}, fmt.Errorf("%q is none of s, m and h", period)
}

// Limited reports whether there is a limit.
func (r TokenRate) Limited() bool { return r.Tokens > 0 }

// String returns r in the syntax of ParseTokenRate, or "off" if there is no limit.
func (r TokenRate) String() string {
	for _, p := range rateLimitPeriods {
		if r.Limited() && p.long == r.Per {
			return fmt.Sprintf("%d/%s", r.Tokens, p.name)
		}
	}
	return "off"
}

// PerMinute returns the limit as tokens per minute.
func (r TokenRate) PerMinute() float64 {
	if !r.Limited() {
		return 0
	}
	return float64(r.Tokens) * time.Minute.Seconds() / r.Per.Seconds()
}
