package policy

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
)

// draws counts what is drawn.
type draws struct {
	backoff.Rand
	n int
}

func (d *draws) Int64N(n int64) int64 { d.n++; return d.Rand.Int64N(n) }
func (d *draws) Float64() float64     { d.n++; return d.Rand.Float64() }

// drawing is a backoff that draws once for each wait.
type drawing struct{}

func (drawing) Wait(_ backoff.Step, r backoff.Rand) time.Duration {
	return time.Duration(r.Int64N(1000)) + 1
}

func again(t *testing.T) (Policy, Situation, Result) {
	t.Helper()
	on, err := ParseRetryOn("503")
	if err != nil {
		t.Fatal(err)
	}
	return Policy{RetryOn: on, MaxRetries: 3, Backoff: drawing{}}, Situation{MaxRetries: 3, Safe: true, Left: time.Second}, Result{Status: 503}
}

// A retry draws its wait once and takes one token, though something happens between the two answers.
func TestARetryIsDecidedOnce(t *testing.T) {
	p, s, res := again(t)
	b, r := budget.New(budget.Config{Burst: 2}), &draws{Rand: backoff.Shared()}
	d := p.Again(&res, &s)
	if !d.Retry || d.Why != ReasonStatus503 || r.n != 0 || b.Tokens(0) != 2 {
		t.Fatalf("%+v, %d draws, %v tokens", d, r.n, b.Tokens(0))
	}
	if d = p.After(d, &res, &s, b, 0, r); !d.Retry || d.Wait == 0 || d.Token != TokenTaken || r.n != 1 || b.Tokens(0) != 1 {
		t.Errorf("%+v, %d draws, %v tokens", d, r.n, b.Tokens(0))
	}
}

// What changed between the two answers forbids the retry.
func TestARetryThatIsNotMadeAfterAll(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(s *Situation, res *Result)
		why    Reason
	}{
		"the body is too large":   {func(s *Situation, _ *Result) { s.Replay = ReplayTooLarge }, ReasonBodyTooLarge},
		"a drain began":           {func(s *Situation, _ *Result) { s.Draining = true }, ReasonDraining},
		"no time is left":         {func(s *Situation, _ *Result) { s.Left = 0 }, ReasonDeadline},
		"the body asked for more": {func(_ *Situation, res *Result) { res.HasRetryAfter, res.RetryAfter = true, time.Minute }, ReasonRetryAfterTooLong},
	} {
		p, s, res := again(t)
		b := budget.New(budget.Config{Burst: 1})
		d := p.Again(&res, &s)
		tc.change(&s, &res)
		if got := p.After(d, &res, &s, b, 0, backoff.Shared()); got != (Decision{Class: d.Class, Why: tc.why}) || b.Tokens(0) != 1 {
			t.Errorf("%s: %+v, %v tokens", name, got, b.Tokens(0))
		}
	}
}

// A wait that cannot fit is known before anything is read or kept for the retry.
func TestAWaitThatCannotFitIsKnownAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		backoff backoff.Strategy
		after   time.Duration
		why     Reason
	}{
		"a backoff that is never shorter": {backoff.Fixed{Base: 2 * time.Second}, 0, ReasonDeadline},
		"a Retry-After":                   {drawing{}, time.Second, ReasonRetryAfterTooLong},
		"one below the least backoff":     {backoff.Fixed{Base: 2 * time.Second}, time.Millisecond, ReasonDeadline},
		"one that may fit":                {drawing{}, 999 * time.Millisecond, ReasonStatus503},
	} {
		p, s, res := again(t)
		p.Backoff, res.RetryAfter, res.HasRetryAfter = tc.backoff, tc.after, tc.after > 0
		if d := p.Again(&res, &s); d.Why != tc.why {
			t.Errorf("%s: %v", name, d.Why)
		}
	}
}
