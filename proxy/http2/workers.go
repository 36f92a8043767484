package http2

import (
	"sync"
	"time"
)

// Workers are goroutines that serve streams. One that has served a stream waits for another, because its
// stack has grown to what a request needs: growing it anew costs a quarter of a small request. Those that
// are not needed end. The zero value has none. It is safe for concurrent use.
type Workers struct {
	mu       sync.Mutex // guards all below
	idle     []chan *Stream
	least    int  // that were idle at any time since the last trim
	trimming bool // trim will be called
	closed   bool
}

const (
	mostIdle  = 512 // workers, of 8 KiB each; more may serve, and those go that are not needed
	trimEvery = 250 * time.Millisecond
)

// serve has a worker serve s.
func (w *Workers) serve(s *Stream) {
	w.mu.Lock()
	n := len(w.idle)
	if n == 0 {
		w.mu.Unlock()
		go w.work(s)
		return
	}
	next := w.idle[n-1]
	w.idle[n-1] = nil
	w.idle = w.idle[:n-1]
	w.least = min(w.least, n-1)
	w.mu.Unlock()
	next <- s
}

// work serves s, and others as long as they come often enough.
func (w *Workers) work(s *Stream) {
	next := make(chan *Stream, 1)
	for more := true; more; s, more = <-next {
		s.conn.serve(s)
		if !w.rest(next) {
			return
		}
	}
}

// rest makes a worker idle. It reports false if there are enough.
func (w *Workers) rest(next chan *Stream) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.idle) >= mostIdle {
		return false
	}
	w.idle = append(w.idle, next)
	if !w.trimming {
		w.trimming, w.least = true, 0
		time.AfterFunc(trimEvery, w.trim)
	}
	return true
}

// Close ends the workers that are idle, and the others when they have served their streams.
func (w *Workers) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, next := range w.idle {
		close(next)
	}
	w.idle, w.least = nil, 0
}

// trim ends the workers that were idle since the last trim.
func (w *Workers) trim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, next := range w.idle[:w.least] { // the first ones are idle longest
		close(next)
	}
	w.idle = dropFirst(w.idle, w.least)
	if w.least = len(w.idle); w.least == 0 {
		w.trimming, w.idle = false, nil
		return
	}
	time.AfterFunc(trimEvery, w.trim)
}
