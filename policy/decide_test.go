package policy

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
)

// constant is a strategy that always waits that long.
type constant time.Duration

func (c constant) Wait(backoff.Step, backoff.Rand) time.Duration { return time.Duration(c) }

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

// testPolicy retries the default failures three times, each after exactly 1 s, or 5 s if throttled.
func testPolicy(t testing.TB) Policy {
	return Policy{
		RetryOn:    mustRetryOn(t, usualRetryOn+",grpc-unavailable,grpc-aborted,retriable-header:X-Again"),
		MaxRetries: 3,
		Backoff:    constant(time.Second),
		Throttled:  constant(5 * time.Second),
	}
}

// fresh returns the situation of an idempotent request after its first attempt.
func fresh() Situation {
	return Situation{MaxRetries: 3, Safe: true, Left: 30 * time.Second}
}

func responded(code int) Result { return Result{Status: code} }

func TestDecide(t *testing.T) {
	retry := func(c Class, why Reason, wait time.Duration) Decision {
		return Decision{Class: c, Retry: true, Why: why, Wait: wait}
	}
	no := func(c Class, why Reason) Decision { return Decision{Class: c, Why: why} }
	freeFor := func(why Reason) Decision { return Decision{Class: NotSent, Retry: true, Free: true, Why: why} }
	free := freeFor(ReasonIdleClose)
	unsafe := func(s *Situation, _ *Policy) { s.Safe = false }
	const s = time.Second

	for _, tc := range []struct {
		name    string
		attempt Result
		change  func(*Situation, *Policy)
		want    Decision
	}{
		{"200", responded(200), nil, no(ClassNone, ReasonNone)},
		{"404", responded(404), nil, no(ClassNone, ReasonNone)},
		{"501 is not worth it", responded(501), nil, no(ClassNone, ReasonNone)},
		{"429 waits longer", responded(429), nil, retry(Rejected, ReasonStatus429, 5*s)},
		{"500", responded(500), nil, retry(Unknown, ReasonStatus500, s)},
		{"502", responded(502), nil, retry(Unknown, ReasonStatus502, s)},
		{"503", responded(503), nil, retry(Unknown, ReasonStatus503, s)},
		{"504", responded(504), nil, retry(Unknown, ReasonStatus504, s)},
		{"520", responded(520), nil, retry(Unknown, ReasonStatusOther, s)},
		{"field", Result{Status: 200, Header: headers{"x-again": ""}}, nil, retry(Unknown, ReasonHeader, s)},
		{"listed status with a listed field", Result{Status: 503, Header: headers{"x-again": ""}}, nil, retry(Unknown, ReasonStatus503, s)},
		{"gRPC status, not listed", Result{Status: 200, GRPC: GRPCInternal}, nil, no(ClassNone, ReasonNone)},
		{"gRPC status, listed, of a POST", Result{Status: 200, GRPC: GRPCUnavailable}, unsafe, retry(Rejected, ReasonGRPC, s)},
		{"gRPC status that may have done work", Result{Status: 200, GRPC: 10}, unsafe, retry(Unknown, ReasonGRPC, s)},
		{"gRPC status with a pushback", Result{Status: 200, GRPC: GRPCUnavailable, HasRetryAfter: true, RetryAfter: 40 * s}, unsafe, no(Rejected, ReasonRetryAfterTooLong)},
		{"gRPC status that is not to be retried", Result{Status: 200, GRPC: GRPCUnavailable, Final: true}, unsafe, no(Rejected, ReasonUpstreamGaveUp)},
		{"reset of an unsafe gRPC call", Result{Cause: CauseReset, GRPC: GRPCUnavailable}, unsafe, no(Unknown, ReasonNotIdempotent)},
		{"dial", Result{Cause: CauseDial}, nil, retry(NotSent, ReasonConnectFailure, s)},
		{"TLS", Result{Cause: CauseTLS}, nil, retry(NotSent, ReasonTLSFailure, s)},
		{"untrusted certificate", Result{Cause: CauseUntrusted}, nil, no(NotSent, ReasonUntrustedCertificate)},
		{"reset", Result{Cause: CauseReset}, nil, retry(Unknown, ReasonReset, s)},
		{"attempt timeout", Result{Cause: CauseAttemptTimeout}, nil, retry(Unknown, ReasonAttemptTimeout, s)},
		{"malformed", Result{Cause: CauseMalformed}, nil, retry(Unknown, ReasonMalformed, s)},

		{"POST reset", Result{Cause: CauseReset}, unsafe, no(Unknown, ReasonNotIdempotent)},
		{"POST 503", responded(503), unsafe, no(Unknown, ReasonNotIdempotent)},
		{"POST 429", responded(429), unsafe, retry(Rejected, ReasonStatus429, 5*s)},
		{"POST 429 with Retry-After", Result{Status: 429, RetryAfter: 40 * s, HasRetryAfter: true}, unsafe, no(Rejected, ReasonRetryAfterTooLong)},
		{"POST 429 that is no failure", responded(429), func(s *Situation, p *Policy) { s.Safe, p.RetryOn = false, mustRetryOn(t, "5xx") }, no(ClassNone, ReasonNone)},
		{"POST 503 that means it", responded(503), func(s *Situation, p *Policy) { s.Safe, p.Rejected = false, mustRejected(t, "429,503,529") },
			retry(Rejected, ReasonStatus503, 5*s)},
		{"POST 429 that may not mean it", responded(429), func(s *Situation, p *Policy) { s.Safe, p.Rejected = false, mustRejected(t, "none") },
			no(Unknown, ReasonNotIdempotent)},
		{"GET 429 that may not mean it", responded(429), func(_ *Situation, p *Policy) { p.Rejected = mustRejected(t, "none") }, retry(Unknown, ReasonStatus429, 5*s)},
		{"POST 200", responded(200), unsafe, no(ClassNone, ReasonNone)},
		{"POST never sent", Result{Cause: CauseDial}, unsafe, retry(NotSent, ReasonConnectFailure, s)},

		{"idle close is free", Result{Cause: CauseIdleClose}, nil, free},
		{"also for POST", Result{Cause: CauseIdleClose}, unsafe, free},
		{"also at the limits", Result{Cause: CauseIdleClose}, func(s *Situation, p *Policy) {
			s.Retries, s.Draining, s.Layered, s.Elapsed, p.RetryOn = 3, true, true, time.Hour, RetryOn{}
		}, free},
		{"also with retries off", Result{Cause: CauseIdleClose}, func(s *Situation, p *Policy) { p.MaxRetries, s.MaxRetries = 0, 0 }, free},
		{"refused stream is free", Result{Cause: CauseRefusedStream}, unsafe, freeFor(ReasonRefusedStream)},
		{"second idle close", Result{Cause: CauseIdleClose}, func(s *Situation, _ *Policy) { s.FreeRetries = 1 },
			retry(NotSent, ReasonIdleClose, s)},
		{"second idle close at the limit", Result{Cause: CauseIdleClose}, func(s *Situation, _ *Policy) { s.FreeRetries, s.Retries = 1, 3 },
			no(NotSent, ReasonRetriesExhausted)},
		{"second one while others pass", Result{Cause: CauseIdleClose}, func(s *Situation, _ *Policy) { s.FreeRetries, s.OthersPass, s.Retries = 1, true, 3 }, free},
		{"tenth one while others pass", Result{Cause: CauseRefusedStream}, func(s *Situation, _ *Policy) { s.FreeRetries, s.OthersPass = 9, true },
			freeFor(ReasonRefusedStream)},
		{"eleventh one", Result{Cause: CauseRefusedStream}, func(s *Situation, _ *Policy) { s.FreeRetries, s.OthersPass = 10, true },
			retry(NotSent, ReasonRefusedStream, s)},
		{"idle close, body gone", Result{Cause: CauseIdleClose}, func(s *Situation, _ *Policy) { s.Replay = ReplayTooLarge },
			no(NotSent, ReasonBodyTooLarge)},
		{"idle close, no time", Result{Cause: CauseIdleClose}, func(s *Situation, _ *Policy) { s.Left = 0 }, no(NotSent, ReasonDeadline)},

		{"connect failures not listed", Result{Cause: CauseDial}, func(_ *Situation, p *Policy) { p.RetryOn = mustRetryOn(t, "5xx") },
			no(NotSent, ReasonNotInRetryOn)},
		{"resets not listed, POST", Result{Cause: CauseReset}, func(s *Situation, p *Policy) { s.Safe, p.RetryOn = false, mustRetryOn(t, "5xx") },
			no(Unknown, ReasonNotInRetryOn)},
		{"inner proxy gave up", Result{Status: 503, Final: true}, nil, no(Unknown, ReasonUpstreamGaveUp)},
		{"inner proxy gave up, but no failure here", Result{Status: 501, Final: true}, nil, no(ClassNone, ReasonNone)},
		{"mark without a response means nothing", Result{Cause: CauseDial, Final: true}, nil, retry(NotSent, ReasonConnectFailure, s)},
		{"no retry wanted", Result{Status: 503, Advice: AdvisesNoRetry}, nil, no(Unknown, ReasonAskedNotToRetry)},
		{"no retry wanted of a POST", Result{Status: 503, Advice: AdvisesNoRetry}, unsafe, no(Unknown, ReasonAskedNotToRetry)},
		{"no retry of a 429 wanted", Result{Status: 429, Advice: AdvisesNoRetry, HasRetryAfter: true, RetryAfter: s}, unsafe, no(Rejected, ReasonAskedNotToRetry)},
		{"no retry wanted, but no failure here", Result{Status: 404, Advice: AdvisesNoRetry}, nil, no(ClassNone, ReasonNone)},
		{"wish without a response means nothing", Result{Cause: CauseReset, Advice: AdvisesNoRetry}, nil, retry(Unknown, ReasonReset, s)},
		{"retry wanted", Result{Status: 409, Advice: AdvisesRetry}, nil, retry(Unknown, ReasonAskedToRetry, s)},
		{"retry of a POST wanted", Result{Status: 409, Advice: AdvisesRetry}, unsafe, no(Unknown, ReasonNotIdempotent)},
		{"retry of a POST wanted that is not listed, but rejected", Result{Status: 429, Advice: AdvisesRetry},
			func(s *Situation, p *Policy) { s.Safe, p.RetryOn = false, mustRetryOn(t, "5xx") }, no(Unknown, ReasonNotIdempotent)},
		{"retry of a listed status wanted", Result{Status: 503, Advice: AdvisesRetry}, nil, retry(Unknown, ReasonStatus503, s)},
		{"retry wanted of a POST that a listed status does not allow", Result{Status: 503, Advice: AdvisesRetry}, unsafe, no(Unknown, ReasonNotIdempotent)},
		{"retry of a success wanted", Result{Status: 200, Advice: AdvisesRetry}, nil, no(ClassNone, ReasonNone)},
		{"retry of a redirect wanted", Result{Status: 399, Advice: AdvisesRetry}, nil, no(ClassNone, ReasonNone)},
		{"retry of an excluded status wanted", Result{Status: 409, Advice: AdvisesRetry}, func(_ *Situation, p *Policy) { p.RetryOn = mustRetryOn(t, "5xx,!409") }, no(ClassNone, ReasonNone)},
		{"retry wanted where no status is retried", Result{Status: 409, Advice: AdvisesRetry}, func(_ *Situation, p *Policy) { p.RetryOn = mustRetryOn(t, "connect-failure") }, no(ClassNone, ReasonNone)},
		{"retry wanted with a wait", Result{Status: 409, Advice: AdvisesRetry, HasRetryAfter: true, RetryAfter: 40 * s}, nil, no(Unknown, ReasonRetryAfterTooLong)},
		{"retry wanted, retries off", Result{Status: 409, Advice: AdvisesRetry}, func(s *Situation, p *Policy) { s.MaxRetries, p.MaxRetries = 0, 0 }, no(Unknown, ReasonRetriesOff)},
		{"retries off", responded(503), func(s *Situation, p *Policy) { s.MaxRetries, p.MaxRetries = 0, 0 }, no(Unknown, ReasonRetriesOff)},
		{"last retry", responded(503), func(s *Situation, _ *Policy) { s.Retries = 2 }, retry(Unknown, ReasonStatus503, s)},
		{"exhausted", responded(503), func(s *Situation, _ *Policy) { s.Retries = 3 }, no(Unknown, ReasonRetriesExhausted)},
		{"halved", responded(503), func(s *Situation, _ *Policy) { s.Retries, s.MaxRetries = 1, 1 }, no(Unknown, ReasonRetriesExhausted)},
		{"layered", responded(503), func(s *Situation, _ *Policy) { s.Layered = true }, no(Unknown, ReasonLayered)},
		{"nested down to none", responded(503), func(s *Situation, _ *Policy) { s.Layered, s.MaxRetries = true, 0 }, no(Unknown, ReasonLayered)},
		{"body too large", responded(503), func(s *Situation, _ *Policy) { s.Replay = ReplayTooLarge }, no(Unknown, ReasonBodyTooLarge)},
		{"memory full", responded(503), func(s *Situation, _ *Policy) { s.Replay = ReplayBufferFull }, no(Unknown, ReasonRetryBufferFull)},
		{"unfinished", Result{Cause: CauseDial}, func(s *Situation, _ *Policy) { s.Replay = ReplayUnfinished }, no(NotSent, ReasonBodyUnfinished)},
		{"draining", responded(503), func(s *Situation, _ *Policy) { s.Draining = true }, no(Unknown, ReasonDraining)},

		{"wait fits", responded(503), func(s *Situation, _ *Policy) { s.Left = time.Second + 1 }, retry(Unknown, ReasonStatus503, s)},
		{"wait does not fit", responded(503), func(s *Situation, _ *Policy) { s.Left = time.Second }, no(Unknown, ReasonDeadline)},
		{"no time left", responded(503), func(s *Situation, _ *Policy) { s.Left = -1 }, no(Unknown, ReasonDeadline)},
		{"no deadline", responded(503), func(s *Situation, _ *Policy) { s.Left = backoff.Forever }, retry(Unknown, ReasonStatus503, s)},

		{"no backoff", responded(503), func(_ *Situation, p *Policy) { p.Backoff = nil }, retry(Unknown, ReasonStatus503, 0)},
		{"no throttled backoff", responded(429), func(_ *Situation, p *Policy) { p.Throttled = nil }, retry(Rejected, ReasonStatus429, s)},
		{"a negative wait is none", responded(503), func(_ *Situation, p *Policy) { p.Backoff = constant(-5) }, retry(Unknown, ReasonStatus503, 0)},
	} {
		p, sit := testPolicy(t), fresh()
		if tc.change != nil {
			tc.change(&sit, &p)
		}
		if got := p.Decide(&tc.attempt, &sit, nil, 0, seeded(1)); got != tc.want {
			t.Errorf("%s:\n got %+v (%v)\nwant %+v (%v)", tc.name, got, got.Why, tc.want, tc.want.Why)
		}
	}
}

// All obstacles at once: without the first, the next must be the reason.
func TestReasonsComeInTheirOrder(t *testing.T) {
	p := testPolicy(t)
	b := budget.New(budget.Config{})
	a := Result{Status: 503, Final: true, RetryAfter: time.Hour, HasRetryAfter: true}
	s := Situation{Retries: 3, MaxRetries: 3, Replay: ReplayBufferFull, Left: -1, Draining: true, Layered: true}
	for _, step := range []struct {
		want   Reason
		remove func()
	}{
		{ReasonUpstreamGaveUp, func() { a.Final = false }},
		{ReasonNotIdempotent, func() { s.Safe = true }},
		{ReasonRetriesExhausted, func() { s.Retries = 0 }},
		{ReasonRetryBufferFull, func() { s.Replay = ReplayWhole }},
		{ReasonLayered, func() { s.Layered = false }},
		{ReasonDraining, func() { s.Draining = false }},
		{ReasonDeadline, func() { s.Left = 10 * time.Second }},
		{ReasonRetryAfterTooLong, func() { a.HasRetryAfter = false }},
		{ReasonBudgetExhausted, func() { b = nil }},
	} {
		if d := p.Decide(&a, &s, b, 0, seeded(1)); d.Why != step.want || d.Retry || d.Wait != 0 {
			t.Errorf("got %+v (%v), want %v", d, d.Why, step.want)
		}
		step.remove()
	}
	if d := p.Decide(&a, &s, b, 0, seeded(1)); !d.Retry {
		t.Errorf("with no obstacle left: %v", d.Why)
	}
}

func TestRetryAfterIsKeptAndSpread(t *testing.T) {
	p, s := testPolicy(t), fresh()
	p.Backoff = backoff.FullJitter{Base: time.Second, Max: 8 * time.Second, Factor: 2}
	r := seeded(3)
	for _, code := range []int{503, 429, 500} {
		for retry := range 3 {
			s.Retries = retry
			ceiling := time.Second << retry
			lowest, highest, sum := backoff.Forever, time.Duration(0), time.Duration(0)
			const draws = 20_000
			for range draws {
				d := p.Decide(&Result{Status: code, RetryAfter: 10 * time.Second, HasRetryAfter: true}, &s, nil, 0, r)
				if !d.Retry {
					t.Fatalf("%d: %v", code, d.Why)
				}
				lowest, highest, sum = min(lowest, d.Wait), max(highest, d.Wait), sum+d.Wait-10*time.Second
			}
			if lowest < 10*time.Second || highest > 10*time.Second+ceiling {
				t.Errorf("%d, retry %d: waits from %v to %v, want within 10s to %v", code, retry, lowest, highest, 10*time.Second+ceiling)
			}
			if mean := sum / draws; mean < ceiling*48/100 || mean > ceiling*52/100 {
				t.Errorf("%d, retry %d: the jitter's mean is %v, want %v", code, retry, mean, ceiling/2)
			}
		}
	}
}

// Even without jitter in the strategy, clients must not come back together.
func TestRetryAfterIsSpreadWhateverTheStrategy(t *testing.T) {
	p, s, r := testPolicy(t), fresh(), seeded(3)
	for _, b := range []backoff.Strategy{backoff.Fixed{Base: time.Second}, backoff.Ratio{First: time.Second, Ratio: 1, Max: time.Minute}, constant(time.Second)} {
		p.Backoff = b
		seen := map[time.Duration]bool{}
		for range 100 {
			seen[p.Decide(&Result{Status: 503, RetryAfter: time.Second, HasRetryAfter: true}, &s, nil, 0, r).Wait] = true
		}
		if len(seen) < 95 {
			t.Errorf("%v: %d different waits of 100", b, len(seen))
		}
	}
}

// A fixed backoff is the least wait, also after a shorter Retry-After or a shorter Throttled. No other
// strategy keeps an upstream's shorter time waiting.
func TestAFixedBackoffIsTheLeastWait(t *testing.T) {
	const least = 300 * time.Millisecond
	extra, err := backoff.New("fixed", backoff.Options{Base: least, Extra: least})
	if err != nil {
		t.Fatal(err)
	}
	p, s, r := testPolicy(t), fresh(), seeded(3)
	p.Throttled = backoff.FullJitter{Base: time.Millisecond, Max: time.Millisecond, Factor: 2}
	for _, b := range []backoff.Strategy{backoff.Fixed{Base: least}, extra, backoff.FullJitter{Base: least, Max: least, Factor: 2}} {
		p.Backoff = b
		shorter := false
		for _, a := range []Result{
			{Status: 503}, {Status: 429},
			{Status: 503, HasRetryAfter: true}, {Status: 429, HasRetryAfter: true},
			{Status: 503, HasRetryAfter: true, RetryAfter: 10 * time.Millisecond},
		} {
			for range 200 {
				d := p.Decide(&a, &s, nil, 0, r)
				if !d.Retry {
					t.Fatalf("%v, %+v: %v", b, a, d.Why)
				}
				shorter = shorter || d.Wait < least
			}
		}
		if _, jitter := b.(backoff.FullJitter); shorter != jitter {
			t.Errorf("%v: a wait shorter than %v: %v, want %v", b, least, shorter, jitter)
		}
	}
}

// Whether a Retry-After fits must not depend on the draw.
func TestRetryAfterThatFitsIsAlwaysKept(t *testing.T) {
	p, s, r := testPolicy(t), fresh(), seeded(3)
	p.Backoff = backoff.FullJitter{Base: time.Minute, Max: time.Minute, Factor: 2}
	for _, tc := range []struct {
		name                 string
		after, left, longest time.Duration
		why                  Reason
	}{
		{name: "much room", after: time.Second, left: time.Hour, longest: 61 * time.Second, why: ReasonStatus503},
		{name: "little room", after: 20 * time.Second, left: 30 * time.Second, longest: 25 * time.Second, why: ReasonStatus503},
		{name: "no room for jitter", after: 30*time.Second - 1, left: 30 * time.Second, longest: 30*time.Second - 1, why: ReasonStatus503},
		{name: "no room", after: 30 * time.Second, left: 30 * time.Second, why: ReasonRetryAfterTooLong},
		{name: "never", after: backoff.Forever, left: backoff.Forever, why: ReasonRetryAfterTooLong},
		{name: "no deadline", after: backoff.Forever - 5, left: backoff.Forever, longest: backoff.Forever - 3, why: ReasonStatus503},
		{name: "at once", after: 0, left: 2, longest: 1, why: ReasonStatus503},
	} {
		s.Left = tc.left
		for range 200 {
			d := p.Decide(&Result{Status: 503, RetryAfter: tc.after, HasRetryAfter: true}, &s, nil, 0, r)
			if d.Why != tc.why || d.Retry != tc.why.ForRetry() || d.Wait > tc.longest || d.Retry && d.Wait < tc.after {
				t.Errorf("%s: %+v (%v)", tc.name, d, d.Why)
				break
			}
		}
	}
}

func TestBudgetIsAskedLastAndOnlyForWhatIsSent(t *testing.T) {
	p, r := testPolicy(t), seeded(1)
	for _, tc := range []struct {
		name    string
		attempt Result
		change  func(*Situation)
		taken   float64
	}{
		{"retry", responded(503), nil, 1},
		{"success", responded(200), nil, 0},
		{"not safe", responded(503), func(s *Situation) { s.Safe = false }, 0},
		{"wait does not fit", responded(503), func(s *Situation) { s.Left = 1 }, 0},
		{"draining", responded(503), func(s *Situation) { s.Draining = true }, 0},
		{"free repeat", Result{Cause: CauseIdleClose}, nil, 0},
		{"second idle close", Result{Cause: CauseIdleClose}, func(s *Situation) { s.FreeRetries = 1 }, 1},
	} {
		b, s := budget.New(budget.Default()), fresh()
		if tc.change != nil {
			tc.change(&s)
		}
		before := b.Tokens(0)
		p.Decide(&tc.attempt, &s, b, 0, r)
		if taken := before - b.Tokens(0); taken != tc.taken {
			t.Errorf("%s: %v tokens taken, want %v", tc.name, taken, tc.taken)
		}
	}
}

func TestZeroPolicyRetriesNothing(t *testing.T) {
	var p Policy
	s := fresh()
	for _, c := range allCauses() {
		s.FreeRetries = 1
		if d := p.Decide(&Result{Cause: c, Status: 503}, &s, nil, 0, seeded(1)); d.Retry {
			t.Errorf("%v: %+v", c, d)
		}
	}
}

func TestDecideDoesNotAllocate(t *testing.T) {
	p, s, b := testPolicy(t), fresh(), budget.New(budget.Config{Ratio: 1, MinPerSecond: 10_000, Burst: 1_000_000})
	p.Backoff = backoff.FullJitter{Base: time.Second, Max: 8 * time.Second, Factor: 2}
	header := HeaderLookup(headersOf{})
	attempts := []Result{
		responded(200), responded(503), {Cause: CauseDial}, {Cause: CauseIdleClose}, {Status: 200, Header: header},
		{Status: 429, RetryAfter: time.Second, HasRetryAfter: true},
	}
	r := backoff.Shared()
	n := testing.AllocsPerRun(100, func() {
		b.Request(0)
		for i := range attempts {
			p.Decide(&attempts[i], &s, b, 0, r)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// headersOf has a header of every name and does not allocate.
type headersOf struct{}

func (headersOf) Lookup(string) ([]byte, bool) { return nil, true }

func BenchmarkDecide(b *testing.B) {
	p, s := testPolicy(b), fresh()
	p.Backoff = backoff.FullJitter{Base: 100 * time.Millisecond, Max: 32 * time.Second, Factor: 2}
	r := backoff.Shared()
	for _, bc := range []struct {
		name    string
		attempt Result
	}{
		{"success", responded(200)},
		{"retry", responded(503)},
		{"retry-after", Result{Status: 503, RetryAfter: time.Second, HasRetryAfter: true}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			budget := budget.New(budget.Config{Ratio: 1, MinPerSecond: 10_000, Burst: 1_000_000})
			b.ReportAllocs()
			var now time.Duration
			for b.Loop() {
				now += time.Millisecond
				p.Decide(&bc.attempt, &s, budget, now, r)
			}
		})
	}
}
