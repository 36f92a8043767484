package storm

import "github.com/retryproxy/retryproxy/policy"

// slots is a proxy with a fixed number of connections. One is taken until its
// answer or SlotTimeout, whether the caller waits or not.
type slots struct {
	*world
	used int
	line *policy.Line[int32]
	try  []slotTry // of each caller
}

// slotTry is where a caller's request is.
type slotTry struct {
	ticket policy.Ticket // in line
	sent   bool          // at the server
}

func newSlots(w *world) *slots {
	return &slots{world: w, line: policy.NewLine[int32](w.Config.Callers.N + 1), try: make([]slotTry, w.Config.Callers.N)}
}

func (s *slots) begin(c int32) {
	if s.used < s.Slots {
		s.sendOn(c)
		return
	}
	s.try[c] = slotTry{}
	s.try[c].ticket, _, _ = s.line.Push(c)
	s.after(s.SlotFor, slotWaitEnds, c, s.turns[c])
}

func (s *slots) sendOn(c int32) {
	s.try[c] = slotTry{}
	if !s.server.accepts() {
		s.callerGets(c, 503)
		return
	}
	s.used++
	s.try[c].sent = true
	i := s.server.take(c, s.turns[c])
	j := s.server.job(i)
	j.heard = true
	if s.SlotTimeout > 0 {
		s.after(s.SlotTimeout, slotEnds, i, j.number)
	}
}

// ends gives a connection up.
func (s *slots) ends(i int32, number uint32) {
	j := s.server.job(i)
	if !j.live || j.number != number || !j.heard {
		return
	}
	j.heard = false
	if s.turns[j.caller] == j.turn {
		s.callerGets(j.caller, 504)
	}
	s.done()
}

// done frees a connection.
func (s *slots) done() {
	s.used--
	for s.used < s.Slots {
		c, ok := s.line.Oldest()
		if !ok {
			return
		}
		s.sendOn(c)
	}
}

func (s *slots) leave(c int32) {
	if !s.try[c].sent {
		s.line.Remove(s.try[c].ticket)
	}
}

func (s *slots) answered(j *job, status int) {
	if status == 0 {
		status = 502
	}
	if s.turns[j.caller] == j.turn {
		s.callerGets(j.caller, status)
	}
	if j.heard {
		s.done()
	}
}

func (s *slots) on(e event) {
	switch {
	case e.kind == slotEnds:
		s.ends(e.who, e.turn)
	case e.kind == slotWaitEnds && s.turns[e.who] == e.turn && s.line.Remove(s.try[e.who].ticket):
		s.callerGets(e.who, 503)
	}
}
