package policy

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

func TestMayHedge(t *testing.T) {
	fine := Situation{Retries: 1, MaxRetries: 3, Safe: true, Left: time.Second, Elapsed: time.Second}
	for _, tc := range []struct {
		name   string
		change func(p *Policy, s *Situation)
		want   Reason
	}{
		{"nothing against it", nil, ReasonNone},
		{"without a deadline", func(_ *Policy, s *Situation) { s.Left = backoff.Forever }, ReasonNone},
		{"not safe", func(_ *Policy, s *Situation) { s.Safe = false }, ReasonNotIdempotent},
		{"layered", func(_ *Policy, s *Situation) { s.Layered = true }, ReasonLayered},
		{"retries off", func(p *Policy, _ *Situation) { p.MaxRetries = 0 }, ReasonRetriesOff},
		{"none for this request", func(_ *Policy, s *Situation) { s.MaxRetries = 0 }, ReasonRetriesOff},
		{"all made", func(_ *Policy, s *Situation) { s.Retries = 3 }, ReasonRetriesExhausted},
		{"body too large", func(_ *Policy, s *Situation) { s.Replay = ReplayTooLarge }, ReasonBodyTooLarge},
		{"no memory", func(_ *Policy, s *Situation) { s.Replay = ReplayBufferFull }, ReasonRetryBufferFull},
		{"still coming", func(_ *Policy, s *Situation) { s.Replay = ReplayUnfinished }, ReasonBodyUnfinished},
		{"draining", func(_ *Policy, s *Situation) { s.Draining = true }, ReasonDraining},
		{"no time left", func(_ *Policy, s *Situation) { s.Left = 0 }, ReasonDeadline},
	} {
		p, s := Policy{MaxRetries: 3}, fine
		if tc.change != nil {
			tc.change(&p, &s)
		}
		if got := p.MayHedge(&s); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// Whatever forbids a retry after a reset forbids a hedge, and vice versa: a hedge never gets around
// a rule.
func TestMayHedgeAgreesWithDecide(t *testing.T) {
	on, err := ParseRetryOn("reset")
	if err != nil {
		t.Fatal(err)
	}
	rnd := backoff.Shared()
	pick := func(n int64) int { return int(rnd.Int64N(n)) }
	for range 200_000 {
		p := Policy{RetryOn: on, MaxRetries: pick(3)}
		s := Situation{
			Retries: pick(3), MaxRetries: pick(3), Safe: pick(8) > 0, Replay: Replay(pick(6)), Left: time.Duration(pick(3)) * time.Second,
			Elapsed: time.Duration(pick(3)) * time.Second, Draining: pick(4) == 0, Layered: pick(4) == 0,
		}
		d := p.Decide(&Result{Cause: CauseReset}, &s, nil, 0, rnd)
		if why := p.MayHedge(&s); (why == ReasonNone) != d.Retry {
			t.Fatalf("%+v %+v: a hedge %v, a retry %v (%v)", p, s, why, d.Retry, d.Why)
		}
	}
}

func TestBetterFailure(t *testing.T) {
	answer := Result{Cause: CauseStatus, Status: 503}
	wait := func(d time.Duration) Result {
		return Result{Cause: CauseStatus, Status: 503, HasRetryAfter: true, RetryAfter: d}
	}
	final := Result{Cause: CauseStatus, Status: 503, Final: true}
	unwanted := Result{Cause: CauseStatus, Status: 503, Advice: AdvisesNoRetry}
	late, reset, dial := Result{Cause: CauseAttemptTimeout}, Result{Cause: CauseReset}, Result{Cause: CauseDial}
	for _, tc := range []struct {
		name   string
		a, b   Result
		second bool
	}{
		{"two answers", answer, answer, true},
		{"a response, then none", answer, reset, false},
		{"a response, then too late", answer, late, false},
		{"none, then a response", reset, answer, true},
		{"too late, then a response", late, answer, true},
		{"neither", reset, dial, false},
		{"both too late", late, late, false},
		{"gone, and one that may still come", reset, late, true},
		{"one that may still come, and gone", late, dial, false},
		{"a wait, then none", wait(0), answer, false},
		{"none, then a wait", answer, wait(0), true},
		{"the longer wait first", wait(2), wait(1), false},
		{"the longer wait second", wait(1), wait(2), true},
		{"equal waits", wait(1), wait(1), true},
		{"final first", final, wait(time.Hour), false},
		{"final second", wait(time.Hour), final, true},
		{"both final", final, final, true},
		{"no retry wanted first", unwanted, wait(time.Hour), false},
		{"no retry wanted second", wait(time.Hour), unwanted, true},
	} {
		if got := BetterFailure(&tc.a, &tc.b); got != tc.second {
			t.Errorf("%s: second %v, want %v", tc.name, got, tc.second)
		}
	}
}
