package storm

import "github.com/retryproxy/retryproxy/policy"

// slots is a proxy with a fixed number of connections.
type slots struct {
	*world
	used int
	line *policy.Line[int32]
}

func newSlots(w *world) *slots {
	return &slots{world: w, line: policy.NewLine[int32](w.Config.Callers.N + 1)}
}

func (s *slots) begin(c int32) {
	if s.used < s.Slots {
		s.sendOn(c)
		return
	}
	k := &s.callers[c]
	k.try = try{}
	k.try.ticket, _, _ = s.line.Push(c)
	s.after(s.SlotFor, slotWaitEnds, c, k.turn)
}

func (s *slots) sendOn(c int32) {
	k := &s.callers[c]
	k.try = try{}
	if !s.server.accepts() {
		s.callerGets(c, 503)
		return
	}
	s.used++
	k.try.sent = true
	s.server.take(c, k.turn)
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
	if k := &s.callers[c]; k.try.sent {
		s.done()
	} else {
		s.line.Remove(k.try.ticket)
	}
}

func (s *slots) answered(j *job, status int) {
	if s.callers[j.caller].turn != j.turn {
		return
	}
	if status == 0 {
		status = 502
	}
	s.callerGets(j.caller, status)
	s.done()
}

func (s *slots) on(e event) {
	if e.kind != slotWaitEnds || s.callers[e.who].turn != e.turn {
		return
	}
	if s.line.Remove(s.callers[e.who].try.ticket) {
		s.callerGets(e.who, 503)
	}
}
