package backoff

import (
	"testing"
	"time"
)

// A cap leaves jitter, in every strategy that has any: no wait is that of most clients, at any step and
// with any cap, and none is longer than the cap. Wait and Range agree.
func TestACapLeavesJitter(t *testing.T) {
	r := seeded(51)
	capped := 0
	for _, name := range Strategies() {
		info, _ := Describe(name)
		if !Spreads(mustNew(t, name, Options{})) || info.Defaults.Max == 0 {
			continue // fixed, none, ratio: they have none anywhere
		}
		for range 300 {
			o := Options{Base: time.Duration(1e6 + r.Int64N(1e9)), Spread: time.Duration(1e6 + r.Int64N(1e9)), Factor: 1.5 + r.Float64()}
			o.Max = o.Base * time.Duration(2+r.Int64N(50))
			throttled, err := NewThrottled(name, o, time.Duration(r.Int64N(4*int64(o.Max))))
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range []Strategy{mustNew(t, name, o), throttled} {
				s := Step{Retry: 1 + r.IntN(8), Previous: o.Max/2 + time.Duration(r.Int64N(int64(o.Max/2)))}
				if _, is := b.(Slots); is && s.Retry%10 == 9 {
					continue // it begins again, without a wait
				}
				low, high, most := drawn(b, s, r)
				got := b.(Ranger).Range(s)
				if most > 60 || got.Max <= got.Min {
					t.Fatalf("%v at %+v: %d %% of the clients wait the same; range %+v", b, s, most, got)
				}
				if Bounded(b) && (low < got.Min || high > got.Max || got.Max > o.Max) {
					t.Fatalf("%v at %+v: waits of %v to %v, range %+v", b, s, low, high, got)
				}
				if got.Max > o.Max*9/10 {
					capped++
				}
			}
		}
	}
	if capped < 500 {
		t.Errorf("only %d cases were near their cap", capped)
	}
}

// drawn draws a hundred waits. It returns the shortest, the longest, and how many were the most usual one.
func drawn(b Strategy, s Step, r Rand) (low, high time.Duration, most int) {
	seen := map[time.Duration]int{}
	low = Forever
	for range 100 {
		w := b.Wait(s, r)
		seen[w]++
		low, high, most = min(low, w), max(high, w), max(most, seen[w])
	}
	return low, high, most
}

// The wait after a 429 was 200 ms for all clients.
func TestTheThrottledWaitOfAShortCapIsRandom(t *testing.T) {
	for name, want := range map[string]Range{
		"additive":     {Min: 180 * time.Millisecond, Mean: 190 * time.Millisecond, Max: 200 * time.Millisecond},
		"decorrelated": {Min: 100 * time.Millisecond, Mean: 150 * time.Millisecond, Max: 200 * time.Millisecond},
		"full-jitter":  {Min: 0, Mean: 100 * time.Millisecond, Max: 200 * time.Millisecond},
		"equal-jitter": {Min: 100 * time.Millisecond, Mean: 150 * time.Millisecond, Max: 200 * time.Millisecond},
	} {
		b, err := NewThrottled(name, Options{Base: 20 * time.Millisecond, Spread: 20 * time.Millisecond, Max: 200 * time.Millisecond}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.(Ranger).Range(Step{}); got != want {
			t.Errorf("%v: %+v, want %+v", b, got, want)
		}
	}
}

func TestSpreads(t *testing.T) {
	for _, tc := range []struct {
		name string
		o    Options
		want bool
	}{
		{"full-jitter", Options{}, true}, {"normal", Options{}, true}, {"slots", Options{}, true}, {"additive", Options{Max: time.Second}, true},
		{"fixed", Options{}, false}, {"ratio", Options{}, false}, {"none", Options{}, false}, {"fixed", Options{Extra: time.Second}, true},
		{"decorrelated", Options{Base: time.Second, Max: time.Second}, false},
	} {
		if b := mustNew(t, tc.name, tc.o); Spreads(b) != tc.want {
			t.Errorf("%v: %v", b, !tc.want)
		}
	}
}
