//go:build poison || race

package buffer

import (
	"runtime"
	"sync/atomic"

	"github.com/retryproxy/retryproxy/proxy/internal/poison"
)

// watch finds a buffer that goes back twice, that is used by a copy of its Handle after it went back or was taken, and
// that never goes back, because its Handle is overwritten or found by the garbage collector.
type watch struct{ *lease }

// lease is what a Handle and its copies share while it has a buffer. Its cleanup runs when none is left.
type lease struct{ place *place }

// place is where a buffer was taken.
type place struct {
	poison.Place
	over atomic.Bool
}

// onDrop is called with a buffer that never went back; nil: dropped panics. Tests set it.
var onDrop atomic.Pointer[func(p *place)]

func dropped(p *place) {
	if f := onDrop.Load(); f != nil {
		(*f)(p)
		return
	}
	panic("a buffer was dropped; it was taken here:\n" + p.String())
}

func begin() watch {
	p := &place{Place: poison.CallerPlace(1)}
	return p.lease()
}

func (p *place) lease() watch {
	l := &lease{p}
	runtime.AddCleanup(l, func(p *place) {
		if !p.over.Load() {
			dropped(p)
		}
	}, p)
	return watch{l}
}

// use is called before the buffer is used.
func (w *watch) use() {
	if w.lease != nil && w.place.over.Load() {
		panic("a buffer was used by a copy of its Handle, which does not own it any more; it was taken here:\n" + w.place.String())
	}
}

// mustBeNone is called before the Handle gets another buffer.
func (w *watch) mustBeNone() {
	if w.lease != nil {
		panic("a buffer would be dropped for another one; it was taken here:\n" + w.place.String())
	}
}

// end is called before the buffer goes back.
func (w *watch) end() {
	if w.lease == nil || w.place.over.Swap(true) {
		panic("a buffer went back twice; it was taken here:\n" + w.place.String())
	}
	w.lease = nil
}

// move returns the watch of the Handle to which the buffer moves.
func (w *watch) move() watch {
	if w.lease == nil {
		return watch{}
	}
	w.use()
	to := &place{Place: w.place.Place}
	w.end()
	return to.lease()
}

// keeps is called for a Cache that has buffers, if has is true, or none.
func (w *watch) keeps(has bool) {
	switch {
	case has && w.lease == nil:
		*w = begin()
	case !has && w.lease != nil:
		w.end()
	}
}
