package ratelimit

import (
	"fmt"
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
	n, per, err := parsePer(text, maxLimit)
	return TokenRate{n, per}, err
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
