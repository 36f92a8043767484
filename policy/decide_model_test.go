package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
)

// trial is one random call of Decide.
type trial struct {
	policy  Policy
	attempt Result
	at      Situation
	budget  *budget.Budget
	seed    uint64
}

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// around returns a duration, often at the edges where decisions change.
func around(r *rand.Rand) time.Duration {
	return pick(r, -1, 0, 1, time.Millisecond, time.Second, 10*time.Second, 30*time.Second, backoff.Forever,
		time.Duration(r.Int64N(int64(40*time.Second))))
}

func randomTrial(t *testing.T, r *rand.Rand, settings []RetryOn, strategies []backoff.Strategy) trial {
	t.Helper()
	tr := trial{
		policy: Policy{
			RetryOn:    pick(r, settings...),
			MaxRetries: r.IntN(8),
			Backoff:    pick(r, strategies...),
			Throttled:  pick(r, strategies...),

			QueueForBudget: r.IntN(2) == 0,
		},
		attempt: Result{
			Cause:         pick(r, CauseStatus, CauseStatus, Cause(r.IntN(NumCauses))),
			GRPC:          pick(r, GRPCOK, GRPCOK, GRPCUnavailable, GRPCInternal),
			Advice:        [30]Advice{AdvisesNoRetry, AdvisesRetry, AdvisesRetry, AdvisesRetry}[r.IntN(30)],
			Status:        pick(r, 200, 404, 409, 429, 500, 501, 502, 503, 504, 520),
			Final:         r.IntN(30) == 0,
			RetryAfter:    max(0, around(r)),
			HasRetryAfter: r.IntN(4) == 0,
			Header:        pick[HeaderLookup](r, nil, headers{}, headers{"x-again": "1"}),
		},
		at: Situation{
			Retries: r.IntN(3), Safe: r.IntN(4) > 0, Replay: Replay(max(0, r.IntN(20)-15)),
			Left: pick(r, 30*time.Second, time.Minute, backoff.Forever, around(r)), Elapsed: pick(r, 0, time.Second, max(0, around(r))), Previous: max(0, around(r)),
			FreeRetries: r.IntN(12), OthersPass: r.IntN(2) == 0, AskedWaitUsed: r.IntN(2) == 0, Draining: r.IntN(20) == 0, Layered: r.IntN(20) == 0,
		},
		budget: pick[*budget.Budget](r, nil, nil, budget.New(budget.Config{}), budget.New(budget.Config{Burst: 1}), spent(budget.Config{MinPerSecond: 1, Burst: 1}), budget.New(budget.Default())),
		seed:   r.Uint64(),
	}
	tr.at.MaxRetries = min(tr.policy.MaxRetries, r.IntN(9))
	return tr
}

// spent returns a budget without tokens.
func spent(c budget.Config) *budget.Budget {
	b := budget.New(c)
	for b.TryRetry(0) {
	}
	return b
}

// decide runs the trial on a fresh copy of its budget and returns the number of tokens taken.
func (tr *trial) decide() (d Decision, taken float64) {
	if tr.budget == nil {
		return tr.policy.Decide(&tr.attempt, &tr.at, nil, 0, seeded(tr.seed)), 0
	}
	before := tr.budget.Tokens(0)
	d = tr.policy.Decide(&tr.attempt, &tr.at, tr.budget, 0, seeded(tr.seed))
	return d, before - tr.budget.Tokens(0)
}

// broken returns the first promise that the decision breaks, or "".
func (tr *trial) broken(d Decision, taken float64, hadToken bool) string {
	a, s := &tr.attempt, &tr.at
	switch {
	case d.Wait < 0:
		return "a wait is never negative"
	case !d.Retry && (d.Wait != 0 || d.Free):
		return "without a retry there is no wait"
	case !d.Retry && taken != 0:
		return "without a retry no token is taken"
	case d.Class == ClassNone:
		return when(d.Retry || d.Why != ReasonNone, "no failure needs nothing")
	case !d.Retry:
		return when(!d.Why.WhyNot() || !tr.holds(d.Why, hadToken), "a reason against a retry holds")
	case !d.Why.ForRetry():
		return "a retry says what for"
	case d.Wait >= s.Left:
		return "a wait fits in the time left"
	case s.Replay != ReplayWhole:
		return "a body that is gone is not retried"
	case d.Free:
		return when(a.Cause != CauseIdleClose && a.Cause != CauseRefusedStream || s.FreeRetries > 0 && !s.OthersPass || s.FreeRetries >= 10 || d.Wait != 0 || taken != 0, "at most ten retries of what was not processed are free, and they are at once")
	case !a.Cause.Sure() && !s.Safe && !tr.rejected() && !(a.Cause == CauseStatus && tr.policy.RetryOn.GRPC(a.GRPC)):
		return "an unsafe request that was sent is never retried"
	case s.Retries >= s.MaxRetries:
		return "there are never more retries than allowed"
	case s.Draining || s.Layered:
		return "draining and nesting end retries"
	case a.Cause == CauseStatus && a.Final:
		return "who gave up stays given up"
	case a.Cause == CauseStatus && a.Advice == AdvisesNoRetry:
		return "no retry is made that is not wanted"
	case d.Why == ReasonAskedToRetry && (a.Advice != AdvisesRetry || !s.Safe || a.Status < 400):
		return "only a safe retry is made because it is wanted"
	case a.Cause == CauseStatus && a.HasRetryAfter && d.Wait < a.RetryAfter:
		return "a Retry-After is never cut short"
	case d.Wait < backoff.FloorOf(tr.policy.Backoff):
		return "no wait is shorter than a fixed backoff"
	case (d.Token == TokenNone) != (tr.budget == nil):
		return "a retry has something of a budget, if there is one"
	case (d.Token == TokenTaken) != (taken == 1) || taken != 0 && taken != 1:
		return "a retry takes one token"
	case d.Token == TokenQueued && (!tr.policy.QueueForBudget || hadToken || tr.budget.Delay(0) >= s.Left):
		return "a retry queues only if there is no token now and one in time"
	case d.Token == TokenWaived && (!tr.policy.QueueForBudget || s.AskedWaitUsed || !a.HasRetryAfter || d.Wait < time.Second):
		return "only one wait of a second or more that the upstream asked for needs no token"
	}
	return ""
}

// rejected reports whether the response means that the upstream did not do the work.
func (tr *trial) rejected() bool {
	return tr.attempt.Cause == CauseStatus && (tr.attempt.Status == 429 || tr.attempt.GRPC == GRPCUnavailable)
}

func when(bad bool, promise string) string {
	if bad {
		return promise
	}
	return ""
}

// holds checks a single reason against a retry, without the order.
func (tr *trial) holds(why Reason, hadToken bool) bool {
	a, s, p := &tr.attempt, &tr.at, &tr.policy
	ceiling := max(ceilingAt(p.Backoff, s), ceilingAt(p.Throttled, s))
	switch why {
	case ReasonUpstreamGaveUp:
		return a.Final
	case ReasonUntrustedCertificate:
		return tr.attempt.Cause == CauseUntrusted
	case ReasonAskedNotToRetry:
		return a.Advice == AdvisesNoRetry
	case ReasonNotInRetryOn:
		return !p.RetryOn.Cause(a.Cause)
	case ReasonNotIdempotent:
		return !s.Safe && !a.Cause.Sure() && (!tr.rejected() || a.Advice == AdvisesRetry && !p.RetryOn.Code(a.Status))
	case ReasonRetriesOff:
		return p.MaxRetries == 0 || s.MaxRetries == 0
	case ReasonRetriesExhausted:
		return s.Retries >= s.MaxRetries
	case ReasonBodyTooLarge:
		return s.Replay == ReplayTooLarge
	case ReasonRetryBufferFull:
		return s.Replay == ReplayBufferFull
	case ReasonBodyUnfinished:
		return s.Replay >= ReplayUnfinished
	case ReasonLayered:
		return s.Layered
	case ReasonDraining:
		return s.Draining
	case ReasonDeadline:
		return s.Left <= 0 || backoff.FloorOf(p.Backoff) >= s.Left || !(a.HasRetryAfter && a.Cause == CauseStatus) && ceiling >= s.Left
	case ReasonRetryAfterTooLong:
		return a.HasRetryAfter && a.RetryAfter >= s.Left
	case ReasonBudgetExhausted:
		return tr.budget != nil && !hadToken && (!tr.policy.QueueForBudget || tr.budget.Delay(0) >= s.Left)
	}
	return false
}

func ceilingAt(b backoff.Strategy, s *Situation) time.Duration {
	if b == nil {
		return 0
	}
	if _, endless := b.(backoff.Normal); endless {
		return backoff.Forever
	}
	return b.(backoff.Ranger).Range(backoff.Step{Retry: s.Retries, Previous: s.Previous, Elapsed: s.Elapsed}).Max
}

// givenElsewhere lists the reasons that only the retry loop returns, not Decide.
var givenElsewhere = map[Reason]bool{
	ReasonResponseTooLarge: true,
	ReasonRateLimitPause:   true,
	ReasonRateLimited:      true,
	ReasonSwitchedOff:      true,
	ReasonDryRun:           true,
	ReasonNoDescriptors:    true,
	ReasonQuotaExhausted:   true,
	ReasonRequestTooLarge:  true,
}

func TestDecideKeepsItsPromises(t *testing.T) {
	settings := []RetryOn{mustRetryOn(t, usualRetryOn), mustRetryOn(t, "none"), mustRetryOn(t, "5xx,429"),
		mustRetryOn(t, usualRetryOn+",501,!504,retriable-header:X-Again"), mustRetryOn(t, "connect-failure,retriable-header:X-Again=1"),
		mustRetryOn(t, usualRetryOn+",grpc-unavailable")}
	strategies := []backoff.Strategy{nil}
	for _, name := range backoff.Strategies() {
		b, err := backoff.New(name, backoff.Options{})
		if err != nil {
			t.Fatal(err)
		}
		strategies = append(strategies, b)
	}
	r := seeded(11)
	whys, outcomes, claims := map[Reason]int{}, map[string]int{}, map[TokenClaim]int{}
	for range 100_000 {
		tr := randomTrial(t, r, settings, strategies)
		hadToken := tr.budget != nil && tr.budget.Tokens(0) >= 1
		d, taken := tr.decide()
		if promise := tr.broken(d, taken, hadToken); promise != "" {
			t.Fatalf("%s:\n%+v (%v)\nafter %+v\nin %+v\nunder %+v", promise, d, d.Why, tr.attempt, tr.at, tr.policy)
		}
		whys[d.Why]++
		outcomes[fmt.Sprint(d.Retry, d.Free)]++
		claims[d.Token]++
	}
	// The trials must be able to break the promises.
	for _, why := range AllReasons() {
		if !givenElsewhere[why] && whys[why] < 20 {
			t.Errorf("%v came up only %d times", why, whys[why])
		}
	}
	if outcomes["true true"] < 1000 || outcomes["true false"] < 10_000 || outcomes["false false"] < 10_000 {
		t.Errorf("few of a kind: %v", outcomes)
	}
	for _, claim := range []TokenClaim{TokenTaken, TokenQueued, TokenWaived} {
		if claims[claim] < 100 {
			t.Errorf("few claims of a kind: %v", claims)
		}
	}
}

// What was not sent is decided without looking at the method.
func TestMethodDoesNotMatterForWhatWasNotSent(t *testing.T) {
	settings := []RetryOn{mustRetryOn(t, usualRetryOn)}
	r := seeded(12)
	retried := 0
	for range 20_000 {
		tr := randomTrial(t, r, settings, []backoff.Strategy{backoff.FullJitter{Base: time.Second, Max: time.Minute, Factor: 2}})
		tr.attempt.Cause = pick(r, CauseDial, CauseTLS, CauseUntrusted, CauseIdleClose, CauseRefusedStream)
		tr.budget = nil
		safe, unsafe := tr, tr
		safe.at.Safe, unsafe.at.Safe = true, false
		d, _ := safe.decide()
		if e, _ := unsafe.decide(); d != e {
			t.Fatalf("safe %+v, unsafe %+v\nafter %+v\nin %+v", d, e, tr.attempt, tr.at)
		}
		if d.Retry {
			retried++
		}
	}
	if retried < 1000 {
		t.Errorf("only %d retries among the trials", retried)
	}
}

// A whole request never exceeds its limits, attempt by attempt.
func TestRequestsEndWithinTheirLimits(t *testing.T) {
	r := seeded(13)
	for range 5_000 {
		p := testPolicy(t)
		p.MaxRetries = r.IntN(9)
		p.Backoff = backoff.FullJitter{Base: 100 * time.Millisecond, Max: 32 * time.Second, Factor: 2}
		limit := time.Duration(1 + r.Int64N(int64(time.Minute)))
		s := Situation{MaxRetries: p.MaxRetries, Safe: r.IntN(2) == 0, Left: limit}
		sends, frees := 0, 0
		for {
			a := Result{Cause: pick(r, CauseStatus, Cause(r.IntN(NumCauses))), Status: pick(r, 429, 503),
				RetryAfter: time.Duration(r.Int64N(int64(10 * time.Second))), HasRetryAfter: r.IntN(2) == 0}
			s.OthersPass = r.IntN(2) == 0
			took := time.Duration(r.Int64N(int64(time.Second)))
			s.Elapsed, s.Left = s.Elapsed+took, s.Left-took
			sends++
			d := p.Decide(&a, &s, nil, 0, r)
			if !d.Retry {
				break
			}
			if d.Free {
				frees, s.FreeRetries = frees+1, s.FreeRetries+1
			} else {
				s.Retries++
			}
			s.Elapsed, s.Left, s.Previous = s.Elapsed+d.Wait, s.Left-d.Wait, d.Wait
			if s.Left <= 0 {
				t.Fatalf("waited %v past the deadline", -s.Left)
			}
		}
		if frees > 10 || sends > 1+p.MaxRetries+frees {
			t.Fatalf("%d sends, %d of them free, with %d retries allowed", sends, frees, p.MaxRetries)
		}
	}
}
