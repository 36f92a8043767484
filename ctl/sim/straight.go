package sim

import "time"

// straight is the path without a proxy. A client connects for each try.
type straight struct {
	*world
	dropped []uint8 // of each client: how many SYNs of this try were dropped
}

// The defaults of Linux. The first wait is RFC 6298, section 2, and it doubles: a SYN is sent again 1,
// 3, 7, 15, 31 and 63 s after the first (net.ipv4.tcp_syn_retries = 6), and connect(2) fails with
// ETIMEDOUT after 127 s. Since Linux 6.5 the first five are a second apart
// (tcp_syn_linear_timeouts = 4). Clients that wait for less than 3 s cannot tell the difference, since
// the second one would be at 2 s.
const (
	synTimeout = time.Second
	synRetries = 6
)

func newStraight(w *world) *straight {
	return &straight{world: w, dropped: make([]uint8, w.Config.Clients.N)}
}

func (s *straight) begin(c int32) {
	s.dropped[c] = 0
	s.connect(c)
}

// connect sends a SYN, and the request if it is accepted.
func (s *straight) connect(c int32) {
	most := s.Server.Most
	switch {
	case !s.server.accepts():
		s.clientGets(c, 0)
	case s.server.queueFull():
		s.after(synTimeout<<s.dropped[c], synDue, c, s.turns[c])
		s.dropped[c]++
	case most == 0 || s.server.atOnce+len(s.server.backlog) < most:
		s.server.take(c, s.turns[c])
	}
}

// on sends a SYN again, unless the client has left and so has closed its socket.
func (*straight) endpointLost() {}

func (s *straight) on(e event) {
	switch {
	case e.kind != synDue || s.turns[e.who] != e.turn:
	case s.dropped[e.who] > synRetries:
		s.clientGets(e.who, 0)
	default:
		s.connect(e.who)
	}
}

func (s *straight) leave(int32) {}

func (s *straight) responded(j *job, status int) {
	if s.turns[j.client] == j.turn {
		s.clientGets(j.client, status)
	}
}
