package proxy

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const (
	// tidyAfter is how many connections have to be parked or ended before it is
	// worth it: each leaves about 10 KiB behind.
	tidyAfter = 256
	// tidyQuiet is how long no other may have been meanwhile.
	tidyQuiet = 500 * time.Millisecond
	// tidyShare of the time, at most, is spent on it.
	tidyShare = 100
)

// tidying gives memory back to the system after a wave of connections. What
// they no longer need is only garbage, and a process at rest makes none that
// would start a collection.
type tidying struct {
	left atomic.Int64  // connections parked or ended since
	took time.Duration // the last time; of the goroutine that tidies
	over chan struct{} // closed when all connections have ended
}

// leaves notes that a connection was parked or has ended. It is called by a
// goroutine that s.wg counts.
func (s *Server) leaves() {
	if s.tidying.left.Add(1) == tidyAfter {
		s.wg.Go(s.tidying.run)
	}
}

// run waits until the wave is over, then tidies. Only one runs at a time.
func (t *tidying) run() {
	for seen := int64(0); t.left.Load() != seen; {
		seen = t.left.Load()
		select {
		case <-time.After(max(tidyQuiet, tidyShare*t.took)):
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
