package plot

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func labels(ticks []Tick) string {
	var all []string
	for _, t := range ticks {
		if t.Label != "" {
			all = append(all, t.Label)
		}
	}
	return strings.Join(all, " ")
}

func TestTickLabels(t *testing.T) {
	for _, c := range []struct {
		axis Axis
		span Span
		n    int
		want string
	}{
		{Axis{}, Span{0, 10}, 5, "0 2 4 6 8 10"},
		{Axis{}, Span{0, 1}, 4, "0.0 0.5 1.0"},
		{Axis{}, Span{0.01, 0.05}, 4, "0.01 0.02 0.03 0.04 0.05"},
		{Axis{}, Span{-1, 1}, 4, "-1.0 -0.5 0.0 0.5 1.0"},
		{Axis{}, Span{0, 20000}, 4, "0 5000 10k 15k 20k"},
		{Axis{}, Span{0, 3e6}, 3, "0 1M 2M 3M"},
		{Axis{Unit: Count}, Span{1, 3}, 8, "1 2 3"},
		{Axis{Unit: Count}, Span{1, 100}, 5, "20 40 60 80 100"},
		{Axis{Unit: Seconds}, Span{0, 0.4}, 4, "0 100ms 200ms 300ms 400ms"},
		{Axis{Unit: Seconds}, Span{0, 52}, 4, "0 15s 30s 45s"},
		{Axis{Unit: Seconds}, Span{0, 1000}, 4, "0 5m 10m 15m"},
		{Axis{Unit: Seconds}, Span{0, 7200}, 4, "0 30m 1h 1h30m 2h"},
		{Axis{Unit: Seconds}, Span{0, 864000}, 5, "0 2d 4d 6d 8d 10d"},
		{Axis{Log: true}, Span{1, 1000}, 5, "1 10 100 1000"},
		{Axis{Log: true}, Span{1, 30}, 8, "1 2 3 5 10 20 30"},
		{Axis{Log: true}, Span{1, 30}, 4, "1 3 10 30"},
		{Axis{Log: true}, Span{0.2, 3}, 8, "0.2 0.3 0.5 1 2 3"},
		{Axis{Log: true}, Span{1e-3, 1e3}, 4, "0.001 0.1 10 1000"},
		{Axis{Log: true, Unit: Seconds}, Span{0.05, 32}, 6, "100ms 300ms 1s 3s 10s 30s"},
		{Axis{Log: true, Unit: Seconds}, Span{0.05, 100000}, 9, "100ms 1s 10s 1m 10m 1h 10h 1d"},
		{Axis{Log: true, Unit: Seconds}, Span{200, 4000}, 9, "5m 10m 20m 30m 50m 1h"},
	} {
		if got := labels(c.axis.Ticks(c.span, c.n)); got != c.want {
			t.Errorf("%+v on %v, about %d:\n got %s\nwant %s", c.axis, c.span, c.n, got, c.want)
		}
	}
}

// checkTicks checks what Ticks promises for every span.
func checkTicks(t *testing.T, a Axis, s Span, n int) {
	t.Helper()
	ticks := a.Ticks(s, n)
	slack := (s.High - s.Low) * 1e-6
	labelled := 0
	for i, tick := range ticks {
		if i > 0 && tick.Value <= ticks[i-1].Value {
			t.Fatalf("%+v on %v: %v after %v", a, s, tick.Value, ticks[i-1].Value)
		}
		if tick.Value < s.Low-slack || tick.Value > s.High+slack {
			t.Fatalf("%+v on %v: %v lies outside", a, s, tick.Value)
		}
		if len(tick.Label) > 20 {
			t.Fatalf("%+v on %v: label %q", a, s, tick.Label)
		}
		if tick.Label != "" {
			labelled++
		}
	}
	if labelled > 2*max(n, 2)+1 {
		t.Errorf("%+v on %v: %d labels, expected about %d", a, s, labelled, n)
	}
}

func TestTicksRiseWithinTheSpan(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		a := Axis{Unit: []Unit{Number, Count, Seconds}[r.IntN(3)], Log: r.IntN(2) == 0}
		low := math.Pow(10, r.Float64()*30-15)
		s := Span{low, low * (1 + math.Pow(10, r.Float64()*12-3))}
		if !a.Log && r.IntN(2) == 0 {
			s.Low = -s.Low
		}
		checkTicks(t, a, s, 2+r.IntN(10))
	}
}

func FuzzTicks(f *testing.F) {
	f.Add(0.0, 10.0, 5, "", false)
	f.Add(1e-150, 1e150, 5, "seconds", true)
	f.Add(1e17, 1e17+16, 5, "count", false)
	f.Fuzz(func(t *testing.T, low, high float64, n int, unit string, log bool) {
		a := Axis{Unit: Unit(unit), Log: log}
		if !finite(low) || !finite(high) || low >= high || log && low < smallest || a.validate("x") != nil || n > 1000 {
			return
		}
		checkTicks(t, a, Span{low, high}, n)
	})
}

func TestDuration(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "0", 1e-9: "1ns", 2.5e-6: "2.5us", 0.0001: "100us", 0.05: "50ms", 0.1234: "123ms", 0.9996: "1s",
		1: "1s", 1.5: "1.5s", 59.9: "59.9s", 60: "1m", 90: "1m30s", 3599.9: "60m", 3600: "1h", 5400: "1h30m",
		86400: "1d", 3 * 86400: "3d", 90000: "1d1h", 1e13: "1.16e+08d", -90: "-1m30s",
	} {
		if got := Duration(seconds); got != want {
			t.Errorf("%v: %s, expected %s", seconds, got, want)
		}
	}
}
