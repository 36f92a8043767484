package settings

import "github.com/retryproxy/retryproxy/policy"

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
// and route, or a field, without which requests have one together.
type QuotaKey struct{ sharing }

// Upstream reports that it is all requests to the upstream.
func (k QuotaKey) Upstream() bool { return k.text == "upstream" }

// UnmarshalText reads "upstream", "route" or "header:Name".
func (k *QuotaKey) UnmarshalText(text []byte) error { return k.read(text, "upstream") }

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
