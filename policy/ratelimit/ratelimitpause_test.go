package ratelimit

import (
	"sync"
	"testing"
	"time"
)

func TestARateLimitPauseLastsUntilItsEnd(t *testing.T) {
	var c Pauses
	if c.AnyActive(0) || c.Remaining(7, 0) != 0 {
		t.Error("something runs before anything began")
	}
	if !c.Begin(7, 5*time.Second, time.Second) {
		t.Error("a first pause is no news")
	}
	for _, tc := range []struct{ now, want time.Duration }{
		{time.Second, 4 * time.Second}, {5*time.Second - 1, 1}, {5 * time.Second, 0}, {time.Hour, 0},
	} {
		if got := c.Remaining(7, tc.now); got != tc.want {
			t.Errorf("at %v %v are left, want %v", tc.now, got, tc.want)
		}
		if c.AnyActive(tc.now) != (tc.want > 0) {
			t.Errorf("at %v Running is %v", tc.now, c.AnyActive(tc.now))
		}
	}
	if got := c.Remaining(8, time.Second); got != 0 {
		t.Errorf("another key has to pause for %v", got)
	}
	if s := c.State(); s.Begun != 1 || s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
}

func TestARateLimitPauseGrowsAndNeverShrinks(t *testing.T) {
	var c Pauses
	steps := []struct {
		until, now, want time.Duration // want: the recorded end
		news             bool
	}{
		{10 * time.Second, 0, 10 * time.Second, true},
		{5 * time.Second, 0, 10 * time.Second, false},
		{10*time.Second + pauseGrain - 1, 0, 10 * time.Second, false},
		{10*time.Second + pauseGrain, 0, 10*time.Second + pauseGrain, true},
		{time.Second, 2 * time.Second, 10*time.Second + pauseGrain, false}, // over before it began
		{21 * time.Second, 20 * time.Second, 21 * time.Second, true},       // a new pause after the old one
	}
	for i, s := range steps {
		if news := c.Begin(1, s.until, s.now); news != s.news {
			t.Errorf("step %d: news is %v", i, news)
		}
		if got := c.Remaining(1, s.now); got != s.want-s.now {
			t.Errorf("step %d: %v left, want %v", i, got, s.want-s.now)
		}
	}
	if got := c.State().Begun; got != 2 {
		t.Errorf("%d begun, want 2", got)
	}
}

func TestKeyZeroIsAKey(t *testing.T) {
	var c Pauses
	if c.Remaining(0, 0) != 0 {
		t.Error("an unused place counts for key 0")
	}
	c.Begin(0, time.Second, 0)
	if c.Remaining(0, 0) != time.Second {
		t.Error("key 0 was not noted")
	}
}

func TestPausesBeyondTheMaximumAreNotRecorded(t *testing.T) {
	var c Pauses
	for key := range uint64(MaxPauses) {
		c.Begin(key, time.Duration(key+2)*time.Second, 0)
	}
	if c.Begin(10_000, time.Hour, 0) || c.Remaining(10_000, 0) != 0 {
		t.Error("one pause too many was recorded")
	}
	if s := c.State(); s.Dropped != 1 || s.Begun != MaxPauses {
		t.Errorf("%+v", s)
	}
	if !c.Begin(5, time.Hour, 0) || c.Remaining(5, 0) != time.Hour {
		t.Error("the pause of a known key did not grow")
	}
	// Pauses that have ended make room.
	if !c.Begin(10_001, time.Hour, 9*time.Second) || c.State().Dropped != 1 || c.Remaining(10, 0) == 0 || c.Remaining(5, 0) == 0 {
		t.Error("pauses that had ended made no room, or others were forgotten")
	}
}

// It is for the race detector.
func TestPausesAreSafeForConcurrentUse(t *testing.T) {
	var c Pauses
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for key := range uint64(1000) {
				c.Begin(key, time.Duration(key+1)*time.Millisecond, 0)
				if got := c.Remaining(key, 0); got != time.Duration(key+1)*time.Millisecond || !c.AnyActive(0) || c.State().Begun == 0 {
					t.Errorf("key %d: %v", key, got)
				}
			}
		})
	}
	wg.Wait()
}

func TestRateLimitPauseWait(t *testing.T) {
	r := seeded(51)
	for range 100_000 {
		left, room := time.Duration(r.Int64N(int64(time.Minute))), time.Duration(r.Int64N(int64(time.Minute)))-time.Second
		wait, fits := PauseWait(left, room, r)
		switch {
		case fits != (left < room):
			t.Fatalf("%v left, room %v: fits is %v", left, room, fits)
		case fits && (wait < left || wait > left+pauseSpread || wait >= room):
			t.Fatalf("%v left, room %v: waits %v", left, room, wait)
		}
	}
	// Requests that wait for the same end come back spread over a second.
	var tenths [10]int
	for range 10_000 {
		wait, _ := PauseWait(5*time.Second, time.Minute, r)
		tenths[min((wait-5*time.Second)/(100*time.Millisecond), 9)]++
	}
	for i, n := range tenths {
		if n < 800 || n > 1200 {
			t.Errorf("%d of 10000 come back in tenth %d", n, i)
		}
	}
}
