package sim

import "github.com/retryproxy/retryproxy/policy/queue"

// slots simulates a proxy with a fixed number of connections. A connection is in use until
// its response or SlotTimeout, whether the client waits or not.
type slots struct {
	*world
	used     int
	queue    *queue.Queue[int32]
	attempts []slotAttempt // of each client
}

// slotAttempt is the state of a client's request.
type slotAttempt struct {
	ticket queue.Ticket // in the queue
	sent   bool         // to the server
}

func newSlots(w *world) *slots {
	return &slots{world: w, queue: queue.New[int32](w.Config.Clients.N + 1), attempts: make([]slotAttempt, w.Config.Clients.N)}
}

func (s *slots) begin(c int32) {
	if s.used < s.Slots {
		s.sendOn(c)
		return
	}
	s.attempts[c] = slotAttempt{}
	s.attempts[c].ticket, _, _ = s.queue.Push(c)
	s.after(s.SlotFor, slotWaitEnds, c, s.turns[c])
}

func (s *slots) sendOn(c int32) {
	s.attempts[c] = slotAttempt{}
	if !s.server.accepts() {
		s.clientGets(c, 503)
		return
	}
	s.used++
	s.attempts[c].sent = true
	i := s.server.take(c, s.turns[c])
	j := s.server.job(i)
	j.awaited = true
	if s.SlotTimeout > 0 {
		s.after(s.SlotTimeout, slotEnds, i, j.number)
	}
}

// ends gives up a connection after SlotTimeout.
func (s *slots) ends(i int32, number uint32) {
	j := s.server.job(i)
	if !j.live || j.number != number || !j.awaited {
		return
	}
	j.awaited = false
	if s.turns[j.client] == j.turn {
		s.clientGets(j.client, 504)
	}
	s.done()
}

// done frees a connection.
func (s *slots) done() {
	s.used--
	for s.used < s.Slots {
		c, ok := s.queue.Oldest()
		if !ok {
			return
		}
		s.sendOn(c)
	}
}

func (s *slots) leave(c int32) {
	if !s.attempts[c].sent {
		s.queue.Remove(s.attempts[c].ticket)
	}
}

func (s *slots) responded(j *job, status int) {
	if status == 0 {
		status = 502
	}
	if s.turns[j.client] == j.turn {
		s.clientGets(j.client, status)
	}
	if j.awaited {
		s.done()
	}
}

func (*slots) endpointLost() {}

func (s *slots) on(e event) {
	switch {
	case e.kind == slotEnds:
		s.ends(e.who, e.turn)
	case e.kind == slotWaitEnds && s.turns[e.who] == e.turn && s.queue.Remove(s.attempts[e.who].ticket):
		s.clientGets(e.who, 503)
	}
}
