package demo

import (
	"testing"
	"time"
)

func TestQuantilesAreAtMostAStepTooHigh(t *testing.T) {
	var c tally
	for ms := 1; ms <= 1000; ms++ {
		c.add(success, time.Duration(ms)*time.Millisecond)
	}
	got := c.read()
	for _, x := range []struct {
		q    float64
		want time.Duration
	}{{0.001, time.Millisecond}, {0.5, 500 * time.Millisecond}, {0.99, 990 * time.Millisecond}, {1, time.Second}} {
		d := got.quantile(x.q)
		if d < x.want || float64(d) > latencyStep*float64(x.want) {
			t.Errorf("quantile %v: %v, want %v or a little more", x.q, d, x.want)
		}
	}
}

func TestQuantileAtTheEdges(t *testing.T) {
	var empty counts
	if got := empty.quantile(0.99); got != 0 {
		t.Errorf("without requests: %v", got)
	}
	var c tally
	c.add(other, -time.Second)
	c.add(other, 0)
	if got := c.counts.quantile(1); got != latencyLeast {
		t.Errorf("of nothing: %v, want %v", got, latencyLeast)
	}
	c.add(other, 24*time.Hour)
	if got := c.counts.quantile(1); got < 50*time.Second {
		t.Errorf("beyond the last bucket: %v", got)
	}
}

func TestTheBucketsReachAMinute(t *testing.T) {
	var c counts
	c.kinds[success] = 1
	c.latencies[latencyBuckets-1] = 1
	if last := c.quantile(1); last < time.Minute || last > 90*time.Second {
		t.Errorf("the last bucket ends at %v", last)
	}
}

func TestSuccessShare(t *testing.T) {
	var c tally
	if got := c.counts.success(); got != 0 {
		t.Errorf("without requests: %v", got)
	}
	for range 3 {
		c.add(success, 0)
	}
	c.add(status503, 0)
	if got := c.read(); got.success() != 0.75 || got.requests() != 4 {
		t.Errorf("%v of %d requests, want 0.75 of 4", got.success(), got.requests())
	}
}
