package latency

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestBucketsHoldTheirLatencies(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		d := time.Duration(math.Exp(r.Float64()*30)) - 1
		i := bucketOf(d)
		if d < lowest(i) || i+1 < latencyBuckets && d >= lowest(i+1) {
			t.Fatalf("%v is in bucket %d of [%v, %v)", d, i, lowest(i), lowest(i+1))
		}
	}
	for i := range latencyBuckets - 1 {
		if bucketOf(lowest(i)) != i {
			t.Errorf("bucket %d does not hold its lowest, %v", i, lowest(i))
		}
		low, high := lowest(i), lowest(i+1)
		if high <= low {
			t.Errorf("bucket %d: [%v, %v)", i, low, high)
		}
		if i >= perOctave && float64(high) > 1.126*float64(low) {
			t.Errorf("bucket %d is wider than an eighth: [%v, %v)", i, low, high)
		}
	}
	for _, d := range []time.Duration{-1, math.MinInt64} {
		if bucketOf(d) != 0 {
			t.Errorf("%v is in bucket %d", d, bucketOf(d))
		}
	}
	if i := bucketOf(math.MaxInt64); i != latencyBuckets-1 {
		t.Errorf("the longest is in bucket %d", i)
	}
}

// window fills a window with latencies.
func window(d ...time.Duration) *Sums {
	var w Window
	for _, v := range d {
		w.Add(v)
	}
	var s Sums
	w.Drain(&s)
	return &s
}

func repeat(n int, d time.Duration) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = d
	}
	return all
}

func about(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if math.Abs(math.Log(float64(got)/float64(want))) > 0.13 {
		t.Errorf("%s: %v, want about %v", what, got, want)
	}
}

func TestQuantilesOfAWindow(t *testing.T) {
	s := window(append(repeat(90, 100*time.Millisecond), repeat(10, time.Second)...)...)
	about(t, "median", s.Quantile(0.5), 100*time.Millisecond)
	about(t, "p90", s.Quantile(0.9), 100*time.Millisecond)
	about(t, "p91", s.Quantile(0.91), time.Second)
	about(t, "longest", s.Quantile(1), time.Second)
	about(t, "busy", s.Sum, 19*time.Second)
	if s.Total != 100 {
		t.Errorf("%v latencies", s.Total)
	}
	if q := (&Sums{}).Quantile(0.5); q != 0 {
		t.Errorf("the median of nothing is %v", q)
	}
}

func TestDrainLeavesNothing(t *testing.T) {
	var w Window
	w.Add(time.Second)
	var s Sums
	w.Drain(&s)
	w.Drain(&s)
	if s.Total != 0 || s.Sum != 0 || s.counts != [latencyBuckets]float64{} {
		t.Errorf("drained twice: %v", s.Total)
	}
}

// learn folds the same window n times, once per second.
func learn(u *Baseline, n int, w *Sums, easy bool) {
	for range n {
		u.Fold(w, time.Second, float64(w.Sum)/float64(time.Second), easy)
	}
}

func TestUsualIsLearnt(t *testing.T) {
	var u Baseline
	if u.Known() || u.Established() {
		t.Error("something is known at first")
	}
	learn(&u, 1, window(repeat(3, 100*time.Millisecond)...), true)
	if !u.Known() || u.Established() {
		t.Errorf("after 3: known %v, well %v", u.Known(), u.Established())
	}
	learn(&u, 10, window(append(repeat(80, 100*time.Millisecond), repeat(20, time.Second)...)...), true)
	about(t, "median", u.Median, 100*time.Millisecond)
	about(t, "p90", u.P90, time.Second)
	about(t, "mean", u.Mean(), 280*time.Millisecond)
	if c := u.Concurrency; c < 26 || c > 30 {
		t.Errorf("concurrency %v, want about 28", c)
	}
}

// A much busier and slow period must not make its slowness usual.
func TestRushesDoNotBecomeUsual(t *testing.T) {
	for _, easy := range []bool{true, false} {
		var u Baseline
		learn(&u, 60, window(repeat(100, 100*time.Millisecond)...), true)
		learn(&u, 10, window(repeat(5000, 900*time.Millisecond)...), easy)
		about(t, "median", u.Median, 100*time.Millisecond)
		if !easy {
			about(t, "p90", u.P90, 100*time.Millisecond)
			if u.Concurrency > 12 {
				t.Errorf("concurrency %v was learnt from a window that was not easy", u.Concurrency)
			}
		}
	}
}

func TestUsualIsForgottenSlowly(t *testing.T) {
	var u Baseline
	learn(&u, 300, window(repeat(100, 100*time.Millisecond)...), true)
	learn(&u, 200, window(repeat(100, 10*time.Millisecond)...), true)
	about(t, "after 200 s", u.P90, 100*time.Millisecond)
	learn(&u, 1500, window(repeat(100, 10*time.Millisecond)...), true)
	about(t, "after half an hour", u.P90, 10*time.Millisecond)
	if u.Concurrency > 2 {
		t.Errorf("concurrency %v after half an hour of 1", u.Concurrency)
	}
	// Without traffic the baseline stays.
	learn(&u, 24*3600, window(), true)
	about(t, "after a silent day", u.P90, 10*time.Millisecond)
	if !u.Established() {
		t.Errorf("%v left after a silent day", u.sums.Total)
	}
}

func TestTailIsAProbability(t *testing.T) {
	for _, seen := range [][]time.Duration{
		repeat(20, 100*time.Millisecond),
		append(repeat(500, 10*time.Millisecond), repeat(500, 30*time.Second)...),
		append(repeat(5000, 10*time.Millisecond), time.Hour),
	} {
		var u Baseline
		learn(&u, 5, window(seen...), true)
		last := 1.0
		for age := time.Millisecond; age < 100*time.Hour; age = age * 11 / 10 {
			p := u.Tail(age)
			if !(p > 0 && p < 1) || p > last {
				t.Fatalf("P(L > %v) = %v after %v", age, p, last)
			}
			last = p
		}
	}
}

func TestTailFollowsWhatWasSeen(t *testing.T) {
	var u Baseline
	learn(&u, 100, window(append(repeat(90, 100*time.Millisecond), repeat(10, time.Second)...)...), true)
	for _, tc := range []struct {
		age  time.Duration
		want float64
	}{
		{10 * time.Millisecond, 1},
		{300 * time.Millisecond, 0.1},
		{2100 * time.Millisecond, 1.0 / 10_000 / 8}, // twice the longest
	} {
		if p := u.Tail(tc.age); p < 0.7*tc.want || p > 1.3*tc.want {
			t.Errorf("P(L > %v) = %v, want about %v", tc.age, p, tc.want)
		}
	}
	u.SawPending(100)
	if p := u.Tail(time.Hour); p < 0.05 {
		t.Errorf("with a hundred overdue while others are answered, P(L > 1h) = %v", p)
	}
}

func BenchmarkWindowAdd(b *testing.B) {
	var w Window
	b.ReportAllocs()
	for b.Loop() {
		w.Add(100 * time.Millisecond)
	}
}
