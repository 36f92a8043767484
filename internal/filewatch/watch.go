package filewatch

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watch is the part of Run from the first file on the list to the last.
type watch struct {
	files   *Files
	notices *notices // nil: poll only
	ticker  *time.Ticker
	settle  *time.Timer
	places  places
	lookDue bool // settle runs
}

var newTicker = time.NewTicker // a test replaces it

// watch returns when ctx ends or the list is empty.
func (f *Files) watch(ctx context.Context, changed func()) {
	w := &watch{files: f, settle: time.NewTimer(Settle)}
	w.settle.Stop()
	w.begin()
	defer w.end()
	for {
		var events <-chan fsnotify.Event
		var failures <-chan error
		if w.notices != nil {
			events, failures = w.notices.events, w.notices.failures
		}
		select {
		case <-ctx.Done():
			return
		case <-f.listed:
			if len(f.paths()) == 0 {
				return
			}
			w.lookSoon()
		case e := <-events:
			if w.places.entries[filepath.Base(e.Name)] {
				w.lookSoon()
			}
		case <-failures: // notices were lost
			w.lookSoon()
		case <-w.settle.C:
			w.lookDue = false
			w.look(changed)
		case <-w.ticker.C:
			w.look(changed)
		}
	}
}

func (w *watch) begin() {
	var err error
	w.notices, err = w.files.start()
	if w.notices == nil {
		w.pollOnly(err)
		return
	}
	w.ticker = newTicker(Fallback)
	w.follow()
	w.lookSoon() // a change may have fallen between Set and follow
}

func (w *watch) end() {
	w.ticker.Stop()
	w.settle.Stop()
	if w.notices != nil {
		w.notices.close()
	}
}

// pollOnly looks every Interval from now on. why is nil if that was asked for.
func (w *watch) pollOnly(why error) {
	if why != nil && !w.files.warned {
		w.files.warned = true
		w.files.warn(why)
	}
	w.notices = nil
	if w.ticker != nil {
		w.ticker.Stop()
	}
	w.ticker = newTicker(Interval)
}

// follow subscribes to all places that determine the files. A look comes after it, so a
// change between the two is not lost.
func (w *watch) follow() {
	if w.notices == nil {
		return
	}
	w.places = placesOf(w.files.paths())
	if err := w.notices.follow(w.places); err != nil {
		w.notices.close()
		w.pollOnly(err)
	}
}

// lookSoon starts the timer that merges the notices of one burst. It does not restart it: a
// file may be written continuously.
func (w *watch) lookSoon() {
	if w.notices != nil && !w.lookDue {
		w.lookDue = true
		w.settle.Reset(Settle)
	}
}

func (w *watch) look(changed func()) {
	w.follow()
	settled, moving := w.files.look()
	if moving {
		w.lookSoon()
	}
	if settled {
		changed()
	}
}
