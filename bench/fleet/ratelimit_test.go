package main

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// taken is how many of n requests, each a while after the one before, are
// within the rate limit.
func taken(q *rig.Bucket, from time.Time, n int, each time.Duration) int {
	got := 0
	for i := range n {
		if q.Take(1, from.Add(time.Duration(i)*each)) == 0 {
			got++
		}
	}
	return got
}

func TestABucketGivesItsBurstAndThenItsRate(t *testing.T) {
	at := time.Unix(1000, 0)
	if got := taken(rig.NewBucket(500, 100, at), at, 1000, 0); got != 100 {
		t.Errorf("%d at once, want the burst of 100", got)
	}
	if got := taken(rig.NewBucket(500, 100, at), at, 20_000, time.Millisecond/2); got < 5095 || got > 5101 {
		t.Errorf("%d in 10 s, want 100 and 500 a second", got)
	}
	b := rig.NewBucket(500, 100, at)
	taken(b, at, 101, 0)
	if got := taken(b, at.Add(time.Hour), 1000, 0); got != 100 {
		t.Errorf("%d after an hour, want the burst of 100", got)
	}
	if got := b.Take(1, at.Add(time.Hour)); got != 2*time.Millisecond {
		t.Errorf("an empty bucket asks for %v, want the 2 ms of a token", got)
	}
}

func TestRetryAfterIsWholeSecondsAndNeverEarly(t *testing.T) {
	for wait, want := range map[time.Duration]int{0: 1, time.Millisecond: 1, time.Second: 1, time.Second + 1: 2} {
		if got := retryAfter(wait); got != want {
			t.Errorf("%v: %d, want %d", wait, got, want)
		}
	}
}
