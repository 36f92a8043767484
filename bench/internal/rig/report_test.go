package rig

import (
	"io"
	"strings"
	"testing"
	"time"
)

func TestSeriesAreRead(t *testing.T) {
	s, err := ReadSeries("# HELP x y\nretryproxy_a_total{route=\"r\",kind=\"x y\"} 2\nretryproxy_a_total{route=\"s\",kind=\"z\"} 3\nretryproxy_a_total_more 9\ngo_goroutines 1e1\n")
	if err != nil || s.Sum("a_total") != 5 || s.By("a_total", "kind")["x y"] != 2 || s["go_goroutines"] != 10 {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := ReadSeries("a b\n"); err == nil {
		t.Error("a value that is no number is accepted")
	}
}

func TestFlagsCheckTheirValues(t *testing.T) {
	for args, wrong := range map[string]string{
		"": "", "--n 9 --some b,a --one x": "", "--n 10": "--n must be from 1 to 9", "--f NaN": "--f must", "--some a,c": `"c" is none of a, b`, "--some a,": "none of", "--one z": "none of x, y", "more": "unexpected",
	} {
		var program, one string
		var n int
		var share float64
		var some []string
		var seed uint64
		f := NewFlags("bench", io.Discard, &program)
		Number(f, &n, "n", 1, 1, 9, "")
		Number(f, &share, "f", 1.0, 1, 2, "")
		f.Some(&some, "some", "a", []string{"a", "b"}, "")
		f.One(&one, "one", "x", []string{"x", "y"}, "")
		f.Seed(&seed, 0)
		err := f.Parse(strings.Fields(args))
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: %v, want %q", args, err, wrong)
		}
		if err == nil && (seed == 0 || len(some) == 0) {
			t.Errorf("%q: seed %d, some %q", args, seed, some)
		}
	}
}

func TestATimelineAddsUp(t *testing.T) {
	ticks := []Counts{{Good: 1, "had at once": 5}, {Bad + "503": 2, "had at once": 7}, {Late: 3, "had at once": 6}}
	for _, c := range []struct {
		from, to        time.Duration
		good, bad, most int
	}{
		{-time.Second, time.Second, 1, 2, 7}, {Tick, 2 * Tick, 0, 2, 7}, {2 * Tick, Tick, 0, 0, 0}, {time.Hour, 2 * time.Hour, 0, 0, 0},
	} {
		if got := Sum(ticks, c.from, c.to); got[Good] != c.good || got.Kinds(Bad) != c.bad || got["had at once"] != c.most {
			t.Errorf("sum from %v to %v: %v", c.from, c.to, got)
		}
	}
	all := append(ticks, make([]Counts, 8)...)
	if s := Seconds(all); len(s) != 1 || s[0][Late] != 3 {
		t.Error(s)
	}
	line := NewTimeline()
	for i := range 4 {
		line.Took(time.Duration(i) * time.Second)
	}
	if line.Within(0.5) != 2*time.Second || line.Within(1) != 3*time.Second {
		t.Error(line.Within(0.5), line.Within(1))
	}
	if line.Count("x", 2); line.Total()["x"] != 2 {
		t.Errorf("the total is %v", line.Total())
	}
	if line.Ticks(time.Second)[0]["x"] != 2 && line.Since() < Tick {
		t.Error("nothing was counted")
	}
}
