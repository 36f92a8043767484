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
	if s := c.State(); s.Begun != 1 || s.Displaced != 0 {
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

// Keys of one set: multiples of the number of sets.
func TestTheNinthOfASetDisplacesThePauseThatEndsFirst(t *testing.T) {
	var c Pauses
	key := func(i int) uint64 { return uint64(i) * pauseSets }
	for i := 1; i <= pauseWays; i++ {
		c.Begin(key(i), time.Duration(i+1)*time.Second, 0)
	}
	if c.Begin(key(100), time.Second, 0) || c.Remaining(key(100), 0) != 0 {
		t.Error("a pause that ends first itself was noted in a full set")
	}
	if !c.Begin(key(101), 30*time.Second, 0) || c.Remaining(key(101), 0) != 30*time.Second {
		t.Error("a long pause was not noted")
	}
	if c.Remaining(key(1), 0) != 0 || c.Remaining(key(2), 0) != 3*time.Second {
		t.Error("not the pause that ended first was displaced")
	}
	if s := c.State(); s.Displaced != 2 || s.Begun != pauseWays+1 {
		t.Errorf("%+v", s)
	}
	// An ended pause makes room.
	if !c.Begin(key(102), 40*time.Second, 5*time.Second) || c.State().Displaced != 2 {
		t.Error("a pause that was over did not make room")
	}
}

// A reader gets the pause recorded for its key or none, never that of another key.
func TestReadersNeverSeeAnotherKeysPause(t *testing.T) {
	var c Pauses
	var wg sync.WaitGroup
	const now = time.Second
	until := func(i uint64) time.Duration { return now + time.Duration(i)*time.Millisecond }
	// Keys that look like hashes, all of one set.
	key := func(i uint64) uint64 { return i * 0x9e3779b97f4a7c15 * pauseSets }
	stop := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for i := uint64(1); i <= 40; i++ {
					if got := c.Remaining(key(i), now); got != 0 && got != until(i)-now {
						t.Errorf("key %d: %v", i, got)
					}
				}
			}
		})
	}
	for i := range uint64(50_000) {
		n := i*7%40 + 1
		c.Begin(key(n), until(n), now)
		if i%8 == 0 { // room for short pauses
			set := &c.sets.Load()[0]
			c.mu.Lock()
			for k := range set {
				set[k].set(0, 0)
			}
			c.mu.Unlock()
		}
	}
	close(stop)
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

func TestRateLimitPausesDoNotAllocate(t *testing.T) {
	var c Pauses
	c.Begin(1, time.Second, 0)
	i := uint64(0)
	n := testing.AllocsPerRun(1000, func() {
		i++
		c.Begin(i, 2*time.Second, time.Second)
		if !c.AnyActive(0) || c.Remaining(i, time.Second) == 0 && i < 100 {
			t.Fatal(i)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestASpotHalfChangedBelongsToNobody(t *testing.T) {
	var c Pauses
	const old, other = 512 * 3, 512 * 5
	c.Begin(old, time.Second, 0)
	slot := c.sets.Load()[0].slotFor(old)
	slot.until.Store(int64(time.Hour)) // of another key, not stored yet
	if c.Remaining(old, 0) != 0 || c.Remaining(other, 0) != 0 {
		t.Errorf("%v for the old key and %v for the new one", c.Remaining(old, 0), c.Remaining(other, 0))
	}
}
