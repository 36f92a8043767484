package slots

import (
	"sync/atomic"
	"time"
)

// window is over how long progress counts, at least. What a client moved before that earns it
// nothing: it could otherwise hold a slot for a long time by one fast transfer.
const window = 10 * time.Second

// shortest is the shortest time over which a rate means something.
const shortest = 100 * time.Millisecond

// Progress is how fast a connection moves bytes, in either direction. It is measured only if
// somebody asks, so it costs nothing while there are enough slots. Rate is called by one goroutine
// at a time; Begin and Rate may be concurrent.
type Progress struct {
	since atomic.Int64 // time since the start of the process; the zero Progress began with the process
	moved uint64       // bytes at since
}

// Begin begins to measure at now, the time since the start of the process. Nothing was moved yet.
func (p *Progress) Begin(now time.Duration) { p.since.Store(int64(now)) }

// Rate returns the bytes per second since Begin, or since a moment at least 10 s ago if there were
// earlier calls. moved is all bytes so far.
func (p *Progress) Rate(moved uint64, now time.Duration) float64 {
	took := now - time.Duration(p.since.Load())
	rate := float64(moved-p.moved) / max(took, shortest).Seconds()
	if took >= 2*window {
		p.moved = moved
		p.since.Store(int64(now))
	}
	return rate
}
