package proxy

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// releaseMemoryAfter is how many connections must be parked or ended, or requests begin a
	// wait, before releasing memory pays off: each leaves about 10 KiB behind.
	releaseMemoryAfter = 256
	// releaseMemoryQuiet is how long no further one must have come.
	releaseMemoryQuiet = 500 * time.Millisecond
	// releaseMemoryShare limits the time spent on it to one part in so many.
	releaseMemoryShare = 100
)

// memoryReleaser returns memory to the system after a wave of connections, or of requests that
// wait. The memory that they no longer need is garbage, and an idle process allocates too little
// to start a collection.
type memoryReleaser struct {
	left atomic.Int64  // connections parked or ended, and waits begun, since the last release
	took time.Duration // by the last release; only the releasing goroutine uses it

	mu    sync.Mutex // guards ended, and orders it before Go
	ended bool
	over  chan struct{} // closed with ended
	wg    sync.WaitGroup
}

// note counts a connection or wait that left garbage behind.
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

// end stops a release that waits, and waits for one in progress. No other release begins.
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
	runtime.GC() // frees what the next collection would take from sync.Pools
	debug.FreeOSMemory()
	t.took = time.Since(began)
	t.left.Store(0) // those that came during the collection are too few to count
}
