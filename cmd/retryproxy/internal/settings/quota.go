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

// quota: a wait for what there is none of.
func (c *checker) quota() {
	if c.own("QUOTA_WAIT") && !c.r.Quota.Limited() && (c.r != &c.s.Default || !c.s.anyQuota()) {
		c.warnf("QUOTA_WAIT", DurationText(c.r.QuotaWait), "has no effect with %s=off", c.name("QUOTA"))
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
