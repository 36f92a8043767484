package report_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/requesttest"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

const ms = time.Millisecond

// bubble runs a test whose time is not that of the machine.
func bubble(test func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

func TestTheObserverHearsOfEachAttemptAndOfOneEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reportOf(t, requesttest.Get, nil)
		if !s.p.IsOpen() {
			t.Error("it has not begun")
		}
		s.attempt(100*ms, responded(503), policy.Unknown)
		time.Sleep(time.Second)
		s.attempt(200*ms, failed(policy.CauseReset), policy.Unknown)
		time.Sleep(time.Second)
		s.attempt(300*ms, responded(200), policy.ClassNone)
		time.Sleep(50 * ms)
		s.p.Done(request.End{Status: 200, Outcome: policy.OutcomeRecovered}, 7)
		s.wantObserved("began", "attempt unknown 503 100ms", "attempt unknown 0 200ms", "attempt ok 200 300ms",
			"done GET 200 recovered 2.65s 2.5s 3") // 2.5 s from the end of the first attempt to that of the last
		if s.p.IsOpen() {
			t.Error("it has not ended")
		}
	})
}

// What failed attempts added is nothing if none failed: a hedge that came first is no failure.
func TestTimeIsAddedByFailuresOnly(t *testing.T) {
	for name, tc := range map[string]struct {
		class policy.Class
		want  string
	}{
		"a failure":      {policy.NotSent, "done GET 200 success 300ms 200ms 2"},
		"rejected":       {policy.Rejected, "done GET 200 success 300ms 200ms 2"},
		"unknown":        {policy.Unknown, "done GET 200 success 300ms 200ms 2"},
		"overtaken":      {policy.Overtaken, "done GET 200 success 300ms 0s 2"},
		"no failure yet": {policy.ClassNone, "done GET 200 success 300ms 0s 2"},
	} {
		t.Run(name, bubble(func(t *testing.T) {
			s := reportOf(t, requesttest.Get, nil)
			s.attempt(100*ms, failed(policy.CauseReset), tc.class)
			s.attempt(200*ms, responded(200), policy.ClassNone)
			s.observed = nil
			s.p.Done(request.End{Status: 200, Outcome: policy.OutcomeSuccess}, 0)
			s.wantObserved(tc.want)
		}))
	}
}

// An error that the rules do not count as a failure is no success either.
func TestAnErrorOfTheUpstreamIsNeverOK(t *testing.T) {
	for status, want := range map[int]string{500: "attempt unknown 500 0s", 599: "attempt unknown 599 0s", 499: "attempt ok 499 0s", 200: "attempt ok 200 0s"} {
		t.Run("", bubble(func(t *testing.T) {
			s := reportOf(t, requesttest.Get, nil)
			s.observed = nil
			s.attempt(0, responded(status), policy.ClassNone)
			s.wantObserved(want)
		}))
	}
}

// The status of a response counts only if there was one.
func TestAFailureWithoutAResponseHasNoStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reportOf(t, requesttest.Get, nil)
		s.observed = nil
		s.attempt(0, policy.Result{Cause: policy.CauseAttemptTimeout, Status: 504}, policy.Unknown)
		s.wantObserved("attempt unknown 0 0s")
	})
}

// Whether an upstream may have done the work decides where the request may still be sent.
func TestWhichAttemptsExposeTheRequest(t *testing.T) {
	for class, want := range map[policy.Class]bool{policy.NotSent: false, policy.Rejected: false, policy.Unknown: true, policy.ClassNone: true, policy.Overtaken: true} {
		for name, record := range map[string]func(s *reported){
			"attempt":  func(s *reported) { s.attempt(0, failed(policy.CauseDial), class) },
			"fallback": func(s *reported) { res := failed(policy.CauseDial); s.p.RecordFallback(s.sent(false), &res, class) },
		} {
			t.Run(name+" "+class.String(), bubble(func(t *testing.T) {
				s := reportOf(t, requesttest.Get, nil)
				record(s)
				if s.p.Exposed != want {
					t.Errorf("exposed: %v", s.p.Exposed)
				}
				s.attempt(0, failed(policy.CauseDial), policy.NotSent)
				if s.p.Exposed != want {
					t.Errorf("after an attempt that was not sent: %v", s.p.Exposed)
				}
				s.next(requesttest.Get)
				if s.p.Exposed || s.p.Failed {
					t.Error("the next request begins exposed")
				}
			}))
		}
	}
}

// The end of an attempt is the end of that attempt only: it is not running any more.
func TestAnAttemptEndsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reportOf(t, requesttest.Get, nil)
		a, b := s.sent(false), s.sent(false)
		res := responded(200)
		s.p.AttemptDone(a, &res, policy.ClassNone)
		s.p.RecordFallback(b, &res, policy.ClassNone)
		if a.Running() || b.Running() {
			t.Error("an attempt runs on")
		}
	})
}

// A fallback's attempt does not count among those of the route.
func TestAFallbackIsNoAttemptOfTheRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reportOf(t, requesttest.Get, nil)
		s.attempt(100*ms, responded(503), policy.Unknown)
		a := s.sent(false)
		time.Sleep(time.Second)
		res := responded(200)
		s.p.RecordFallback(a, &res, policy.ClassNone)
		if now := s.Time.Now(); s.Time.Clock != now || s.p.LastEnd != now {
			t.Errorf("the time is %v and %v old", now.Sub(s.Time.Clock), now.Sub(s.p.LastEnd))
		}
		s.p.Done(request.End{Status: 200, Outcome: policy.OutcomeFallback}, 0)
		s.wantObserved("began", "attempt unknown 503 100ms", "done GET 200 fallback 1.1s 1s 2")
	})
}

func TestADryRunCountsARequestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reportOf(t, requesttest.Get, nil)
		if s.p.HasCountedDryRun() {
			t.Error("counted before")
		}
		s.p.CountDryRun(policy.ReasonReset)
		s.p.CountDryRun(policy.ReasonStatus503)
		if !s.p.HasCountedDryRun() {
			t.Error("not counted")
		}
		s.wantObserved("began", "would retry reset")
		s.next(requesttest.Get)
		if s.p.HasCountedDryRun() {
			t.Error("counted for the request before")
		}
		s.p.CountDryRun(policy.ReasonStatus503)
		s.wantObserved("began", "would retry status_503")
	})
}

// The time of a tunnel is that until its response. The line in the log has its whole life.
func TestTheLifeOfATunnelIsNoLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reportOf(t, requesttest.Get, func(c *settings.Config) { c.AccessLog = true })
		s.attempt(100*ms, responded(101), policy.ClassNone)
		time.Sleep(time.Hour)
		s.p.Done(request.End{Status: 101, Outcome: policy.OutcomeUpgraded}, 0)
		s.wantObserved("began", "attempt ok 101 100ms", "done GET 101 upgraded 100ms 0s 1")
		if line := s.line(); line["duration_seconds"] != 3600.1 {
			t.Errorf("%v", line)
		}
	})
}

// What happens after the response went out whole is no time of the request.
func TestARequestEndsWhenItsResponseWasRelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reportOf(t, requesttest.Get, nil)
		s.attempt(100*ms, responded(200), policy.ClassNone)
		time.Sleep(300 * ms)
		if at := s.p.Relayed(); at != s.Time.Now() || s.Time.Clock != at {
			t.Errorf("relayed %v ago", s.Time.Now().Sub(at))
		}
		time.Sleep(time.Minute)
		s.p.Done(request.End{Status: 200, Outcome: policy.OutcomeSuccess}, 0)
		s.wantObserved("began", "attempt ok 200 100ms", "done GET 200 success 400ms 0s 1")
		s.next(requesttest.Get)
		time.Sleep(time.Second)
		s.p.Done(request.End{Status: 200, Outcome: policy.OutcomeSuccess}, 0)
		s.wantObserved("began", "done GET 200 success 1s 0s 0")
	})
}

func TestAWaitInAQueueIsReportedWhenItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reportOf(t, requesttest.Get, func(c *settings.Config) { c.Tracer = new(spans) })
		s.p.Trace.Request = &s.spans
		began := s.Time.Now()
		time.Sleep(3 * time.Second)
		s.p.Queued(began)
		s.wantObserved("began", "queued 3s")
		if len(s.spans.waits) != 1 || s.spans.waits[0] != "queued 3s 3s" || s.Time.Clock != s.Time.Now() {
			t.Errorf("%q", s.spans.waits)
		}
	})
}

// Each request has an observer of its own; if it cannot be made, the request still ends in order.
func TestAnObserverThatCannotBeMadeObservesNothing(t *testing.T) {
	s := reportOf(t, requesttest.Get, nil)
	s.observed = nil
	s.Route.NewObserver = func() settings.Observer { panic("no observer") }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the fault was hidden")
			}
		}()
		s.p.Begin()
	}()
	if !s.p.IsOpen() {
		t.Error("who cleans up is not told that a request is open")
	}
	s.p.Done(request.End{Status: 0, Outcome: policy.OutcomeResponseBroken}, 0)
	s.wantObserved()
}
