package request_test

import (
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/internal/requesttest"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/trace"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// headersOf returns what the n-th attempt of the request sends, but for the Host of its endpoint. The span
// may be nil.
func headersOf(c *requesttest.Client, n int, span trace.AttemptSpan) string {
	var a attempt.Attempt
	a.Begin(n, c.Time.Clock, span, attempt.Options{})
	return string(c.Out.For(&a, wire.Lines, "of the endpoint", false).Fields)
}

// lines returns the lines of some of the headers, in their order.
func lines(headers string, names ...string) (got []string) {
	for line := range strings.Lines(headers) {
		for _, name := range names {
			if strings.HasPrefix(strings.ToLower(line), strings.ToLower(name)+": ") {
				got = append(got, strings.ToLower(strings.TrimSpace(line)))
			}
		}
	}
	return got
}

func wantLines(t *testing.T, headers string, names string, want ...string) {
	t.Helper()
	if got := strings.Join(lines(headers, strings.Fields(names)...), " | "); got != strings.Join(want, " | ") {
		t.Errorf("%s, want %s", got, strings.Join(want, " | "))
	}
	if !strings.HasSuffix(headers, "\r\n\r\n") || strings.Count(headers, "\r\n\r\n") != 1 {
		t.Errorf("%q does not end once", headers)
	}
}

// Each attempt says which it is, after those of the proxies before us.
func TestEachAttemptHasItsNumber(t *testing.T) {
	c := begin(t, get(), nil)
	wantLines(t, headersOf(c, 1, nil), "X-Retryproxy-Attempt", "x-retryproxy-attempt: 1")
	wantLines(t, headersOf(c, 3, nil), "X-Retryproxy-Attempt", "x-retryproxy-attempt: 3")
	second := begin(t, get("X-Retryproxy-Attempt: 5"), nil)
	wantLines(t, headersOf(second, 2, nil), "X-Retryproxy-Attempt", "x-retryproxy-attempt: 6")
}

// An upstream hears how much is left of the time that the client gave.
func TestEachAttemptHasTheTimeThatIsLeft(t *testing.T) {
	t.Run("", bubble(func(t *testing.T) {
		c := begin(t, get("X-Request-Timeout: 10"), nil)
		wantLines(t, headersOf(c, 1, nil), "X-Request-Timeout", "x-request-timeout: 10")
		time.Sleep(4 * time.Second)
		wantLines(t, headersOf(c, 2, nil), "X-Request-Timeout", "x-request-timeout: 6")
		wantLines(t, headersOf(begin(t, get(), nil), 1, nil), "X-Request-Timeout")
		longer := begin(t, message("PUT", "/a", "X-Request-Timeout: 90", "Content-Length: 3"), nil)
		wantLines(t, headersOf(longer, 1, nil), "X-Request-Timeout", "x-request-timeout: 30") // the route gives no more
	}))
}

// A server of gRPC counts attempts before this one.
func TestAGRPCCallSaysHowOftenItWasTried(t *testing.T) {
	call := begin(t, get("Content-Type: application/grpc"), nil)
	wantLines(t, headersOf(call, 1, nil), "Grpc-Previous-Rpc-Attempts")
	wantLines(t, headersOf(call, 3, nil), "Grpc-Previous-Rpc-Attempts", "grpc-previous-rpc-attempts: 2")
	retry := begin(t, get("Content-Type: application/grpc", "Grpc-Previous-Rpc-Attempts: 4"), nil)
	wantLines(t, headersOf(retry, 2, nil), "Grpc-Previous-Rpc-Attempts", "grpc-previous-rpc-attempts: 5")
	wantLines(t, headersOf(begin(t, get(), nil), 3, nil), "Grpc-Previous-Rpc-Attempts")
}

// span has a context for the upstream.
type span struct {
	parent, state string
	ok            bool
}

func (s span) Context() (parent, state string, ok bool) { return s.parent, s.state, s.ok }
func (span) Done(*trace.AttemptEnd)                     {}

// The upstream gets the trace of the attempt, or if that has none the client's.
func TestTheTraceOfAnAttempt(t *testing.T) {
	const its, state = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "k=v"
	c := begin(t, get("Traceparent: "+its, "Tracestate: "+state), func(c *settings.Config) { c.Default.Forward.OmitTrace = true })
	for name, tc := range map[string]struct {
		span trace.AttemptSpan
		want []string
	}{
		"none":               {nil, nil},
		"its own":            {span{"p", "s=1", true}, []string{"traceparent: p", "tracestate: s=1"}},
		"without a state":    {span{"p", "", true}, []string{"traceparent: p"}},
		"the client's again": {span{"p", "s=1", false}, []string{"traceparent: " + its, "tracestate: " + state}},
	} {
		t.Run(name, func(t *testing.T) { wantLines(t, headersOf(c, 1, tc.span), "traceparent tracestate", tc.want...) })
	}
}

// The Host of endpoints with different ones is that of the endpoint, which is not known yet.
func TestWhichRequestsLackTheirHost(t *testing.T) {
	for _, varies := range []bool{true, false} {
		c := begin(t, get(), func(c *settings.Config) {
			c.Default.Forward = forward.Settings{Host: forward.HostRule{Mode: forward.HostUpstream}, UpstreamHost: "one.example", HostVaries: varies}
		})
		var want []string
		if want = []string{"host: of the endpoint"}; !varies {
			want = []string{"host: one.example"}
		}
		wantLines(t, headersOf(c, 1, nil), "host", want...)
		if c.Out.LacksHost != varies {
			t.Errorf("lacks its host: %v", c.Out.LacksHost)
		}
	}
}
