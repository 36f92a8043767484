package sim

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// client sends a request, waits, and tries again. It has at most one try in flight.
type client struct {
	busy  bool          // a try is in flight
	tries int           // failed since the last success
	wait  time.Duration // the last wait, before this try; with Clients.FromPause the pause before the first
	began time.Duration // start of the first of these tries
}

// beginClients starts every client with a pause.
func (w *world) beginClients() {
	w.clients = make([]client, w.Clients.N)
	w.turns = make([]uint32, w.Clients.N)
	for i := range w.clients {
		w.pause(int32(i))
	}
}

// pause waits before a new request.
func (w *world) pause(c int32) {
	every := w.Clients.Every
	d := time.Duration(w.rand.ExpFloat64() * float64(every) / w.pace)
	if w.Clients.Regular {
		d = every - (w.now-every*time.Duration(c)/time.Duration(w.Clients.N)+every)%every
	}
	if w.Clients.FromPause {
		w.clients[c].wait = d
	}
	w.after(d, clientSends, c, w.turns[c])
}

// send starts a try.
func (w *world) send(c int32) {
	k := &w.clients[c]
	w.turns[c]++
	k.busy = true
	if k.tries == 0 {
		k.began = w.now
	}
	w.after(w.Clients.Patience, clientPatienceEnds, c, w.turns[c])
	w.path.begin(c)
}

// clientGets ends a try with a response; status 0 means that the connection failed.
func (w *world) clientGets(c int32, status int) {
	k := &w.clients[c]
	w.turns[c]++
	k.busy = false
	if status == 200 {
		w.result.good(w.now)
		k.tries, k.wait = 0, 0
		w.pause(c)
		return
	}
	w.result.bad(w.now)
	w.retry(c)
}

// patienceEnds ends a try that took too long.
func (w *world) patienceEnds(c int32) {
	w.path.leave(c)
	k := &w.clients[c]
	w.turns[c]++
	k.busy = false
	w.result.late(w.now)
	w.retry(c)
}

// retry tries again after a failure, if clients are configured to.
func (w *world) retry(c int32) {
	k := &w.clients[c]
	if last := k.tries+1 == w.Clients.Tries; last || w.Clients.RetryAfter == 0 && w.Clients.Backoff == nil {
		if last {
			w.result.Lost++
			k.tries, k.wait = 0, 0
		}
		w.pause(c)
		return
	}
	k.wait = w.retryAfter(k)
	k.tries++
	w.after(k.wait, clientSends, c, w.turns[c])
}

func (w *world) retryAfter(k *client) time.Duration {
	if w.Clients.Backoff == nil {
		return w.Clients.RetryAfter
	}
	s := backoff.Step{Retry: k.tries, Previous: k.wait, Elapsed: w.since(k.began)}
	if w.Clients.FromPause {
		s.Retry++ // the pause counts as the wait before the first
	}
	return w.Clients.Backoff.Wait(s, w.rand)
}

// burst makes n pausing clients send now.
func (w *world) burst(n int) {
	for i := range w.clients {
		if n == 0 {
			return
		}
		if !w.clients[i].busy {
			w.turns[i]++
			w.send(int32(i))
			n--
		}
	}
}
