package metrics

import "sync/atomic"

// beginning wakes those who wait for something to begin: a request, or a configuration. The zero value is ready. It is
// safe for concurrent use.
type beginning struct{ awaited atomic.Pointer[chan struct{}] }

// next returns a channel that the next call of happened closes.
func (b *beginning) next() <-chan struct{} {
	made := make(chan struct{})
	for !b.awaited.CompareAndSwap(nil, &made) {
		if known := b.awaited.Load(); known != nil {
			return *known
		}
	}
	return made
}

// happened closes the channel that next returned. It costs one load while nobody waits.
func (b *beginning) happened() {
	if c := b.awaited.Load(); c != nil && b.awaited.CompareAndSwap(c, nil) {
		close(*c)
	}
}

// NextRequest returns a channel that is closed when a request of any route begins, or when a configuration is applied.
// Requests that began before are counted when it returns. So whoever finds none in flight then may sleep until the
// channel is closed.
func (m *Metrics) NextRequest() <-chan struct{} { return m.beginning.next() }
