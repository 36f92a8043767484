package request_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// after returns how long after the request began an instant is; -1 for none.
func after(t *request.Time, at clock.Instant) time.Duration {
	if at.IsZero() {
		return -1
	}
	return at.Sub(t.Began)
}

func withFallback(t *testing.T) func(c *settings.Config) {
	return func(c *settings.Config) {
		spare, err := upstream.ParseTarget("http://spare.example")
		if err != nil {
			t.Fatal(err)
		}
		c.Default.Fallbacks = []settings.Fallback{{Upstream: spare}}
	}
}

// The request timeout runs from the request being sent whole, the client's from its headers.
func TestWhenARequestMustHaveItsResponse(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		lines    []string
		change   func(c *settings.Config)
		sent     time.Duration // when the request was sent whole
		deadline time.Duration // of all attempts; -1: none
		leaves   time.Duration
		respond  time.Duration // of an attempt that may take 60 s
	}{
		"the route's":                  {nil, nil, 5 * s, 35 * s, -1, 65 * s},
		"none":                         {nil, func(c *settings.Config) { c.Default.RequestTimeout = 0 }, 5 * s, -1, -1, 65 * s},
		"the client's is shorter":      {[]string{"X-Request-Timeout: 8"}, nil, 5 * s, 8 * s, 8 * s, 8 * s},
		"the client's is longer":       {[]string{"X-Request-Timeout: 90"}, nil, 5 * s, 35 * s, 90 * s, 65 * s},
		"the client's alone":           {[]string{"X-Request-Timeout: 90"}, func(c *settings.Config) { c.Default.RequestTimeout = 0 }, 5 * s, 90 * s, 90 * s, 65 * s},
		"a share is for the fallback":  {nil, withFallback(t), 5 * s, 32 * s, -1, 65 * s},
		"of the client's time too":     {[]string{"X-Request-Timeout: 10"}, withFallback(t), 5 * s, 9 * s, 10 * s, 10 * s},
		"Envoy's":                      {[]string{"X-Envoy-Expected-Rq-Timeout-Ms: 8000"}, nil, 5 * s, 8 * s, 8 * s, 8 * s},
		"a gRPC call has only its own": {[]string{"Content-Type: application/grpc", "Grpc-Timeout: 80S"}, nil, 5 * s, 80 * s, 80 * s, 65 * s},
		"a gRPC call may have none":    {[]string{"Content-Type: application/grpc"}, nil, 5 * s, -1, -1, 65 * s},
		"a deadline that is none":      {[]string{"X-Request-Timeout: soon"}, nil, 5 * s, 35 * s, -1, 65 * s},
	} {
		t.Run(name, bubble(func(t *testing.T) {
			c := begin(t, message("PUT", "/a", append(tc.lines, "Content-Length: 5")...), tc.change)
			time.Sleep(tc.sent)
			c.Time.StartClock(c.Time.Now())
			time.Sleep(time.Second)
			c.Time.StartClock(c.Time.Now()) // a retry is no new beginning
			if got := after(&c.Time, c.Time.Deadline); got != tc.deadline {
				t.Errorf("deadline %v, want %v", got, tc.deadline)
			}
			if got := after(&c.Time, c.Time.ClientLeavesAt); got != tc.leaves {
				t.Errorf("the client leaves at %v, want %v", got, tc.leaves)
			}
			if got := after(&c.Time, c.Time.RespondBy(time.Minute)); got != tc.respond {
				t.Errorf("the response must come at %v, want %v", got, tc.respond)
			}
			if got := after(&c.Time, c.Time.RespondBy(0)); got != tc.leaves {
				t.Errorf("without a limit at %v, want %v", got, tc.leaves)
			}
		}))
	}
}

// A request without a body is sent whole at once.
func TestTheTimeOfARequestWithoutABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, get(), nil)
		time.Sleep(5 * time.Second)
		c.Time.StartClock(c.Time.Now())
		if got := after(&c.Time, c.Time.Deadline); got != 30*time.Second {
			t.Errorf("deadline %v", got)
		}
		upload := begin(t, message("PUT", "/a", "Content-Length: 5"), nil)
		if !upload.Time.Deadline.IsZero() || after(&upload.Time, upload.Time.RespondBy(time.Minute)) != -1 {
			t.Error("the clock of an upload runs before it is sent")
		}
	})
}

func TestHowLongARequestMayWait(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		text   string
		change func(c *settings.Config)
		at     time.Duration // when it is asked
		want   time.Duration
	}{
		"the rest of its time":        {get(), nil, 10 * s, 20 * s},
		"the rest of the client's":    {get("X-Request-Timeout: 12"), nil, 10 * s, 2 * s},
		"nothing":                     {get("X-Request-Timeout: 8"), nil, 10 * s, -2 * s},
		"without a deadline":          {get(), func(c *settings.Config) { c.Default.RequestTimeout = 0 }, 10 * s, 10 * time.Minute},
		"a deadline that is far":      {get(), func(c *settings.Config) { c.Default.RequestTimeout = time.Hour }, 10 * s, 10 * time.Minute},
		"its body is not read yet":    {message("PUT", "/a", "Content-Length: 5"), nil, 10 * s, 20 * s},
		"the same, without a timeout": {message("PUT", "/a", "Content-Length: 5"), func(c *settings.Config) { c.Default.RequestTimeout = 0 }, 10 * s, 10 * time.Minute},
	} {
		t.Run(name, bubble(func(t *testing.T) {
			c := begin(t, tc.text, tc.change)
			time.Sleep(tc.at)
			if got := c.Time.MaxWait(c.Time.Now()); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		}))
	}
}

// A gRPC call may be a stream, which has no time of ours.
func TestTheTimeoutsOfAGRPCCall(t *testing.T) {
	c := begin(t, get(), nil)
	if c.Time.AttemptTimeout() != 10*time.Second || c.Time.BodyIdle() != 10*time.Second || c.Time.IdleOrForever() != 10*time.Second || c.Time.RequestTimeout() != 30*time.Second {
		t.Error("not those of the route")
	}
	c.GRPC = true
	if c.Time.AttemptTimeout() != 0 || c.Time.BodyIdle() != 0 || c.Time.IdleOrForever() < 24*time.Hour {
		t.Error("a stream is cut off")
	}
	call := begin(t, get("Content-Type: application/grpc"), nil)
	if call.Time.RequestTimeout() != 0 {
		t.Error("a call has the timeout of a request")
	}
}

// An upstream is not to blame for the deadlines of its clients.
func TestWhoEndedAnAttempt(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		lines  []string
		change func(c *settings.Config)
		at     time.Duration
		want   breaker.EndKind
	}{
		"we":                         {nil, nil, time.Hour, breaker.TimedOut},
		"we, before the client":      {[]string{"X-Request-Timeout: 5"}, nil, 5*s - 1, breaker.TimedOut},
		"the client":                 {[]string{"X-Request-Timeout: 5"}, nil, 5 * s, breaker.Abandoned},
		"the share for the fallback": {[]string{"X-Request-Timeout: 5"}, withFallback(t), 4500 * time.Millisecond, breaker.Abandoned},
		"before that":                {[]string{"X-Request-Timeout: 5"}, withFallback(t), 4499 * time.Millisecond, breaker.TimedOut},
	} {
		t.Run(name, bubble(func(t *testing.T) {
			c := begin(t, get(tc.lines...), tc.change)
			time.Sleep(tc.at)
			if got := c.Time.TimeoutEndKind(); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		}))
	}
}

// Of a fallback, the client's time is what is left of it, but for what later ones get.
func TestTheTimeOfAFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, get("X-Request-Timeout: 10"), func(c *settings.Config) {
			withFallback(t)(c)
			c.Default.Fallbacks = append(c.Default.Fallbacks, c.Default.Fallbacks[0])
			c.Default.Fallbacks[1].Upstream.Address = "later.example:80"
		})
		if got := after(&c.Time, c.Time.Deadline); got != 8*time.Second {
			t.Errorf("of the route %v", got)
		}
		for i, want := range []time.Duration{9 * time.Second, 10 * time.Second} {
			c.Dest = c.Route.FallbackRoutes[i]
			if got := after(&c.Time, c.Time.RespondBy(time.Hour)); got != want {
				t.Errorf("of fallback %d: %v, want %v", i, got, want)
			}
		}
	})
}

func TestABadDeadlineIsCounted(t *testing.T) {
	var bad []forward.DeadlineHeader
	text := get("X-Request-Timeout: soon", "X-Envoy-Expected-Rq-Timeout-Ms: 1s", "Grpc-Timeout: 1S")
	begin(t, text, func(c *settings.Config) { c.BadDeadline = func(f forward.DeadlineHeader) { bad = append(bad, f) } })
	if !slices.Equal(bad, []forward.DeadlineHeader{forward.DeadlineRequest, forward.DeadlineEnvoy}) {
		t.Error(bad)
	}
	begin(t, text, nil) // nobody has to count
}

// A tick is kept for the steps that follow; a look at the clock is not.
func TestATickIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, get(), nil)
		time.Sleep(time.Second)
		if c.Time.Now(); after(&c.Time, c.Time.Clock) != 0 {
			t.Error("a look was kept")
		}
		if got := c.Time.Tick(); after(&c.Time, got) != time.Second || c.Time.Clock != got {
			t.Error("a tick was not kept")
		}
	})
}
