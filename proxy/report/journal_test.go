package report_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/requesttest"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

func TestTheJournalIsAskedOnceAndGetsWhatItWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reportOf(t, "PUT /a/b?token=secret HTTP/1.1\r\nHost: a\r\nX-Request-Id: my-id\r\n\r\n", nil)
		began := time.Now()
		time.Sleep(time.Second)
		s.attempt(100*ms, responded(503), policy.Unknown)
		time.Sleep(2 * time.Second)
		s.BeginRetry()
		s.attempt(200*ms, failed(policy.CauseReset), policy.Unknown)
		s.attempt(300*ms, responded(200), policy.ClassNone) // a free one
		s.p.Done(request.End{Status: 200, Outcome: policy.OutcomeRecovered}, 7)
		if !slices.Equal(s.asked, []string{"0s 3.6s recovered"}) || len(s.kept) != 1 {
			t.Fatalf("asked %q, kept %+v", s.asked, s.kept)
		}
		e := s.kept[0]
		if e.Route != "default" || string(e.Method) != "PUT" || string(e.Path) != "/a/b" || string(e.RequestID) != "my-id" {
			t.Errorf("%s: %s %s %s", e.Route, e.Method, e.Path, e.RequestID)
		}
		if !e.Began.Equal(began) || e.Took != 3600*ms || e.Code != 200 || e.Outcome != policy.OutcomeRecovered || e.Attempts != 3 || e.Retries != 1 {
			t.Errorf("%+v", e)
		}
		want := []settings.Step{
			{Began: 1000 * ms, Took: 100 * ms, Status: 503, Class: policy.Unknown, Addr: "10.0.0.1:80"},
			{Began: 3100 * ms, Took: 200 * ms, Cause: policy.CauseReset, Class: policy.Unknown, Addr: "10.0.0.1:80"},
			{Began: 3300 * ms, Took: 300 * ms, Status: 200, Addr: "10.0.0.1:80"},
		}
		if !slices.Equal(e.Steps, want) {
			t.Errorf("steps\n%+v\nwant\n%+v", e.Steps, want)
		}
	})
}

func TestTheJournalGetsNothingThatItDoesNotWant(t *testing.T) {
	s := reportOf(t, requesttest.Get, nil)
	s.wants = false
	s.p.Done(request.End{Status: 200, Outcome: policy.OutcomeSuccess}, 0)
	if len(s.asked) != 1 || len(s.kept) != 0 {
		t.Errorf("asked %q, kept %+v", s.asked, s.kept)
	}
	without := reportOf(t, requesttest.Get, func(c *settings.Config) { c.Journal = nil })
	without.p.Done(request.End{Status: 200, Outcome: policy.OutcomeSuccess}, 0)
	without.wantObserved("began", "done GET 200 success "+took(without)+" 0s 0")
}

// took is how long the observer was told that the request took.
func took(s *reported) string {
	for _, o := range s.observed {
		if f := strings.Fields(o); f[0] == "done" {
			return f[4]
		}
	}
	return ""
}

// A tunnel lasts until its response for the journal too, and ends when it ends.
func TestTheJournalIsAskedWhenATunnelEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reportOf(t, requesttest.Get, nil)
		s.attempt(100*ms, responded(101), policy.ClassNone)
		time.Sleep(time.Hour)
		s.p.Done(request.End{Status: 101, Outcome: policy.OutcomeUpgraded}, 0)
		if !slices.Equal(s.asked, []string{"0s 100ms upgraded"}) {
			t.Errorf("%q", s.asked)
		}
	})
}

// Of many attempts the first ones and the last are kept, and none of the request before.
func TestTheFirstAttemptsAndTheLastAreKept(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 30} {
		synctest.Test(t, func(t *testing.T) {
			s := reportOf(t, requesttest.Get, nil)
			s.attempt(0, responded(404), policy.ClassNone)
			s.next(requesttest.Get)
			var want []int
			for i := range n {
				s.attempt(0, responded(500+i), policy.Unknown)
				if i < 7 || i == n-1 {
					want = append(want, 500+i)
				}
			}
			s.p.Done(request.End{Status: 500, Outcome: policy.OutcomeSuccess}, 0)
			var got []int
			for _, step := range s.kept[0].Steps {
				got = append(got, step.Status)
			}
			if !slices.Equal(got, want) || s.kept[0].Attempts != n {
				t.Errorf("of %d attempts: %v, want %v", s.kept[0].Attempts, got, want)
			}
		})
	}
}

// A connection that could not be made keeps why, and a later attempt of another kind does not.
func TestWhyThereWasNoConnectionIsKept(t *testing.T) {
	s := reportOf(t, requesttest.Get, nil)
	a := s.noConnection("why not")
	refused, reset := failed(policy.CauseDial), failed(policy.CauseReset)
	s.p.AttemptDone(a, &refused, policy.NotSent)
	s.p.AttemptDone(a, &reset, policy.Unknown)
	s.p.Done(request.End{Status: 502, Outcome: policy.OutcomeSuccess}, 0)
	steps := s.kept[0].Steps
	if len(steps) != 2 || steps[0].Dial == nil || fmt.Sprint(steps[0].Dial.Err) != "why not" || steps[0].Addr != "10.0.0.2:80" || steps[1].Dial != nil {
		t.Errorf("%+v", steps)
	}
}

// A time that does not fit is the longest that does, and not a short one.
func TestAVeryLongAttemptIsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reportOf(t, requesttest.Get, nil)
		s.attempt(100*time.Hour, responded(200), policy.ClassNone)
		s.attempt(0, responded(200), policy.ClassNone)
		s.p.Done(request.End{Status: 200, Outcome: policy.OutcomeSuccess}, 0)
		if steps := s.kept[0].Steps; steps[0].Took < time.Hour || steps[1].Began < time.Hour || steps[0].Took > 100*time.Hour {
			t.Errorf("%+v", steps)
		}
	})
}
