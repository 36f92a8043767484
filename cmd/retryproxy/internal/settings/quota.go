package settings

import (
	"errors"

	"github.com/retryproxy/retryproxy/policy"
)

// QuotaRate is a policy.QuotaRate.
type QuotaRate struct{ policy.QuotaRate }

// UnmarshalText reads what policy.ParseQuota reads, or off.
func (q *QuotaRate) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		*q = QuotaRate{}
		return nil
	}
	rate, err := policy.ParseQuota(string(text))
	q.QuotaRate = rate
	return err
}

// MarshalText is the inverse of UnmarshalText.
func (q QuotaRate) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// QuotaKey is which requests have a quota together: one of the words upstream
// and route, or a field.
type QuotaKey struct{ text string }

// Upstream and Route report the two words.
func (k QuotaKey) Upstream() bool { return k.text == "upstream" }

// Route reports that the route has a quota of its own.
func (k QuotaKey) Route() bool { return k.text == "route" }

// Header is the name of the field each value of which has a quota of its own,
// "" when none was given.
func (k QuotaKey) Header() string { return keyHeader(k.text) }

// UnmarshalText reads "upstream", "route" or "header:Name".
func (k *QuotaKey) UnmarshalText(text []byte) error {
	read := QuotaKey{string(text)}
	if !read.Upstream() && !read.Route() && !isToken(read.Header()) {
		return errors.New("neither of the words, and no field's name")
	}
	*k = read
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (k QuotaKey) MarshalText() ([]byte, error) { return []byte(k.text), nil }

// quota: a wait for what there is none of, or whose it is.
func (c *checker) quota() {
	if c.r.Quota.Limited() || c.r == &c.s.Default && c.s.anyQuota() {
		return
	}
	if c.own("QUOTA_WAIT") {
		c.warnf("QUOTA_WAIT", DurationText(c.r.QuotaWait), "has no effect with %s=off", c.name("QUOTA"))
	}
	if c.own("QUOTA_KEY") && !c.r.QuotaKey.Upstream() {
		c.warnf("QUOTA_KEY", c.r.QuotaKey.text, "has no effect with %s=off", c.name("QUOTA"))
	}
}

// anyQuota reports that some route has one.
func (s *Settings) anyQuota() bool {
	for i := range s.Routes {
		if s.Routes[i].Quota.Limited() {
			return true
		}
	}
	return false
}
