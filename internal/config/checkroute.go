package config

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/internal/strategy"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
)

// useless lists settings that another one makes useless.
var useless = []struct {
	keys    string // separated by spaces
	when    func(r *Route) bool
	because string // the other setting
	why     string // follows its value in the message
}{
	{"RETRY_ON RETRY_REJECTED RETRY_METHODS FATAL_ERROR_CODES BACKOFF", func(r *Route) bool { return r.MaxRetries == 0 },
		"MAX_RETRIES", "turns retries off"},
	{"RETRY_METHODS", func(r *Route) bool { return r.retriesNothing() && r.MaxRetries > 0 },
		"RETRY_ON", "retries nothing"},
	{"BUDGET_MIN_PER_SECOND BUDGET_BURST", func(r *Route) bool { return r.BudgetRatio.Off() },
		"BUDGET_RATIO", "sets no budget"},
	{"HEDGE_AFTER", func(r *Route) bool { return !r.HedgeAfter.Off() && r.MaxRetries == 0 },
		"MAX_RETRIES", "allows no second attempt"},
	{"HEDGE_AFTER FALLBACK", func(r *Route) bool { return r.DryRun && (!r.HedgeAfter.Off() || len(r.Fallback.list) > 0) },
		"DRY_RUN", "sends every request once"},
	{"HEDGE_AFTER", func(r *Route) bool { return isBound(r.AttemptTimeout.Value(), r.HedgeAfter.Fixed) },
		"ATTEMPT_TIMEOUT", "ends the wait before"},
	{"HEDGE_AFTER", func(r *Route) bool { return isBound(r.RequestTimeout, r.HedgeAfter.Fixed) },
		"REQUEST_TIMEOUT", "ends the wait before"},
	{"QUEUE_TIMEOUT", func(r *Route) bool { return r.Breaker != "queue" },
		"BREAKER", "queues no request for an upstream that is down"},
	{"QUEUE_TIMEOUT", func(r *Route) bool { return r.Breaker == "queue" && isBound(r.RequestTimeout, r.QueueTimeout) },
		"REQUEST_TIMEOUT", "ends the request earlier"},
	{"BREAKER_ON BREAKER_AFTER BREAKER_BACKOFF", func(r *Route) bool { return r.Breaker == "off" },
		"BREAKER", "turns the circuit breaker off"},
	{"RATE_LIMIT_PAUSE_MAX", func(r *Route) bool { return r.RateLimitPauseKey.None() && !r.RateLimit.Auto },
		"RATE_LIMIT_PAUSE_KEY", "shares no pause"},
	{"RATE_LIMIT_WAIT", func(r *Route) bool { return !r.isRateLimited() },
		"RATE_LIMIT", "limits nothing"},
	{"RATE_LIMIT_WAIT", func(r *Route) bool { return r.isRateLimited() && isBound(r.RequestTimeout, r.RateLimitWait) },
		"REQUEST_TIMEOUT", "ends the request earlier"},
	{"RATE_LIMIT_KEY", func(r *Route) bool { return !r.isRateLimited() && !r.RateLimitKey.None() },
		"RATE_LIMIT", "limits nothing"},
	{"BALANCE", func(r *Route) bool { return r.hasOneAddress() && r.Balance != leastRequests },
		"UPSTREAM", "is one address"},
	{"HEALTH_PATH", func(r *Route) bool { return r.hasOneAddress() && r.HealthPath != "" && r.Breaker == "off" },
		"BREAKER", "needs no health checks of an upstream with one address"},
}

func (r *Route) retriesNothing() bool { return r.RetryOn.String() == "none" }
func (r *Route) isRateLimited() bool  { return r.RateLimit.Limited() || r.TokenLimit.Limited() }
func (r *Route) hasOneAddress() bool  { return r.Upstream.Set() && r.Upstream.target.OneAddress() }

// isBound reports whether a wait can never pass, since limit, if there is one, ends it.
func isBound(limit, wait time.Duration) bool { return limit > 0 && wait >= limit }

// useless warns about settings that have no effect. A global one may be meant for any route.
func (c *checker) useless() {
	for _, u := range useless {
		if !c.all(u.when) {
			continue
		}
		for key := range strings.FieldsSeq(u.keys) {
			if c.own(key) {
				c.warnf(key, c.text(key), "has no effect: %s=%s %s", c.name(u.because), c.text(u.because), u.why)
			}
		}
	}
	for _, option := range []string{"base", "max"} {
		key := "BACKOFF_" + strings.ToUpper(option)
		if c.own(key) && c.all(func(r *Route) bool { return !strategy.Uses(r.Backoff.name, option) }) {
			c.warnf(key, c.text(key), "has no effect: %s=%s has no option %s", c.name("BACKOFF"), c.r.Backoff, option)
		}
	}
}

// all reports whether is returns true for the route and, if it is the default one, for all others.
func (c *checker) all(is func(r *Route) bool) bool {
	if c.r != &c.s.Default {
		return is(c.r)
	}
	return !slices.ContainsFunc(c.s.All(), func(r *Route) bool { return !is(r) })
}

// text returns the value of a setting of the route.
func (c *checker) text(key string) string {
	return text(reflect.ValueOf(&c.r.Shared).Elem().FieldByIndex(routeKeys()[key].index))
}

// tls checks that certificate files come only with https, and a key only with its certificate.
func (c *checker) tls() {
	r := c.r
	if r.UpstreamKey != "" && r.UpstreamCert == "" && c.own("UPSTREAM_KEY") {
		c.errorf("UPSTREAM_KEY", r.UpstreamKey, "has no effect without %s", c.name("UPSTREAM_CERT"))
	}
	if !r.Upstream.Set() || r.Upstream.TLS() {
		return
	}
	for _, key := range []string{"UPSTREAM_CA", "UPSTREAM_CERT", "UPSTREAM_KEY"} {
		if file := c.text(key); file != "" && c.own(key) {
			c.errorf(key, file, "has no effect on the upstream %s, which is not https", r.Upstream)
		}
	}
}

// times checks for timeouts that conflict. It only considers those that a variable set.
func (c *checker) times() {
	r := c.r
	if c.set("ATTEMPT_TIMEOUT") && isBound(r.RequestTimeout, r.AttemptTimeout.Value()) {
		c.errorf("ATTEMPT_TIMEOUT", DurationText(r.AttemptTimeout.Value()),
			"must be less than %s=%s, otherwise no attempt can time out before the request does", c.name("REQUEST_TIMEOUT"), DurationText(r.RequestTimeout))
	}
	if r.RequestTimeout == 0 && r.AttemptTimeout.Value() == 0 {
		c.warnf("REQUEST_TIMEOUT", "0s", "with %s=%s too, a request never ends if its upstream does not respond", c.name("ATTEMPT_TIMEOUT"), r.AttemptTimeout)
	}
}

// backoff compares the first waits with each other and with the longest one. The strategy checks
// the rest.
func (c *checker) backoff() {
	r, before := c.r, len(*c.problems)
	for _, twice := range []struct {
		key    string
		option time.Duration
	}{{"BACKOFF_BASE", r.Backoff.options.Base}, {"BACKOFF_MAX", r.Backoff.options.Max}} {
		if twice.option > 0 && c.own(twice.key) && c.own("BACKOFF") {
			c.errorf(twice.key, c.text(twice.key), "is in %s=%s too; remove one of them", c.name("BACKOFF"), r.Backoff)
		}
	}
	for _, first := range []struct {
		key  string
		wait time.Duration
	}{{"BACKOFF_BASE", r.BackoffBase}, {"BACKOFF_THROTTLED_BASE", r.BackoffThrottledBase}} {
		if c.set(first.key) && c.set("BACKOFF_MAX") && first.wait > r.BackoffMax {
			c.errorf(first.key, DurationText(first.wait), "is longer than %s=%s", c.name("BACKOFF_MAX"), DurationText(r.BackoffMax))
		}
	}
	if len(*c.problems) > before {
		return
	}
	// This is also worth a warning if only one route makes a global setting useless.
	if c.set("BACKOFF_THROTTLED_BASE") && r.BackoffThrottledBase < r.BackoffBase {
		c.warnf("BACKOFF_THROTTLED_BASE", DurationText(r.BackoffThrottledBase), "has no effect: %s=%s is longer", c.name("BACKOFF_BASE"), DurationText(r.BackoffBase))
	}
	usual, _, err := r.Backoffs()
	if err != nil {
		c.errorf("BACKOFF", r.Backoff.String(), "%s", oneLine(err))
		return
	}
	c.room(usual)
	c.jitter(usual)
}

// jitter warns if base and cap leave no jitter to a strategy that has some: clients that failed together
// would come back together.
func (c *checker) jitter(b backoff.Strategy) {
	usual, err := backoff.New(c.r.Backoff.name, backoff.Options{})
	if err == nil && c.r.MaxRetries > 0 && backoff.Spreads(usual) && !backoff.Spreads(b) {
		c.warnf("BACKOFF_BASE", DurationText(c.r.BackoffBase), "leaves no jitter below %s=%s; all clients that failed together retry together", c.name("BACKOFF_MAX"), DurationText(c.r.BackoffMax))
	}
}

// room warns if the longest waits alone exceed the request timeout: then the last retries
// are hardly ever made.
func (c *checker) room(b backoff.Strategy) {
	r := c.r
	if r.RequestTimeout == 0 || r.MaxRetries == 0 {
		return
	}
	rows := policy.Plan(b, r.MaxRetries, policy.PlanOptions{Samples: 1})
	if longest := rows[len(rows)-1].Total.Max; longest > r.RequestTimeout {
		c.warnf("REQUEST_TIMEOUT", DurationText(r.RequestTimeout), "the waits before %d retries can add up to %s; retries that do not fit are not made", r.MaxRetries, DurationText(longest.Round(time.Millisecond)))
	}
}

// manyRetries is the number of retries above which a missing budget is worth a warning. It is the
// default, which is used to test retries with the budget off.
const manyRetries = 3

// retries checks for retries that may do harm, or that are never made.
func (c *checker) retries() {
	r := c.r
	if unsafe := unsafeMethods(r.RetryMethods); unsafe != "" && c.set("RETRY_METHODS") {
		c.warnf("RETRY_METHODS", r.RetryMethods.String(), "retries %s after it was sent, with or without an Idempotency-Key", unsafe)
	}
	if c.own("RETRY_ON") && r.RetryOn.Code(200) {
		c.warnf("RETRY_ON", c.text("RETRY_ON"), "retries good responses too, such as 200")
	}
	for _, status := range r.RetryOn.NoFailures(r.RetryRejected) {
		if c.set("RETRY_REJECTED") && r.MaxRetries > 0 {
			c.warnf("RETRY_REJECTED", r.RetryRejected.String(), "has no effect on %s: %s does not list it", status, c.name("RETRY_ON"))
		}
	}
	if c.own("BUDGET_RATIO") && r.BudgetRatio.Off() && r.MaxRetries > manyRetries {
		c.warnf("BUDGET_RATIO", "off", "lets an upstream that fails get up to %d times its requests (%s=%d)", r.MaxRetries+1, c.name("MAX_RETRIES"), r.MaxRetries)
	}
	if c.own("HEDGE_AFTER") && !r.HedgeAfter.Off() && r.BudgetRatio.Off() {
		c.warnf("HEDGE_AFTER", c.text("HEDGE_AFTER"), "with %s=off nothing bounds the load that hedging adds when the upstream becomes slow", c.name("BUDGET_RATIO"))
	}
}

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
		c.errorf("RETRY_BUFFER_BYTES", r.RetryBufferBytes.String(), "is more than %sRETRY_BUFFER_TOTAL_BYTES=%s, which is for all requests together", Prefix, total)
	}
}
