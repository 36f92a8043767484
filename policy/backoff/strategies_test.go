package backoff

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// A correct mean does not prove the distribution: full jitter must hit every tenth of its range
// equally often, including both ends.
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

func TestAdditiveTable(t *testing.T) {
	b := mustNew(t, "additive", Options{}).(Ranger)
	for n, low := range []time.Duration{1, 2, 4, 8, 16, 31, 31, 31} {
		low *= time.Second
		if got := b.Range(Step{Retry: n}); got.Min != low || got.Max != low+time.Second {
			t.Errorf("retry %d: %+v", n+1, got)
		}
	}
	b = mustNew(t, "additive", Options{Max: 64 * time.Second}).(Ranger)
	if got := b.Range(Step{Retry: 5}); got.Min != 32*time.Second || got.Max != 33*time.Second {
		t.Errorf("with a cap of 64 s: %+v", got)
	}
	// With a spread of 3 ns, both 0 and 3 occur.
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
		{Step{Previous: time.Hour}, 300 * time.Millisecond}, // no wait before the first retry
		{Step{Retry: 1, Previous: 200 * time.Millisecond}, 600 * time.Millisecond},
		{Step{Retry: 1}, 300 * time.Millisecond}, // after a free retry
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
		"proportional": "proportional base=100ms factor=2 jitter=0.2 max=32s",
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
	if got := len(Strategies()); got != 10 || !slices.IsSorted(Strategies()) {
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
		"proportional": "proportional base=2s factor=1.5 jitter=0.3 max=9s",
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
		{"", Options{}, []string{"the strategies are additive"}},
		{"full-jitter", Options{Base: -1, Max: Longest + 1, Factor: 0.5}, []string{"full-jitter: ", "base", "max", "factor"}},
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
	register(kind{Info: Info{Name: "none"}})
}
