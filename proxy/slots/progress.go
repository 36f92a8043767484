package slots

import (
	"sync"
	"time"
)

// window is over how long progress counts, at least. What a client moved before that earns it
// nothing: it could otherwise hold a slot for a long time by one fast transfer.
const window = 10 * time.Second

const (
	// shortest is the shortest time over which a rate means something.
	shortest = 100 * time.Millisecond
	// credit is what a connection counts as having moved when it began, in bytes: a request with its
	// response. Of those that have just come and moved nothing yet, the oldest is then behind the others.
	credit = 1 << 10
)

// Progress is how fast a client moves bytes, in either direction. It is measured only if somebody
// asks, so it costs little while there are enough slots. It is safe for concurrent use.
type Progress struct {
	mu    sync.Mutex    // guards all below
	since time.Duration // time since the start of the process; the zero Progress began with the process
	moved uint64        // bytes at since

	next      time.Duration // since is this soon; 0: not known yet
	nextMoved uint64        // bytes at next
}

// Begin begins to measure at now, the time since the start of the process. The moved bytes of before
// do not count.
func (p *Progress) Begin(moved uint64, now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.moved, p.next, p.nextMoved = now, moved, 0, 0
}

// Rate returns the bytes per second since Begin, or since a moment at least 10 s ago. moved is all bytes
// so far; 0 if that is unknown, which counts as no progress. standing is the same with a credit for what
// has just begun: it orders connections.
func (p *Progress) Rate(moved uint64, now time.Duration) (rate, standing float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	moved = max(moved, p.moved)
	took := now - p.since
	since := float64(moved - p.moved)
	rate = since / max(took, shortest).Seconds()
	standing = (since + credit) / max(took, time.Millisecond).Seconds()
	switch {
	case p.next == 0 && took >= window:
		p.next, p.nextMoved = now, moved
	case p.next != 0 && now-p.next >= window:
		p.since = p.next
		p.moved, p.next, p.nextMoved = p.nextMoved, now, moved
	}
	return rate, standing
}
