package config

import (
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/internal/strategy"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
)

// tls checks that certificate files come only with https.
func (c *checker) tls() {
	r := c.r
	if !r.Upstream.Set() || r.Upstream.TLS() {
		return
	}
	for _, file := range []struct{ key, name string }{{"UPSTREAM_CA", r.UpstreamCA}, {"UPSTREAM_CERT", r.UpstreamCert}} {
		if file.name != "" && c.own(file.key) {
			c.errorf(file.key, file.name, "has no effect on the upstream %s, which is not https", r.Upstream)
		}
	}
}

// breaker checks for breaker settings without a breaker.
func (c *checker) breaker() {
	if r := c.r; r.Breaker != "queue" && c.own("QUEUE_TIMEOUT") {
		c.warnf("QUEUE_TIMEOUT", DurationText(r.QueueTimeout), "has no effect: with %s=%s no request waits for an upstream that is down", c.name("BREAKER"), r.Breaker)
	}
	if r := c.r; r.Breaker == "queue" && c.own("QUEUE_TIMEOUT") && r.RequestTimeout > 0 && r.QueueTimeout >= r.RequestTimeout {
		c.warnf("QUEUE_TIMEOUT", DurationText(r.QueueTimeout), "has no effect: %s=%s ends the request earlier", c.name("REQUEST_TIMEOUT"), DurationText(r.RequestTimeout))
	}
}

// times checks for timeouts that conflict. It only considers those that a variable set.
func (c *checker) times() {
	r := c.r
	if c.set("ATTEMPT_TIMEOUT") && r.RequestTimeout > 0 && r.AttemptTimeout.Value() >= r.RequestTimeout {
		c.errorf("ATTEMPT_TIMEOUT", DurationText(r.AttemptTimeout.Value()),
			"must be less than %s=%s, otherwise no attempt can time out and be retried", c.name("REQUEST_TIMEOUT"), DurationText(r.RequestTimeout))
	}
	if text, _ := r.AttemptTimeout.MarshalText(); r.RequestTimeout == 0 && r.AttemptTimeout.Value() == 0 {
		c.warnf("REQUEST_TIMEOUT", "0s", "with %s=%s a request never ends if its upstream does not respond", c.name("ATTEMPT_TIMEOUT"), text)
	}
}

// backoff checks that a first wait is not above the longest one. The strategy checks the
// rest.
func (c *checker) backoff() {
	r, before := c.r, len(*c.problems)
	for key, base := range map[string]time.Duration{"BACKOFF_BASE": r.BackoffBase, "BACKOFF_THROTTLED_BASE": r.BackoffThrottledBase} {
		if c.set(key) && c.set("BACKOFF_MAX") && base > r.BackoffMax {
			c.errorf(key, DurationText(base), "is longer than %s=%s", c.name("BACKOFF_MAX"), DurationText(r.BackoffMax))
		}
	}
	if len(*c.problems) > before {
		return
	}
	if c.set("BACKOFF_THROTTLED_BASE") && r.BackoffThrottledBase < r.BackoffBase {
		c.warnf("BACKOFF_THROTTLED_BASE", DurationText(r.BackoffThrottledBase), "has no effect: %s=%s is longer", c.name("BACKOFF_BASE"), DurationText(r.BackoffBase))
	}
	c.unused()
	usual, _, err := r.Backoffs()
	if err != nil {
		c.errorf("BACKOFF", r.Backoff, "%s", oneLine(err))
		return
	}
	c.room(usual)
}

// backoffKey returns the setting of an option of package strategy.
func backoffKey(option string) string { return "BACKOFF_" + strings.ToUpper(option) }

// backoffKeys returns the settings that the waits depend on.
func backoffKeys() []string {
	keys := []string{"BACKOFF"}
	for _, option := range strategy.Keys() {
		keys = append(keys, backoffKey(option))
	}
	return keys
}

// unused warns about options that the route's strategy does not use. A global one may be
// meant for any route.
func (c *checker) unused() {
	for _, option := range strategy.Ignored(c.r.Backoff, c.r.backoffOptions()) {
		if key := backoffKey(option); c.own(key) && (c.r != &c.s.Default || !c.s.anyUses(option)) {
			c.warnf(key, "", "has no effect: %s=%s does not use it; %s does", c.name("BACKOFF"), c.r.Backoff, strings.Join(strategy.Users(option), ", "))
		}
	}
}

// anyUses reports whether some route's strategy uses the option.
func (s *Settings) anyUses(option string) bool {
	for i := range s.Routes {
		if strategy.Uses(s.Routes[i].Backoff, option) {
			return true
		}
	}
	return false
}

// room warns if the longest waits alone exceed the request timeout: then the last retries
// are hardly ever made.
func (c *checker) room(b backoff.Strategy) {
	r := c.r
	if r.RequestTimeout == 0 || r.MaxRetries == 0 || !c.any("REQUEST_TIMEOUT", "MAX_RETRIES") && !c.any(backoffKeys()...) {
		return
	}
	rows := policy.Plan(b, r.MaxRetries, policy.PlanOptions{Samples: 1})
	if longest := rows[len(rows)-1].Total.Max; longest > r.RequestTimeout {
		c.warnf("REQUEST_TIMEOUT", DurationText(r.RequestTimeout), "the waits before %d retries can add up to %s; retries that do not fit are not made", r.MaxRetries, DurationText(longest.Round(time.Millisecond)))
	}
}

// retries checks for settings that have no effect or conflict.
func (c *checker) retries() {
	r := c.r
	if r.BudgetRatio.Off() {
		for _, key := range []string{"BUDGET_MIN_PER_SECOND", "BUDGET_BURST"} {
			if c.own(key) {
				c.warnf(key, "", "has no effect: %s=off sets no budget", c.name("BUDGET_RATIO"))
			}
		}
	}
	if c.set("RETRY_METHODS") {
		if unsafe := unsafeMethods(r.RetryMethods); unsafe != "" {
			c.warnf("RETRY_METHODS", r.RetryMethods.String(), "retries %s after it was sent, with or without an Idempotency-Key", unsafe)
		}
	}
	for _, status := range r.RetryOn.RetryOn.NoFailures(r.RetryRejected.Set) {
		if c.set("RETRY_REJECTED") && r.MaxRetries > 0 {
			c.warnf("RETRY_REJECTED", r.RetryRejected.String(), "has no effect on %s: %s does not list it", status, c.name("RETRY_ON"))
		}
	}
	if c.own("BUDGET_RATIO") && r.BudgetRatio.Off() && r.MaxRetries > manyRetries {
		c.warnf("BUDGET_RATIO", "off", "lets an upstream that fails get up to %d times its requests (%s=%d)", r.MaxRetries+1, c.name("MAX_RETRIES"), r.MaxRetries)
	}
	if on := r.RetryOn.RetryOn; c.own("RETRY_METHODS") && on.String() == "none" && r.MaxRetries > 0 {
		c.warnf("RETRY_METHODS", r.RetryMethods.String(), "has no effect: with %s=none nothing is retried", c.name("RETRY_ON"))
	}
	if r.MaxRetries == 0 {
		for _, key := range []string{"RETRY_ON", "RETRY_REJECTED", "RETRY_METHODS", "FATAL_ERROR_CODES", "BACKOFF"} {
			if c.own(key) {
				c.warnf(key, "", "has no effect: %s=0 turns retries off", c.name("MAX_RETRIES"))
			}
		}
	}
}

// manyRetries is the number of retries above which a missing budget is worth a warning. It is the
// default, which is used to test retries with the budget off.
const manyRetries = 3

// unsafeMethods returns those methods of the set that are not idempotent by RFC 9110
// section 9.2.2 and RFC 5789 section 2.
func unsafeMethods(set RetryMethods) string {
	var unsafe []string
	for _, m := range []string{"POST", "PATCH"} {
		if set.Has([]byte(m)) {
			unsafe = append(unsafe, m)
		}
	}
	return strings.Join(unsafe, " and ")
}

// memory checks that the memory of one request is not above that of the process.
func (c *checker) memory() {
	r, total := c.r, c.s.RetryBufferTotalBytes
	if c.set("RETRY_BUFFER_BYTES") && r.RetryBufferBytes > total {
		c.errorf("RETRY_BUFFER_BYTES", sizeText(r.RetryBufferBytes), "is more than %sRETRY_BUFFER_TOTAL_BYTES=%s, which is for all requests together", Prefix, sizeText(total))
	}
}

func sizeText(s Size) string {
	b, _ := s.MarshalText() // never fails
	return string(b)
}
