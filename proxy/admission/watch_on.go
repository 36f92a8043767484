//go:build poison || race

package admission

import (
	"runtime"
	"sync/atomic"

	"github.com/retryproxy/retryproxy/proxy/internal/poison"
)

// watch finds a ticket that is settled twice, or that ends without having been settled: overwritten, or
// found by the garbage collector.
type watch struct{ *watched }

// watched is what all copies of a ticket share. Its cleanup runs when none is left.
type watched struct{ place *place }

// place is where a ticket was taken.
type place struct {
	poison.Place
	settled atomic.Bool
}

// onDrop is called with a ticket that ended unsettled. Tests replace it.
var onDrop = func(p *place) { panic("a ticket was dropped unsettled; it was taken here:\n" + p.String()) }

func (w *watch) begin(isOpen bool) {
	if isOpen && w.watched != nil && !w.place.settled.Swap(true) { // once: the garbage collector finds it, too
		onDrop(w.place)
	}
	p := &place{Place: poison.CallerPlace(1)}
	w.watched = &watched{p}
	runtime.AddCleanup(w.watched, func(p *place) {
		if !p.settled.Load() {
			onDrop(p)
		}
	}, p)
}

func (w *watch) settle(isOpen bool) {
	switch {
	case w.watched == nil:
		panic("a ticket was settled that was never taken")
	case !isOpen || w.place.settled.Swap(true):
		panic("a ticket was settled twice; it was taken here:\n" + w.place.String())
	}
}
