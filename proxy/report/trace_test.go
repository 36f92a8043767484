package report_test

import (
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/requesttest"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/trace"
)

// traced is reportOf with a tracer.
func traced(t *testing.T, text string, change func(c *settings.Config)) (*reported, *spans) {
	t.Helper()
	kept := &spans{}
	return reportOf(t, text, func(c *settings.Config) {
		c.Tracer = kept
		if change != nil {
			change(c)
		}
	}), kept
}

func TestASpanBeginsWithTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const parent = "00-" + traceID + "-b7ad6b7169203331-01"
		s, kept := traced(t, "PUT /a?secret HTTP/1.1\r\nHost: shop.example\r\nTraceparent: "+parent+"\r\nTracestate: k=v\r\n\r\n", nil)
		if len(kept.requests) != 1 {
			t.Fatalf("%+v", kept.requests)
		}
		r := kept.requests[0]
		if r.Route != "default" || string(r.Method) != "PUT" || string(r.Path) != "/a" || string(r.Authority) != "shop.example" || r.Minor != 1 || r.HTTP2 || r.Scheme != "http" || r.Peer != "127.0.0.1" {
			t.Errorf("%+v", r)
		}
		if string(r.Parent) != parent || string(r.State) != "k=v" || !r.Began.Equal(time.Now()) {
			t.Errorf("%s %s %v", r.Parent, r.State, r.Began)
		}
		time.Sleep(time.Second)
		s.BeginAttempt()
		s.p.Relayed()
		time.Sleep(time.Minute)
		s.p.Done(request.End{Status: 502, Outcome: policy.OutcomeRecovered, Reason: "why"}, 0)
		want := trace.End{At: r.Began.Add(time.Second), Code: 502, Outcome: policy.OutcomeRecovered, Reason: "why", Attempts: 1}
		if len(kept.ends) != 1 || !kept.ends[0].At.Equal(want.At) {
			t.Fatalf("%+v", kept.ends)
		}
		if got := kept.ends[0]; got.Code != want.Code || got.Outcome != want.Outcome || got.Reason != want.Reason || got.Attempts != want.Attempts {
			t.Errorf("%+v", got)
		}
	})
}

// The observer hears of a trace that can be found, after the end of the request.
func TestWhichTracesTheObserverHearsOf(t *testing.T) {
	for _, recorded := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s, kept := traced(t, requesttest.Get, nil)
			kept.notRecorded = !recorded
			time.Sleep(time.Second)
			s.p.Done(request.End{Status: 200, Outcome: policy.OutcomeSuccess}, 0)
			want := []string{"began", "done GET 200 success 1s 0s 0"}
			if recorded {
				want = append(want, "traced "+traceID+" 200 1s")
			}
			s.wantObserved(want...)
			if len(kept.ends) != 1 {
				t.Errorf("%d ends", len(kept.ends))
			}
		})
	}
}

// Of the spans of a request nothing is left for the next, which may have no tracer.
func TestTheNextRequestHasItsOwnSpan(t *testing.T) {
	s, kept := traced(t, requesttest.Get, nil)
	s.p.Trace.Why, s.p.Trace.Wait = policy.ReasonReset, time.Second
	s.p.Done(request.End{Status: 200, Outcome: policy.OutcomeSuccess}, 0)
	s.Settings.Tracer = nil
	s.next(requesttest.Get)
	s.attempt(0, responded(200), policy.ClassNone)
	s.p.Done(request.End{Status: 200, Outcome: policy.OutcomeSuccess}, 0)
	if len(kept.requests) != 1 || len(kept.attempts) != 0 || len(kept.ends) != 1 || s.p.Trace.Why != policy.ReasonNone || s.p.Trace.Wait != 0 {
		t.Errorf("%+v, left %v %v", kept, s.p.Trace.Why, s.p.Trace.Wait)
	}
	if strings.Contains(strings.Join(s.observed[3:], " "), "traced") {
		t.Errorf("%q", s.observed)
	}
}

func TestASpanOfEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, kept := traced(t, requesttest.Get, nil)
		s.attempt(time.Second, responded(503), policy.Unknown)
		s.p.Trace.Why, s.p.Trace.Wait = policy.ReasonStatus503, 2*time.Second
		s.attempt(time.Second, failed(policy.CauseReset), policy.Unknown)
		hedge := s.sent(true)
		s.ClientLeft()
		res := responded(200)
		s.p.AttemptDone(hedge, &res, policy.Overtaken)
		began := s.Process.Clock.At(s.Time.Began)
		for i, want := range []trace.Attempt{
			{Began: began, Resend: 0, Host: "upstream.example", Scheme: "http"},
			{Began: began.Add(time.Second), Resend: 1, Why: policy.ReasonStatus503, Wait: 2 * time.Second, Host: "upstream.example", Scheme: "http"},
			{Began: began.Add(2 * time.Second), Resend: 2, Hedge: true, Host: "upstream.example", Scheme: "http"},
		} {
			if got := kept.attempts[i]; got != want {
				t.Errorf("attempt %d: %+v, want %+v", i+1, got, want)
			}
		}
		for i, want := range []trace.AttemptEnd{
			{At: began.Add(time.Second), Status: 503, Class: policy.Unknown, Peer: "10.0.0.1:80"},
			{At: began.Add(2 * time.Second), Cause: policy.CauseReset, Class: policy.Unknown, Peer: "10.0.0.1:80"},
			{At: began.Add(2 * time.Second), Status: 200, Class: policy.Overtaken, Left: true, Peer: "10.0.0.1:80"},
		} {
			if got := kept.done[i]; got != want {
				t.Errorf("end %d: %+v, want %+v", i+1, got, want)
			}
		}
		if len(kept.attempts) != 3 || len(kept.done) != 3 {
			t.Errorf("%d and %d", len(kept.attempts), len(kept.done))
		}
	})
}

// The span of an attempt ends once, however often somebody ends it.
func TestTheSpanOfAnAttemptEndsOnce(t *testing.T) {
	s, kept := traced(t, requesttest.Get, nil)
	a := s.sent(false)
	res := responded(200)
	s.p.EndSpan(a, &res, policy.ClassNone)
	s.p.EndSpan(a, &res, policy.ClassNone)
	s.p.RecordFallback(a, &res, policy.ClassNone)
	if len(kept.done) != 1 {
		t.Errorf("%d ends", len(kept.done))
	}
}

// A span says where the attempt goes: to a fallback, over TLS, and to which host if there is only one.
func TestWhereAnAttemptGoes(t *testing.T) {
	s, kept := traced(t, requesttest.Get, func(c *settings.Config) {
		spare := c.Default.Upstream
		spare.Address, spare.Host, spare.TLS = "spare.example:443", "spare.example", &tls.Config{ServerName: "spare.example"}
		c.Default.Fallbacks = []settings.Fallback{{Upstream: spare}}
		other := c.Default.Upstream
		other.Address, other.Host = "other.example:80", "other.example"
		c.Default.Upstream.MoreTargets = append(c.Default.Upstream.MoreTargets, other)
	})
	s.p.Trace.Why, s.p.Trace.Wait = policy.ReasonReset, time.Second
	s.sent(false)
	s.Dest = s.Route.FallbackRoutes[0]
	s.sent(false)
	own, fallback := kept.attempts[0], kept.attempts[1]
	if own.Host != "" || own.Scheme != "http" || own.Fallback || own.Why != policy.ReasonReset || own.Wait != time.Second {
		t.Errorf("%+v", own)
	}
	if fallback.Host != "spare.example" || fallback.Scheme != "https" || !fallback.Fallback || fallback.Why != policy.ReasonNone || fallback.Wait != 0 {
		t.Errorf("%+v", fallback)
	}
}

// Without a tracer there is nothing to do.
func TestNothingIsTracedWithoutATracer(t *testing.T) {
	s := reportOf(t, requesttest.Get, nil)
	if a := s.sent(false); spanOf(a) != nil {
		t.Error("an attempt has a span")
	}
	s.p.Waited("reset", s.Time.Now())
	s.p.Done(request.End{Status: 200, Outcome: policy.OutcomeSuccess}, 0)
	if slices.ContainsFunc(s.observed, func(o string) bool { return strings.HasPrefix(o, "traced") }) {
		t.Errorf("%q", s.observed)
	}
}
