package backoff

import (
	"math"
	"slices"
	"testing"
	"time"
)

func mustNew(t testing.TB, name string, o Options) Strategy {
	t.Helper()
	b, err := New(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// steps are the steps at which the properties are checked: early, late and absurd ones.
var steps = []Step{
	{},
	{Retry: 1, Previous: 100 * time.Millisecond, Elapsed: 150 * time.Millisecond},
	{Retry: 3, Previous: 2 * time.Second, Elapsed: 5 * time.Second},
	{Retry: 7, Previous: 20 * time.Second, Elapsed: time.Minute},
	{Retry: 9, Previous: 32 * time.Second, Elapsed: 2 * time.Minute},
	{Retry: 19, Previous: 10 * time.Minute, Elapsed: time.Hour},
	{Retry: 10_000, Previous: time.Hour, Elapsed: 100 * time.Hour},
	{Retry: math.MaxInt, Previous: Forever, Elapsed: Forever},
	{Retry: 5}, // after a free retry: no wait before
	{Retry: -1, Previous: -5, Elapsed: -5},
}

// settings are the options with which the properties are checked.
var settings = []Options{
	{},
	{Extra: time.Second},
	{Base: time.Nanosecond, Factor: 1000, Jitter: 1, Ratio: 1000, Slots: 32, Spread: 1},
	{Base: Longest, Factor: 1000, Jitter: 1, Ratio: 1000, Slots: 32, Spread: Longest, Stay: true, Extra: Longest},
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

// Ten thousand retries in a row, each with the previous wait as input.
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
				s.Previous, s.Elapsed = w, AddUp(s.Elapsed, w)
			}
		}
	}
}

// The same seed yields the same waits, so that tests and simulations are reproducible.
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

// means are computed by hand from the formulas, in milliseconds.
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
	{"decorrelated", Options{}, Step{Retry: 5, Previous: 20e9}, 16_050},             // U(100, 32000): the cap applies to the range
	{"fixed", Options{Base: 250e6}, Step{Retry: 7}, 250},                            //
	{"fixed", Options{Base: 250e6, Extra: 500e6}, Step{Retry: 7}, 500},              // 250 + 500/2
	{"additive", Options{}, Step{Retry: 0}, 1500},                                   // 1 s + U(0, 1 s)
	{"additive", Options{}, Step{Retry: 3}, 8500},                                   //
	{"additive", Options{}, Step{Retry: 5}, 31_500},                                 // at the cap: 31 s + U(0, 1 s)
	{"additive", Options{Max: 8500e6}, Step{Retry: 3}, 8000},                        // 7.5 s + U(0, 1 s)
	{"additive", Options{Extra: 2e9}, Step{Retry: 9}, 32_500},                       //
	{"normal", Options{}, Step{Retry: 0}, 100},                                      //
	{"normal", Options{}, Step{Retry: 3, Previous: 700e6}, 1400},                    //
	{"normal", Options{}, Step{Retry: 30, Previous: 15 * time.Minute}, 900_000},     // the cap is before the noise
	{"normal", Options{Jitter: 1}, Step{Retry: 3, Previous: 500e6}, 1083.3},         // clipped at 0: phi(1) + Phi(1) = 1.0833
	{"proportional", Options{}, Step{Retry: 3}, 800},                                // 640 to 960
	{"proportional", Options{Max: 12e9}, Step{Retry: 9}, 10_000},                    // 8000 to 12000, the cap
	{"slots", Options{}, Step{Retry: 0}, 5},                                         // k in 0..1: 0, 1 slots
	{"slots", Options{}, Step{Retry: 2}, 27.5},                                      // k in 0..3: 0, 1, 3, 7 slots
	{"slots", Options{}, Step{Retry: 8}, 1013},                                      // k in 0..9: (2^10 - 1 - 10)/10 slots
	{"slots", Options{}, Step{Retry: 10}, 5},                                        // restarted
	{"slots", Options{Stay: true}, Step{Retry: 40}, 10 * (2047.0 - 11) / 11},        // k in 0..10
	{"slots", Options{Max: 50e6}, Step{Retry: 2}, 22.5},                             // 0, 10, 30, 50
	{"slots", Options{Max: 50e6}, Step{Retry: 6}, 22.5},                             // the same k
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

func TestUpToTakesTheLargestDuration(t *testing.T) {
	r := seeded(43)
	for _, d := range []time.Duration{-1, 0, 1, Forever - 1, Forever} {
		for range 100 {
			if w := UpTo(r, d); w < 0 || w > max(d, 0) {
				t.Fatalf("up to %v: %v", d, w)
			}
		}
	}
}
