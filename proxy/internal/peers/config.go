package peers

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/hedge"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/policy/status"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// UsualRetryOn is the default of RETRYPROXY_RETRY_ON.
const UsualRetryOn = "5xx,429,connect-failure,reset,attempt-timeout"

// NewConfig is a configuration like the defaults, with short waits.
func NewConfig(t testing.TB, upstreamURL string, seen *Recorder) *settings.Config {
	t.Helper()
	target, err := upstream.ParseTarget(upstreamURL)
	if err != nil {
		t.Fatal(err)
	}
	on, err := policy.ParseRetryOn(UsualRetryOn)
	if err != nil {
		t.Fatal(err)
	}
	backoff, err := backoff.New("fixed", backoff.Options{Base: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return &settings.Config{
		Listen: []string{"127.0.0.1:0"},
		Default: settings.Route{
			Name:                "default",
			Upstream:            target,
			Forward:             forward.Settings{Host: forward.HostRule{Mode: forward.HostPreserve}},
			Policy:              policy.Policy{RetryOn: on, MaxRetries: 3, Backoff: backoff},
			NoBudget:            true,
			RequestTimeout:      30 * time.Second,
			AttemptTimeout:      10 * time.Second,
			BodyIdleTimeout:     10 * time.Second,
			RetryBufferBytes:    1 << 20,
			ResponseBufferBytes: 64 << 10,
			Guard:               breaker.Options{NoBreaker: true, ConcurrencyLimit: breaker.ConcurrencyLimitOff}, // tests of the queue switch them on
			QueueTimeout:        20 * time.Second,
			QueueMax:            4096,
		},
		Limits:                http1.Limits{HeaderBytes: 64 << 10, Headers: 100},
		ReadHeaderTimeout:     5 * time.Second,
		ClientIdleTimeout:     30 * time.Second,
		WriteTimeout:          10 * time.Second,
		TunnelIdleTimeout:     10 * time.Second,
		RetryBufferTotalBytes: 64 << 20,
		DrainTimeout:          5 * time.Second,
		Observe:               Always(seen),
	}
}

// AddNothingToResponses switches off what the proxy adds to responses, for tests that compare
// every byte.
func AddNothingToResponses(c *settings.Config) {
	c.Default.ResponseChanges = forward.NewHeaderChanges(nil, []string{"X-Retryproxy-Attempts", "X-Retryproxy-Reason", "X-Retryproxy-Fallback", "X-Request-Id", "X-Should-Retry", "Date"})
}

// WithBreaker switches breaker and adaptive limit on, as they are by default.
func WithBreaker(c *settings.Config) { c.Default.Guard = breaker.Options{} }

// HoldsStreams is a route in front of the API of a language model.
func HoldsStreams(t *testing.T, c *settings.Config) {
	RetriesRejected("429,503,529")(t, c)
	c.Default.FirstContentTimeout = time.Minute
}

// RetriesRejected sets the statuses by which the upstream says that it did not do the work.
func RetriesRejected(list string) func(*testing.T, *settings.Config) {
	return func(t *testing.T, c *settings.Config) {
		set, err := status.ParseRejected(list)
		if err != nil {
			t.Fatal(err)
		}
		c.Default.Policy.Rejected = set
	}
}

// MiB is a mebibyte.
const MiB = 1 << 20

// HedgeAfter parses a value of RETRYPROXY_HEDGE_AFTER.
func HedgeAfter(t testing.TB, s string) hedge.After {
	t.Helper()
	h, err := hedge.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Hedged is a route whose requests get a hedge after 20 ms.
func Hedged(t testing.TB) func(c *settings.Config) {
	return func(c *settings.Config) { c.Default.HedgeAfter = HedgeAfter(t, "20ms") }
}

// ResolveTo has the upstream's name stand for the addresses that the test sets.
func ResolveTo(c *settings.Config, ips ...string) {
	var all []netip.Addr
	for _, ip := range ips {
		all = append(all, netip.MustParseAddr(ip))
	}
	c.Default.Upstream.Resolve = func(context.Context, string) ([]netip.Addr, error) { return all, nil }
}

// ReadyPath is a path for probes.
const ReadyPath = "/ready?full=1"

// HedgedOnce is Hedged without a time limit that a slow machine could meet.
func HedgedOnce(t testing.TB) func(c *settings.Config) {
	return func(c *settings.Config) {
		Hedged(t)(c)
		c.Default.AttemptTimeout, c.Default.RequestTimeout = 0, 0
	}
}

// Rationed gives the default route a rate limit.
func Rationed(rate string, wait time.Duration) func(c *settings.Config) {
	return func(c *settings.Config) {
		r, err := ratelimit.ParseRate(rate)
		if err != nil {
			panic(err)
		}
		c.Default.RateLimit = admission.RateLimit{Rate: r, Wait: wait}
	}
}

// SharedPause switches rate-limit pauses on: "route", or the name of a field.
func SharedPause(key string) func(c *settings.Config) {
	return func(c *settings.Config) {
		c.Default.RateLimitPause = settings.RateLimitPause{SharedBy: admission.Sharing{Header: key}, Max: time.Minute}
		if key == "route" {
			c.Default.RateLimitPause = settings.RateLimitPause{SharedBy: admission.Sharing{Route: true}, Max: time.Minute}
		}
	}
}

// FixedWait is a backoff of d before every retry.
func FixedWait(t testing.TB, d time.Duration) backoff.Strategy {
	t.Helper()
	b, err := backoff.New("fixed", backoff.Options{Base: d})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
