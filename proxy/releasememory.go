package proxy

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// releaseMemoryAfter is how many connections have to be parked or ended, or requests to
	// begin a wait, before it is worth it: each leaves about 10 KiB behind.
	releaseMemoryAfter = 256
	// releaseMemoryQuiet is how long no other may have been meanwhile.
	releaseMemoryQuiet = 500 * time.Millisecond
	// releaseMemoryShare of the time, at most, is spent on it.
	releaseMemoryShare = 100
)

// memoryReleaser gives memory back to the system after a wave of connections, or of
// requests that wait. What they no longer need is only garbage, and a process at
// rest makes none that would start a collection.
type memoryReleaser struct {
	left atomic.Int64  // connections parked or ended, and waits begun, since
	took time.Duration // the last time; of the goroutine that releases

	mu    sync.Mutex // guards ended, and the order of it and Go
	ended bool
	over  chan struct{} // closed then
	wg    sync.WaitGroup
}

// note notes that memory was left.
func (t *memoryReleaser) note() {
	if t.left.Add(1) != releaseMemoryAfter {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.wg.Go(t.run)
	}
}

// end ends a release that waits, and waits for one in flight. No other begins.
func (t *memoryReleaser) end() {
	t.mu.Lock()
	if !t.ended {
		t.ended = true
		close(t.over)
	}
	t.mu.Unlock()
	t.wg.Wait()
}

// run waits until the wave is over, then releases. Only one runs at a time.
func (t *memoryReleaser) run() {
	for seen := int64(0); t.left.Load() != seen; {
		seen = t.left.Load()
		select {
		case <-time.After(max(releaseMemoryQuiet, releaseMemoryShare*t.took)):
		case <-t.over:
			return
		}
	}
	began := time.Now()
	runtime.GC() // takes from sync.Pools what the next collection frees
	debug.FreeOSMemory()
	t.took = time.Since(began)
	t.left.Store(0) // those that came during the collection are too few to count
}
