package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func mustNew(t testing.TB, name string, o Options) Backoff {
	t.Helper()
	b, err := New(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// steps are the situations that the properties are checked in: early, late,
// absurd.
var steps = []Step{
	{},
	{Retry: 1, Previous: 100 * time.Millisecond, Elapsed: 150 * time.Millisecond},
	{Retry: 3, Previous: 2 * time.Second, Elapsed: 5 * time.Second},
	{Retry: 7, Previous: 20 * time.Second, Elapsed: time.Minute},
	{Retry: 9, Previous: 32 * time.Second, Elapsed: 2 * time.Minute},
	{Retry: 19, Previous: 10 * time.Minute, Elapsed: time.Hour},
	{Retry: 10_000, Previous: time.Hour, Elapsed: 100 * time.Hour},
	{Retry: math.MaxInt, Previous: Forever, Elapsed: Forever},
	{Retry: 5}, // after a free repeat: no wait before
	{Retry: -1, Previous: -5, Elapsed: -5},
}

// settings are the options that the properties are checked with.
var settings = []Options{
	{},
	{Extra: time.Second},
	{Base: time.Nanosecond, Factor: 1000, Jitter: 1, Ratio: 1000, Slots: 32, Spread: 1},
	{Base: longest, Factor: 1000, Jitter: 1, Ratio: 1000, Slots: 32, Spread: longest, Stay: true, Extra: longest},
	{Max: time.Millisecond, Factor: 1, Slots: 1},
	{Base: time.Second, Slots: 1, Stay: true},
}

func TestWaitsStayInTheirRange(t *testing.T) {
	r := seeded(31)
	for _, name := range Strategies() {
		for _, o := range settings {
			b := mustNew(t, name, o)
			for _, s := range steps {
				rg := b.(Ranger).Range(s)
				if rg.Min < 0 || rg.Min > rg.Mean || rg.Mean > rg.Max {
					t.Errorf("%v at %+v: range %+v", b, s, rg)
				}
				for range 300 {
					w := b.Wait(s, r)
					if w < 0 || name != "normal" && (w < rg.Min || w > rg.Max) {
						t.Fatalf("%v at %+v: waits %v, range %+v", b, s, w, rg)
					}
				}
			}
		}
	}
}

// Ten thousand retries in a row, each fed the wait before.
func TestNoOverflowAtRetryTenThousand(t *testing.T) {
	r := seeded(32)
	for _, name := range Strategies() {
		for _, o := range settings {
			b := mustNew(t, name, o)
			var s Step
			for s.Retry = range 10_001 {
				w := b.Wait(s, r)
				if w < 0 {
					t.Fatalf("%v: retry %d waits %v", b, s.Retry, w)
				}
				s.Previous, s.Elapsed = w, addUp(s.Elapsed, w)
			}
		}
	}
}

// The same seed gives the same waits, so that tests and simulations repeat.
func TestSeedDecidesTheWaits(t *testing.T) {
	for _, name := range Strategies() {
		b := mustNew(t, name, Options{Extra: time.Second})
		var a, c []time.Duration
		one, two := seeded(33), seeded(33)
		for i := range 20 {
			s := Step{Retry: i, Previous: time.Second, Elapsed: time.Minute}
			a, c = append(a, b.Wait(s, one)), append(c, b.Wait(s, two))
		}
		if !slices.Equal(a, c) {
			t.Errorf("%s: %v and %v", name, a, c)
		}
	}
}

// means are worked out by hand from the formulas, in milliseconds.
var means = []struct {
	strategy string
	o        Options
	s        Step
	ms       float64
}{
	{"full-jitter", Options{}, Step{Retry: 0}, 50},
	{"full-jitter", Options{}, Step{Retry: 4}, 800},
	{"full-jitter", Options{}, Step{Retry: 9}, 16_000},
	{"equal-jitter", Options{}, Step{Retry: 0}, 75},
	{"equal-jitter", Options{}, Step{Retry: 4}, 1200},
	{"equal-jitter", Options{}, Step{Retry: 10_000}, 24_000},
	{"decorrelated", Options{}, Step{Retry: 0}, 200},                                // U(100, 300)
	{"decorrelated", Options{}, Step{Retry: 1, Previous: 300e6}, 500},               // U(100, 900)
	{"decorrelated", Options{}, Step{Retry: 5, Previous: 20e9}, 23_506},             // min(32000, U(100, 60000)): (31900*16050 + 28000*32000)/59900
	{"fixed", Options{Base: 250e6}, Step{Retry: 7}, 250},                            //
	{"fixed", Options{Base: 250e6, Extra: 500e6}, Step{Retry: 7}, 500},              // 250 + 500/2
	{"additive", Options{}, Step{Retry: 0}, 1500},                                   // 1 s + U(0, 1 s)
	{"additive", Options{}, Step{Retry: 3}, 8500},                                   //
	{"additive", Options{}, Step{Retry: 5}, 32_000},                                 // at the cap
	{"additive", Options{Max: 8500e6}, Step{Retry: 3}, 8375},                        // half of the draws are capped: (8250 + 8500)/2
	{"additive", Options{Extra: 2e9}, Step{Retry: 9}, 33_000},                       //
	{"normal", Options{}, Step{Retry: 0}, 100},                                      //
	{"normal", Options{}, Step{Retry: 3, Previous: 700e6}, 1400},                    //
	{"normal", Options{}, Step{Retry: 30, Previous: 15 * time.Minute}, 900_000},     // the cap is before the noise
	{"normal", Options{Jitter: 1}, Step{Retry: 3, Previous: 500e6}, 1083.3},         // clipped at 0: phi(1) + Phi(1) = 1.0833
	{"slots", Options{}, Step{Retry: 0}, 5},                                         // k in 0..1: 0, 1 slots
	{"slots", Options{}, Step{Retry: 2}, 27.5},                                      // k in 0..3: 0, 1, 3, 7 slots
	{"slots", Options{}, Step{Retry: 8}, 1013},                                      // k in 0..9: (2^10 - 1 - 10)/10 slots
	{"slots", Options{}, Step{Retry: 10}, 5},                                        // begun again
	{"slots", Options{Stay: true}, Step{Retry: 40}, 10 * (2047.0 - 11) / 11},        // k in 0..10
	{"slots", Options{Max: 50e6}, Step{Retry: 2}, 22.5},                             // 0, 10, 30, 50
	{"ratio", Options{Ratio: 0.5}, Step{Retry: 4, Elapsed: 20 * time.Second}, 11e3}, // 1 s + half of 20 s
}

func TestMeansAreThoseOfTheFormulas(t *testing.T) {
	const draws = 1_000_000
	r := seeded(34)
	for _, tc := range means {
		b := mustNew(t, tc.strategy, tc.o)
		sum := 0.0
		for range draws {
			sum += float64(b.Wait(tc.s, r))
		}
		want := tc.ms * 1e6
		if got := sum / draws; math.Abs(got-want) > 0.02*want {
			t.Errorf("%v at %+v: mean %v, want %v", b, tc.s, time.Duration(got), time.Duration(want))
		}
		theory := float64(b.(Ranger).Range(tc.s).Mean)
		if clipped := tc.o.Jitter == 1; !clipped && math.Abs(theory-want) > 0.001*want {
			t.Errorf("%v at %+v: Range says mean %v, want %v", b, tc.s, time.Duration(theory), time.Duration(want))
		}
	}
}

// A mean in the right place says nothing of the shape: full jitter must reach
// every tenth of its range equally often, both ends included.
func TestFullJitterIsUniform(t *testing.T) {
	b, r := FullJitter{Base: 9, Max: 9, Factor: 2}, seeded(35)
	var counts [10]int
	const draws = 100_000
	for range draws {
		counts[b.Wait(Step{}, r)]++
	}
	for w, n := range counts {
		if n < draws/10*94/100 || n > draws/10*106/100 {
			t.Errorf("%d ns: %d of %d draws", w, n, draws)
		}
	}
}

func TestNormalHasTheSpreadAsked(t *testing.T) {
	b, r := Normal{Base: 1, Max: time.Hour, Factor: 2, Jitter: 0.1}, seeded(36)
	s := Step{Retry: 4, Previous: 500 * time.Millisecond}
	const draws = 200_000
	var squares float64
	for range draws {
		d := (b.Wait(s, r) - time.Second).Seconds()
		squares += d * d
	}
	if sigma := math.Sqrt(squares / draws); sigma < 0.098 || sigma > 0.102 {
		t.Errorf("standard deviation %v s, want 0.1 s", sigma)
	}
}

// The published curves of the rule: the wait of each retry, and the time at
// which the cap is reached.
func TestNormalFollowsThePublishedCurves(t *testing.T) {
	for _, tc := range []struct {
		o     Options
		curve []float64 // seconds, without noise
	}{
		{Options{Base: 100 * time.Millisecond, Factor: 2.7, Jitter: 0.1, Max: 10 * time.Minute},
			[]float64{0.1, 0.27, 0.729, 1.9683, 5.31441, 14.348907, 38.742049, 104.603532, 282.429536, 600, 600, 600}},
		{Options{Base: time.Second, Factor: 1.5, Jitter: 0.1, Max: 5 * time.Minute},
			[]float64{1, 1.5, 2.25, 3.375, 5.0625, 7.59375, 11.390625, 17.085938, 25.628906, 38.443359, 57.665039,
				86.497559, 129.746338, 194.619507, 291.929260, 300, 300, 300}},
	} {
		b := mustNew(t, "normal", tc.o)
		r := seeded(37)
		const walks = 20_000
		sums := make([]float64, len(tc.curve))
		for range walks {
			next := walkRandom(b, PlanOptions{}, r)
			for i := range sums {
				w, _ := next(i)
				if i == 0 && w != tc.o.Base {
					t.Fatalf("the first wait is %v", w)
				}
				sums[i] += w.Seconds()
			}
		}
		for i, want := range tc.curve {
			tolerance := 0.02 * want
			if want > 0.6*tc.o.Max.Seconds() {
				tolerance = 0.15 * want // some walks are at the cap, some not yet: the mean is below either
			}
			if got := sums[i] / walks; math.Abs(got-want) > tolerance {
				t.Errorf("%v: retry %d waits %.3f s in the mean, the curve says %.3f", b, i+1, got, want)
			}
		}
	}
}

// Noise must be inherited, else the rule is a plain jittered curve.
func TestNormalFeedsTheNextStepWithWhatWasWaited(t *testing.T) {
	b, r := Normal{Base: time.Second, Max: time.Hour, Factor: 2, Jitter: 1e-9}, seeded(38)
	if w := b.Wait(Step{Retry: 1, Previous: 7 * time.Second}, r); w < 13*time.Second || w > 15*time.Second {
		t.Errorf("after a wait of 7 s comes %v, want 14 s", w)
	}
}

func TestSlotsWalk(t *testing.T) {
	for _, tc := range []struct {
		name    string
		slots   Slots
		longest []int // in slots, per failure; -1 a reset
	}{
		{"defaults", Slots{Slot: 1, Ceiling: 10}, []int{1, 3, 7, 15, 31, 63, 127, 255, 511, -1, 1, 3}},
		{"stay", Slots{Slot: 1, Ceiling: 10, Stay: true}, []int{1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 1023, 1023}},
		{"ceiling 2", Slots{Slot: 1, Ceiling: 2}, []int{1, -1, 1, -1}},
		{"ceiling 1", Slots{Slot: 1, Ceiling: 1}, []int{-1, -1}},
		{"ceiling 1, stay", Slots{Slot: 1, Ceiling: 1, Stay: true}, []int{1, 1}},
	} {
		r := seeded(39)
		seen := make([]time.Duration, len(tc.longest))
		for range 3000 {
			st := SlotsState{Slots: tc.slots}
			for i, want := range tc.longest {
				before := st
				w := st.Failure(r)
				seen[i] = max(seen[i], w)
				if reset := st.Resets > before.Resets; reset != (want < 0) || reset && (w != 0 || st.Retries != 0) || !reset && st.Retries != before.Retries+1 || st.Total != i+1 {
					t.Fatalf("%s: failure %d: wait %v, from %+v to %+v", tc.name, i, w, before, st)
				}
				if want := tc.slots.Range(Step{Retry: i}).Max; w > want {
					t.Fatalf("%s: failure %d: state and pure form disagree: %v of %v", tc.name, i, w, want)
				}
			}
		}
		for i, want := range tc.longest {
			if seen[i] != time.Duration(max(want, 0)) {
				t.Errorf("%s: longest wait at failure %d is %d slots, want %d", tc.name, i, seen[i], max(want, 0))
			}
		}
	}
}

// noDraw fails the test when it is drawn from.
type noDraw struct{ t *testing.T }

func (n noDraw) Int64N(int64) int64   { n.t.Error("drawn"); return 0 }
func (n noDraw) Float64() float64     { n.t.Error("drawn"); return 0 }
func (n noDraw) NormFloat64() float64 { n.t.Error("drawn"); return 0 }

func TestNothingIsDrawnWhereNothingIsRandom(t *testing.T) {
	r := noDraw{t}
	for _, tc := range []struct {
		b Backoff
		s Step
	}{
		{Slots{Slot: 1, Ceiling: 10}, Step{Retry: 9}},
		{Normal{Base: 1, Max: 2, Factor: 2, Jitter: 0.1}, Step{}},
		{Fixed{1}, Step{}}, {None{}, Step{}}, {Ratio{First: 1, Ratio: 1, Max: 9}, Step{}},
	} {
		tc.b.Wait(tc.s, r)
	}
}

func TestSlotsLongestWaits(t *testing.T) {
	for stay, want := range map[bool]time.Duration{false: 5110 * time.Millisecond, true: 10230 * time.Millisecond} {
		b := mustNew(t, "slots", Options{Stay: stay})
		longest := time.Duration(0)
		for i := range 100 {
			longest = max(longest, b.(Ranger).Range(Step{Retry: i}).Max)
		}
		if longest != want {
			t.Errorf("stay %v: longest wait %v, want %v", stay, longest, want)
		}
	}
}

func TestSlotsSuccessBeginsAgain(t *testing.T) {
	st, r := SlotsState{Slots: Slots{Slot: time.Second, Ceiling: 10}}, seeded(40)
	for range 14 { // over a reset
		st.Failure(r)
	}
	st.Success()
	if st.Retries != 0 || st.Total != 14 || st.Resets != 1 {
		t.Errorf("after a success: %+v", st)
	}
	for range 50 {
		st.Success()
		if w := st.Failure(r); w > time.Second {
			t.Fatalf("the first wait after a success is %v", w)
		}
	}
}

// near compares seconds to the digits published.
func near(t *testing.T, what string, got time.Duration, want float64) {
	t.Helper()
	if math.Abs(got.Seconds()-want) > 0.0006 {
		t.Errorf("%s: %.4f s, want %v", what, got.Seconds(), want)
	}
}

func TestRatioPublishedChecks(t *testing.T) {
	double := Ratio{First: time.Second, Ratio: 1, Max: time.Hour}
	near(t, "wait after 1023 s", double.After(1023*time.Second), 1024)
	near(t, "T_10", double.Elapsed(10), 1023)
	near(t, "t_10", double.Nth(10), 1024)
	near(t, "success at 1030 s is noticed", double.Noticed(1030*time.Second), 2047)
	if n := double.Tries(1023 * time.Second); math.Abs(n-10) > 1e-9 {
		t.Errorf("tries in 1023 s: %v, want 10", n)
	}

	tenth := Ratio{First: time.Second, Ratio: 0.1, Max: time.Hour}
	near(t, "T_48 for r = 1.1", tenth.Elapsed(48), 960.172)
	near(t, "wait after T_48", tenth.After(tenth.Elapsed(48)), 97.017)
	if f := tenth.Multiplies(double); math.Abs(1/f-7.27) > 0.005 {
		t.Errorf("from r = 2 to 1.1: factor %v, want 7.27", 1/f)
	}
	if f := double.Multiplies(tenth); math.Abs(f-7.27) > 0.005 {
		t.Errorf("from r = 2 to 1.1: factor %v, want 7.27", f)
	}
	if f := tenth.Tries(1000*time.Second) / double.Tries(1000*time.Second); f < 4.5 || f > 5.5 {
		t.Errorf("within 1000 s the factor is %v, want about 5", f)
	}
}

// The questions are inverse to each other and to the waits themselves.
func TestRatioQuestionsAgreeWithTheWaits(t *testing.T) {
	for _, b := range []Ratio{{time.Second, 1, time.Hour}, {time.Second, 0.1, time.Hour}, {50 * time.Millisecond, 0.003, time.Hour}, {time.Minute, 0.5, Forever}} {
		elapsed := time.Duration(0)
		for n := range 12 {
			if d := b.Elapsed(float64(n)) - elapsed; d < -10 || d > 10 {
				t.Errorf("%v: T_%d = %v, the waits add up to %v", b, n, b.Elapsed(float64(n)), elapsed)
			}
			if got := b.Tries(elapsed); math.Abs(got-float64(n)) > 1e-6 {
				t.Errorf("%v: %v tries within T_%d", b, got, n)
			}
			w := b.Wait(Step{Retry: n, Elapsed: elapsed}, nil)
			if d := b.Before(b.Nth(float64(n+1))) - w; d < -10 || d > 10 {
				t.Errorf("%v: t_%d = %v, from t_%d it is %v", b, n, w, n+1, b.Before(b.Nth(float64(n+1))))
			}
			if got := b.Noticed(elapsed + w/2); got-(elapsed+w) < -10 || got-(elapsed+w) > 10 {
				t.Errorf("%v: success at %v is noticed at %v, want %v", b, elapsed+w/2, got, elapsed+w)
			}
			if got := b.Noticed(elapsed); got-elapsed < -10 || got-elapsed > 10 {
				t.Errorf("%v: success just at retry %d, %v, is noticed at %v", b, n, elapsed, got)
			}
			elapsed += w
		}
	}
	if got := (Ratio{time.Second, 1, time.Hour}).Noticed(Forever); got != Forever {
		t.Errorf("a recovery that never comes is noticed at %v", got)
	}
}

func TestAdditiveTable(t *testing.T) {
	b := mustNew(t, "additive", Options{}).(Ranger)
	for n, low := range []time.Duration{1, 2, 4, 8, 16, 32, 32, 32} {
		low *= time.Second
		if got := b.Range(Step{Retry: n}); got.Min != low || got.Max != min(low+time.Second, 32*time.Second) {
			t.Errorf("retry %d: %+v", n+1, got)
		}
	}
	b = mustNew(t, "additive", Options{Max: 64 * time.Second}).(Ranger)
	if got := b.Range(Step{Retry: 5}); got.Min != 32*time.Second || got.Max != 33*time.Second {
		t.Errorf("with a cap of 64 s: %+v", got)
	}
	// "inclusive": with a spread of 3 ns, 0 and 3 both come up.
	seen, r := map[time.Duration]bool{}, seeded(41)
	for range 200 {
		seen[Additive{Base: 1, Max: 100, Spread: 3, Factor: 2}.Wait(Step{}, r)] = true
	}
	if len(seen) != 4 || !seen[1] || !seen[4] {
		t.Errorf("waits seen: %v", seen)
	}
}

func TestDecorrelatedGrowsFromWhatWasWaited(t *testing.T) {
	b := Decorrelated{Base: 100 * time.Millisecond, Max: 32 * time.Second, Factor: 3}
	for _, tc := range []struct {
		s    Step
		high time.Duration
	}{
		{Step{}, 300 * time.Millisecond},
		{Step{Previous: time.Hour}, 300 * time.Millisecond}, // no wait was before the first
		{Step{Retry: 1, Previous: 200 * time.Millisecond}, 600 * time.Millisecond},
		{Step{Retry: 1}, 300 * time.Millisecond}, // after a free repeat
		{Step{Retry: 4, Previous: 30 * time.Second}, 32 * time.Second},
	} {
		if got := b.Range(tc.s); got.Min != b.Base || got.Max != tc.high {
			t.Errorf("%+v: %+v, want up to %v", tc.s, got, tc.high)
		}
	}
}

func TestDefaultsOfEachStrategy(t *testing.T) {
	for name, want := range map[string]string{
		"full-jitter":  "full-jitter base=100ms factor=2 max=32s",
		"equal-jitter": "equal-jitter base=100ms factor=2 max=32s",
		"decorrelated": "decorrelated base=100ms factor=3 max=32s",
		"fixed":        "fixed base=100ms",
		"none":         "none",
		"additive":     "additive base=1s factor=2 spread=1s max=32s",
		"normal":       "normal base=100ms factor=2 jitter=0.1 max=15m0s",
		"slots":        "slots base=10ms slots=10 reset max=32s",
		"ratio":        "ratio base=1s ratio=1 max=1h0m0s",
	} {
		if got := fmt.Sprint(mustNew(t, name, Options{})); got != want {
			t.Errorf("%s: %s", name, got)
		}
		info, ok := Describe(name)
		if !ok || info.Name != name || info.Summary == "" || info.Formula == "" || info.Source == "" {
			t.Errorf("%s is described as %+v", name, info)
		}
	}
	if got := len(Strategies()); got != 9 || !slices.IsSorted(Strategies()) {
		t.Errorf("strategies: %v", Strategies())
	}
	if _, ok := Describe("magic"); ok {
		t.Error("an unknown strategy is described")
	}
}

func TestOptionsReachTheStrategy(t *testing.T) {
	o := Options{Base: 2 * time.Second, Max: 9 * time.Second, Factor: 1.5, Jitter: 0.3, Spread: 4 * time.Second, Ratio: 0.7, Slots: 5, Stay: true}
	for name, want := range map[string]string{
		"full-jitter":  "full-jitter base=2s factor=1.5 max=9s",
		"equal-jitter": "equal-jitter base=2s factor=1.5 max=9s",
		"decorrelated": "decorrelated base=2s factor=1.5 max=9s",
		"fixed":        "fixed base=2s",
		"none":         "none",
		"additive":     "additive base=2s factor=1.5 spread=4s max=9s",
		"normal":       "normal base=2s factor=1.5 jitter=0.3 max=9s",
		"slots":        "slots base=2s slots=5 stay max=9s",
		"ratio":        "ratio base=2s ratio=0.7 max=9s",
	} {
		if got := fmt.Sprint(mustNew(t, name, o)); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := fmt.Sprint(mustNew(t, "none", Options{Extra: time.Second})); got != "none plus up to 1s" {
		t.Errorf("with extra jitter: %s", got)
	}
}

func TestOneOfBaseAndMaxMovesTheOther(t *testing.T) {
	if got := fmt.Sprint(mustNew(t, "full-jitter", Options{Base: time.Minute})); got != "full-jitter base=1m0s factor=2 max=1m0s" {
		t.Error(got)
	}
	if got := fmt.Sprint(mustNew(t, "full-jitter", Options{Max: time.Millisecond})); got != "full-jitter base=1ms factor=2 max=1ms" {
		t.Error(got)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		o    Options
		want []string
	}{
		{"magic", Options{}, []string{`"magic"`, "full-jitter", "slots"}},
		{"", Options{}, []string{"there is additive"}},
		{"full-jitter", Options{Base: -1, Max: longest + 1, Factor: 0.5}, []string{"full-jitter: ", "base", "max", "factor"}},
		{"full-jitter", Options{Base: 2 * time.Second, Max: time.Second}, []string{"base 2s is above max 1s"}},
		{"normal", Options{Jitter: math.NaN()}, []string{"jitter NaN"}},
		{"normal", Options{Jitter: 1.1, Factor: math.Inf(1)}, []string{"jitter 1.1", "factor +Inf"}},
		{"additive", Options{Spread: -1}, []string{"spread"}},
		{"ratio", Options{Ratio: -0.1}, []string{"ratio -0.1"}},
		{"slots", Options{Slots: 33}, []string{"slots 33"}},
		{"none", Options{Extra: -1}, []string{"extra"}},
	} {
		b, err := New(tc.name, tc.o)
		for _, want := range tc.want {
			if err == nil || !strings.Contains(err.Error(), want) || b != nil {
				t.Errorf("%s %+v: %v, %v; want an error that says %q", tc.name, tc.o, b, err, want)
			}
		}
	}
	if _, err := New("fixed", Options{Base: 2, Max: 1}); err != nil {
		t.Errorf("fixed has no cap, so the base cannot be above it: %v", err)
	}
}

func TestNewThrottled(t *testing.T) {
	for _, tc := range []struct {
		name string
		o    Options
		want string
	}{
		{"full-jitter", Options{}, "full-jitter base=1s factor=2 max=32s"},
		{"full-jitter", Options{Base: 3 * time.Second, Factor: 3}, "full-jitter base=3s factor=3 max=32s"},
		{"full-jitter", Options{Max: 500 * time.Millisecond}, "full-jitter base=500ms factor=2 max=500ms"},
		{"fixed", Options{}, "fixed base=1s"},
		{"additive", Options{}, "additive base=1s factor=2 spread=1s max=32s"},
		{"none", Options{}, "full-jitter base=1s factor=2 max=32s"},
		{"slots", Options{Base: 5 * time.Millisecond, Max: 9 * time.Second}, "full-jitter base=1s factor=2 max=9s"},
	} {
		b, err := NewThrottled(tc.name, tc.o, time.Second)
		if err != nil || fmt.Sprint(b) != tc.want {
			t.Errorf("%s %+v: %v, %v; want %s", tc.name, tc.o, b, err, tc.want)
		}
	}
	if _, err := NewThrottled("magic", Options{}, time.Second); err == nil {
		t.Error("an unknown strategy was made")
	}
}

func TestRegisteringANameTwicePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	register(strategy{Info: Info{Name: "none"}})
}

func TestSharedRandIsNeverOutOfRange(t *testing.T) {
	r := Shared()
	distinct := map[int64]bool{}
	for range 1000 {
		n, f := r.Int64N(1000), r.Float64()
		if n < 0 || n >= 1000 || f < 0 || f >= 1 || math.IsNaN(r.NormFloat64()) {
			t.Fatalf("%d, %v", n, f)
		}
		distinct[n] = true
	}
	if len(distinct) < 400 {
		t.Errorf("%d different numbers of 1000", len(distinct))
	}
}

func TestWaitDoesNotAllocate(t *testing.T) {
	r := Shared()
	for _, name := range Strategies() {
		b := mustNew(t, name, Options{Extra: time.Second})
		s := Step{Retry: 3, Previous: time.Second, Elapsed: time.Minute}
		if n := testing.AllocsPerRun(100, func() { b.Wait(s, r) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkWait(b *testing.B) {
	r := Shared()
	for _, name := range Strategies() {
		s := mustNew(b, name, Options{})
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Wait(Step{Retry: 4, Previous: time.Second, Elapsed: time.Minute}, r)
			}
		})
	}
}
