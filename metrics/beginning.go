package metrics

import "sync/atomic"

// beginning tells who waits for it that a request begins, or a configuration. The zero value is ready. It is safe for concurrent use.
type beginning struct{ awaited atomic.Pointer[chan struct{}] }

// next returns a channel that is closed when happened is called next.
func (b *beginning) next() <-chan struct{} {
	made := make(chan struct{})
	for !b.awaited.CompareAndSwap(nil, &made) {
		if known := b.awaited.Load(); known != nil {
			return *known
		}
	}
	return made
}

// happened costs one load while nobody waits.
func (b *beginning) happened() {
	if c := b.awaited.Load(); c != nil && b.awaited.CompareAndSwap(c, nil) {
		close(*c)
	}
}

// NextRequest returns a channel that is closed when the next request of any route begins, or when a configuration is
// applied. What began before the call is
// counted as in flight when it returns. So who finds nothing in flight then may sleep until it is closed.
func (m *Metrics) NextRequest() <-chan struct{} { return m.beginning.next() }
