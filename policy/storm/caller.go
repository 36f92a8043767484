package storm

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// caller sends, waits, and tries again. It has one try under way at most.
type caller struct {
	busy  bool          // a try is under way
	tires timer         // while it is
	tries int           // failed since the last success
	wait  time.Duration // the last one: before this try; with Callers.FromPause the pause before the first
	began time.Duration // of the first of these tries
}

// beginCallers sets every caller pausing.
func (w *world) beginCallers() {
	w.callers = make([]caller, w.Callers.N)
	w.turns = make([]uint32, w.Callers.N)
	for i := range w.callers {
		w.pause(int32(i))
		if w.Callers.FromPause { // it began before the storm did
			w.callers[i].wait += time.Duration(w.rand.ExpFloat64() * float64(w.Callers.Every))
		}
	}
}

// pause ends with a new request.
func (w *world) pause(c int32) {
	d := time.Duration(w.rand.ExpFloat64() * float64(w.Callers.Every) / w.pace)
	if w.Callers.FromPause {
		w.callers[c].wait = d
	}
	w.after(d, callerSends, c, w.turns[c])
}

// send begins a try.
func (w *world) send(c int32) {
	k := &w.callers[c]
	w.turns[c]++
	k.busy = true
	if k.tries == 0 {
		k.began = w.now
	}
	k.tires = w.after(w.Callers.Patience, callerTires, c, 0)
	w.path.begin(c)
}

// callerGets ends a try with an answer; status 0 = the connection failed.
func (w *world) callerGets(c int32, status int) {
	k := &w.callers[c]
	w.cancel(k.tires)
	w.turns[c]++
	k.busy = false
	if status == 200 {
		w.result.good(w.now)
		k.tries, k.wait = 0, 0
		w.pause(c)
		return
	}
	w.result.bad(w.now)
	w.again(c)
}

// tire ends a try that took too long.
func (w *world) tire(c int32) {
	w.path.leave(c)
	k := &w.callers[c]
	w.turns[c]++
	k.busy = false
	w.result.late(w.now)
	w.again(c)
}

// again tries once more after a failure, if callers do.
func (w *world) again(c int32) {
	k := &w.callers[c]
	if w.Callers.Again == 0 && w.Callers.Backoff == nil {
		w.pause(c)
		return
	}
	k.wait = w.againAfter(k)
	k.tries++
	w.after(k.wait, callerSends, c, w.turns[c])
}

func (w *world) againAfter(k *caller) time.Duration {
	if w.Callers.Backoff == nil {
		return w.Callers.Again
	}
	s := policy.Step{Retry: k.tries, Previous: k.wait, Elapsed: w.since(k.began)}
	if w.Callers.FromPause {
		s.Retry++ // the pause counts as the wait before the first
	}
	return w.Callers.Backoff.Wait(s, w.rand)
}

// burst makes n callers who are pausing send now.
func (w *world) burst(n int) {
	for i := range w.callers {
		if n == 0 {
			return
		}
		if !w.callers[i].busy {
			w.turns[i]++
			w.send(int32(i))
			n--
		}
	}
}
