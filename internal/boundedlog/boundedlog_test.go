package boundedlog

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// counts holds the reported numbers, from the timer's goroutine or the test's.
type counts struct {
	mu   sync.Mutex
	told []int
}

func (c *counts) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, n)
}

func (c *counts) all() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.told)
}

func TestSuppressedLinesAreCountedAtTheEndOfTheMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counts counts
		b := New(2, counts.add)
		allowed := 0
		for range 10 {
			if b.Allow() {
				allowed++
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if allowed != 2 || counts.all() != nil {
			t.Errorf("%d lines allowed, told %v within the minute", allowed, counts.all())
		}
		time.Sleep(50*time.Second - time.Nanosecond)
		synctest.Wait()
		if counts.all() != nil {
			t.Errorf("told %v before the minute was over", counts.all())
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !slices.Equal(counts.all(), []int{8}) {
			t.Errorf("told %v at the end of the minute, expected 8", counts.all())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if !slices.Equal(counts.all(), []int{8}) {
			t.Errorf("told %v, though no line was suppressed since", counts.all())
		}
		if !b.Allow() {
			t.Error("no line in a new minute")
		}
	})
}

func TestFlushCountsAtOnceAndOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counts counts
		b := New(0, counts.add)
		b.Flush()
		b.Allow()
		b.Allow()
		b.Flush()
		b.Flush()
		time.Sleep(time.Hour)
		synctest.Wait()
		if !slices.Equal(counts.all(), []int{2}) {
			t.Errorf("told %v, expected 2 once", counts.all())
		}
		b.Allow() // after a flush the timer is set again
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Equal(counts.all(), []int{2, 1}) {
			t.Errorf("told %v, expected 2 and 1", counts.all())
		}
	})
}
