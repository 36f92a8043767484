package policy

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
)

func TestPlanAddsUp(t *testing.T) {
	for _, name := range backoff.Strategies() {
		b := mustNew(t, name, backoff.Options{})
		rows := Plan(b, 12, PlanOptions{Attempt: 100 * time.Millisecond, Samples: 2000, Seed: 1})
		var before backoff.Range
		for i, row := range rows {
			if row.Retry != i+1 {
				t.Errorf("%s: row %d is retry %d", name, i, row.Retry)
			}
			const at = 100 * time.Millisecond
			if backoff.Bounded(b) && (row.Total.Min != before.Min+at+row.Wait.Min || row.Total.Max != before.Max+at+row.Wait.Max) ||
				math.Abs(float64(row.Total.Mean-before.Mean-at-row.Wait.Mean)) > 1000 {
				t.Errorf("%s: retry %d: %+v after %+v", name, row.Retry, row, before)
			}
			if row.Wait.Min > row.Wait.Mean || row.Wait.Mean > row.Wait.Max {
				t.Errorf("%s: retry %d: %+v", name, row.Retry, row.Wait)
			}
			before = row.Total
		}
	}
}

func TestPlanIsTheSameForTheSameSeed(t *testing.T) {
	b := mustNew(t, "decorrelated", backoff.Options{})
	one, two := Plan(b, 5, PlanOptions{Seed: 4}), Plan(b, 5, PlanOptions{Seed: 4})
	if !reflect.DeepEqual(one, two) {
		t.Errorf("%v and %v", one, two)
	}
	if three := Plan(b, 5, PlanOptions{Seed: 5}); reflect.DeepEqual(one, three) {
		t.Error("another seed changes nothing")
	}
}

func TestPlanMeansAreThoseOfTheory(t *testing.T) {
	rows := Plan(mustNew(t, "full-jitter", backoff.Options{}), 10, PlanOptions{Samples: 100_000})
	for i, row := range rows {
		want := 50 * math.Exp2(float64(i))
		if i == 9 {
			want = 16_000
		}
		if got := float64(row.Wait.Mean) / 1e6; math.Abs(got-want) > 0.02*want {
			t.Errorf("retry %d: mean %v ms, want %v", i+1, got, want)
		}
	}
}

// Ratio uses the time that has passed, including attempts.
func TestPlanCountsAttemptsAsTime(t *testing.T) {
	rows := Plan(backoff.Ratio{First: time.Second, Ratio: 1, Max: time.Hour}, 3, PlanOptions{Attempt: time.Second})
	for i, want := range []time.Duration{2, 5, 11} { // 1+1; 3+1 -> wait 5; 8+1 -> wait 10 ...
		if got := rows[i].Wait; got.Min != want*time.Second || got.Max != got.Min {
			t.Errorf("retry %d: %+v, want %d s", i+1, got, want)
		}
	}
}

func TestPlanOfOddArguments(t *testing.T) {
	if rows := Plan(backoff.None{}, -1, PlanOptions{}); len(rows) != 0 {
		t.Errorf("%v", rows)
	}
	if rows := Plan(nil, 2, PlanOptions{}); len(rows) != 2 || rows[1].Total.Max != 0 {
		t.Errorf("no backoff: %v", rows)
	}
	rows := Plan(mustNew(t, "full-jitter", backoff.Options{Base: backoff.Longest}), 2000, PlanOptions{Attempt: backoff.Longest})
	if last := rows[1999]; last.Total.Max != backoff.Forever || last.Total.Mean < 0 {
		t.Errorf("sums that overflow: %+v", last)
	}
	// A strategy that does not know its range is sampled.
	rows = Plan(noRange{}, 1, PlanOptions{})
	if w := rows[0].Wait; w.Min > 50*time.Millisecond || w.Max < 950*time.Millisecond || w.Min > w.Mean || w.Mean > w.Max {
		t.Errorf("without a range: %+v", w)
	}
	if rows := Plan(constant(-time.Second), 1, PlanOptions{}); rows[0].Wait != (backoff.Range{}) {
		t.Errorf("a negative wait: %+v", rows[0])
	}
}

type noRange struct{}

func (noRange) Wait(_ backoff.Step, r backoff.Rand) time.Duration {
	return backoff.UpTo(r, time.Second)
}

func TestWorst(t *testing.T) {
	full := backoff.FullJitter{Base: 100 * time.Millisecond, Max: 32 * time.Second, Factor: 2}
	additive := backoff.Additive{Base: time.Second, Max: 32 * time.Second, Spread: time.Second, Factor: 2}
	for _, tc := range []struct {
		name             string
		policy           Policy
		request, attempt time.Duration
		want             Worst
	}{
		{"interactive", Policy{MaxRetries: 3, Backoff: full}, 30 * time.Second, 10 * time.Second,
			// 10 + 0.1, 20.1 + 0.2; the third would begin at 30.3 + 0.4
			Worst{Total: 30 * time.Second, Attempts: 4, SlowAttempts: 3, LastBegins: 20*time.Second + 300*time.Millisecond}},
		{"batch", Policy{MaxRetries: 8, Backoff: additive}, 180 * time.Second, 10 * time.Second,
			// waits 2 3 5 9 17 32 32 32, attempts of 10: 12 25 40 59 86 128 170 (212)
			Worst{Total: 180 * time.Second, Attempts: 9, SlowAttempts: 8, LastBegins: 170 * time.Second}},
		{"shortest waits do not fit", Policy{MaxRetries: 8, Backoff: additive}, 10 * time.Second, time.Second,
			// 1+2+4 = 7; + 8 = 15. Slow: 1+2, 4+3, 8+... = 3, 7, 13
			Worst{Total: 10 * time.Second, Attempts: 4, SlowAttempts: 3, LastBegins: 7 * time.Second}},
		{"no timeouts", Policy{MaxRetries: 3, Backoff: full}, 0, 0, Worst{Total: backoff.Forever, Attempts: 4, SlowAttempts: 1}},
		{"no attempt timeout", Policy{MaxRetries: 3, Backoff: full}, time.Minute, 0, Worst{Total: time.Minute, Attempts: 4, SlowAttempts: 1}},
		{"attempt timeout above the request's", Policy{MaxRetries: 3, Backoff: full}, time.Second, time.Minute, Worst{Total: time.Second, Attempts: 4, SlowAttempts: 1}},
		{"retries off", Policy{Backoff: full}, time.Minute, time.Second, Worst{Total: time.Minute, Attempts: 1, SlowAttempts: 1}},
		{"no backoff", Policy{MaxRetries: 2}, time.Minute, time.Second, Worst{Total: time.Minute, Attempts: 3, SlowAttempts: 3, LastBegins: 2 * time.Second}},
	} {
		if got := tc.policy.Worst(tc.request, tc.attempt); got != tc.want {
			t.Errorf("%s:\n got %+v\nwant %+v", tc.name, got, tc.want)
		}
	}
}

func TestAmplification(t *testing.T) {
	c := budget.Default()
	for _, tc := range []struct {
		config    budget.Config
		attempts  int
		perSecond float64
		want      float64
	}{
		{c, 4, 0, 1.2}, {c, 4, 100, 1.21}, {c, 4, 1, 2.2}, {c, 4, 0.1, 4}, {c, 1, 0.1, 1}, {c, 0, 100, 1},
		{budget.Config{}, 4, 100, 1}, {budget.Config{Ratio: 5}, 3, 0, 3}, {budget.Config{Ratio: -1, MinPerSecond: -1}, 3, 1, 1},
	} {
		if got := tc.config.Amplification(tc.attempts, tc.perSecond); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%+v, %d attempts at %v/s: %v, want %v", tc.config, tc.attempts, tc.perSecond, got, tc.want)
		}
	}
}

// Amplification returns what the bucket really allows.
func TestAmplificationIsWhatTheBudgetAllows(t *testing.T) {
	const rate, seconds = 20, 2000
	b, sends := budget.New(budget.Default()), 0
	for i := range rate * seconds {
		now := time.Duration(i) * time.Second / rate
		b.Request(now)
		sends++
		for range 3 {
			if b.TryRetry(now) {
				sends++
			}
		}
	}
	got, want := float64(sends)/(rate*seconds), budget.Default().Amplification(4, rate)
	if math.Abs(got-want) > 0.002 {
		t.Errorf("%v sends per request, the calculation says %v", got, want)
	}
}

// counting counts the waits asked for.
type counting struct{ waits *int }

func (c counting) Wait(backoff.Step, backoff.Rand) time.Duration { *c.waits++; return 0 }

// Range depends on the wait before, so that means are sampled.
func (c counting) Range(s backoff.Step) backoff.Range { return backoff.Range{Max: s.Previous + 1} }

func TestLongPlansStayQuick(t *testing.T) {
	n := 0
	Plan(counting{&n}, 5000, PlanOptions{Samples: 1_000_000})
	if n == 0 || n > maxDraws {
		t.Errorf("%d draws, at most %d", n, maxDraws)
	}
}

// Means are those of the formulas: at retry 9 slots draws k from 0..9, so the mean is
// (2^10 - 1 - 10) / 10 slots of 10 ms.
func TestMeansOfAPlanAreExact(t *testing.T) {
	rows := Plan(mustNew(t, "slots", backoff.Options{}), 9, PlanOptions{Attempt: time.Second})
	if got := rows[8].Wait.Mean; got != 1013*time.Millisecond {
		t.Errorf("mean %v, want 1013ms", got)
	}
	rows = Plan(mustNew(t, "additive", backoff.Options{}), 8, PlanOptions{Attempt: time.Second})
	if got := rows[7].Total.Mean; got != 136*time.Second {
		t.Errorf("mean total %v, want 124s of waits, 4s of jitter and 8s of attempts", got)
	}
}
