package config

import "github.com/retryproxy/retryproxy/policy/hedge"

// HedgeAfter is the setting for a hedge.After.
type HedgeAfter struct{ hedge.After }

// UnmarshalText parses text with hedge.Parse.
func (h *HedgeAfter) UnmarshalText(text []byte) error {
	after, err := hedge.Parse(string(text))
	h.After = after
	return err
}

// MarshalText is the inverse of UnmarshalText.
func (h HedgeAfter) MarshalText() ([]byte, error) {
	if fixed := h.Fixed; fixed > 0 {
		return []byte(DurationText(fixed)), nil
	}
	return []byte(h.String()), nil
}

// hedge warns about a hedge that is never sent, or without a limit on its load.
func (c *checker) hedge() {
	r := c.r
	if r.HedgeAfter.Off() || !c.own("HEDGE_AFTER") {
		return
	}
	after, fixed := r.HedgeAfter.String(), r.HedgeAfter.Fixed
	switch {
	case r.MaxRetries == 0:
		c.warnf("HEDGE_AFTER", after, "has no effect: %s=0 allows no second attempt", c.name("MAX_RETRIES"))
	case r.AttemptTimeout.Value() > 0 && fixed >= r.AttemptTimeout.Value():
		c.warnf("HEDGE_AFTER", after, "has no effect: %s=%s ends the wait before", c.name("ATTEMPT_TIMEOUT"), DurationText(r.AttemptTimeout.Value()))
	case r.RequestTimeout > 0 && fixed >= r.RequestTimeout:
		c.warnf("HEDGE_AFTER", after, "has no effect: %s=%s ends the wait before", c.name("REQUEST_TIMEOUT"), DurationText(r.RequestTimeout))
	case r.BudgetRatio.Off():
		c.warnf("HEDGE_AFTER", after, "with %s=off nothing bounds the load that hedging adds when the upstream becomes slow", c.name("BUDGET_RATIO"))
	}
}
