package everyrule

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// replayContent is what bodies are parts of: 2 MiB in which every part of eight
// bytes is hardly found twice.
var replayContent = peers.RandomBytes(2 << 20)

// replayPlan is one request of a trial.
type replayPlan struct {
	id       int
	method   string
	key      bool
	body     []byte
	unknown  bool
	trailers string
	hangs    bool
	seed     uint64
}

func (x *replayTrial) plan(id int) *replayPlan {
	r := rand.New(rand.NewPCG(x.seed, uint64(id)<<8))
	p := &replayPlan{id: id, method: peers.OneOf(r, "PUT", "PUT", "PUT", "DELETE", "POST"), key: r.IntN(2) == 0, seed: x.seed}
	size := peers.OneOf(r, 0, 1, r.IntN(300), r.IntN(5000), 16<<10, r.IntN(70<<10), 40<<10, 40<<10+1, 64<<10+1, r.IntN(300<<10))
	from := r.IntN(len(replayContent) - size)
	p.body = replayContent[from : from+size]
	p.unknown = r.IntN(2) == 0
	if p.unknown && size > 0 && r.IntN(3) == 0 { // Go's client sends none with an empty body
		p.trailers = strconv.Itoa(id)
	}
	p.hangs = r.IntN(50) == 0
	return p
}

// unsafe: it must not be retried once it was sent.
func (p *replayPlan) unsafe() bool { return p.method == "POST" && !p.key }

func (p *replayPlan) call() *call {
	c := &call{method: p.method, path: fmt.Sprintf("/%d", p.id), body: p.body}
	if p.hangs {
		c.path = fmt.Sprintf("%s%d", hangs, p.id)
	}
	if p.key {
		c.headers = []string{"Idempotency-Key", strconv.Itoa(p.id)}
	}
	if p.unknown {
		c.upload, c.trailers = p.upload, trailerOf(p)
	}
	return c
}

// upload writes the body in pieces of any size.
func (p *replayPlan) upload(_ *run, w io.Writer) error {
	r := rand.New(rand.NewPCG(p.seed, uint64(p.id)<<8|1))
	for rest := p.body; len(rest) > 0; {
		n := min(len(rest), 1+r.IntN(peers.OneOf(r, 3, 100, 5000, 100<<10)))
		if _, err := w.Write(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// play does something with an attempt. The n-th of a request follows from the seed.
func (x *replayTrial) play(a *arrival) {
	id, err := strconv.Atoi(a.path[strings.LastIndexByte(a.path, '/')+1:])
	if err != nil {
		x.Errorf("the upstream got %s", a.path)
		return
	}
	x.up.mu.Lock()
	x.up.arrivals = nil // there are many
	x.up.mu.Unlock()
	p := x.plan(id)
	s := &replayAttempt{arrival: a, x: x, p: p, willing: !p.hangs}
	s.n = x.arrived(p)
	defer s.judge()
	r := rand.New(rand.NewPCG(x.seed, uint64(id)<<8|uint64(2+s.n)))
	if s.n >= 5 || r.IntN(2) == 0 {
		s.answer(200, r.IntN(6) == 0)
		return
	}
	k := r.IntN(len(p.body) + 1)
	if p.hangs {
		s.take(peers.OneOf(r, k, len(p.body)+1))
		s.abandoned()
		return
	}
	s.fail(r, k)
}

// fail does so after k bytes of the body, or after all of it.
func (s *replayAttempt) fail(r *rand.Rand, k int) {
	status := peers.OneOf(r, 503, 429, 500, 502)
	switch r.IntN(7) {
	case 0, 1:
		s.willing = false
		s.take(k)
		if r.IntN(2) == 0 || s.overHTTP2() { // where an end in order would be that of others too
			s.cut()
		} else {
			s.hangUp()
		}
	case 2, 3:
		s.willing = false // who has its response needs not send on
		s.take(peers.OneOf(r, 0, k))
		s.headers(status, 4, nil)
		s.limited = status == 429
		s.data("busy")
		s.take(len(s.p.body) + 1)
	case 4:
		if s.overHTTP2() {
			s.willing, s.refused = false, true
			s.disown(0, true)
			return
		}
		s.answer(status, true)
	case 5:
		s.willing = false
		s.headers(200, 5, nil)
		s.data("early")
		s.take(len(s.p.body) + 1)
	default:
		s.answer(status, false)
	}
}

// answer reads all of the request first.
func (s *replayAttempt) answer(status int, closes bool) {
	s.take(len(s.p.body) + 1)
	if !s.ended {
		return
	}
	s.headers(status, 4, nil)
	s.limited = status == 429
	s.data("busy")
	if closes && !s.overHTTP2() {
		s.hangUp() // without having said so, so that a kept connection turns out to be gone
	}
}

func (s *replayAttempt) overHTTP2() bool { _, is := s.protocol.(*wire2); return is }

// replayAttempt is one attempt as the upstream reads it.
type replayAttempt struct {
	*arrival
	x       *replayTrial
	p       *replayPlan
	n       int
	off     int
	wrong   bool // a byte differed
	ended   bool // it came to its end
	willing bool // the upstream would read on, and no timeout strikes
	refused bool // unread, and said so
	limited bool // answered 429, so that the work was not done
}

// take reads up to n bytes more of the body and compares them.
func (s *replayAttempt) take(n int) {
	buf := make([]byte, 16<<10)
	for n > 0 && !s.ended {
		got, err := s.Read(buf[:min(n, len(buf))])
		want := s.p.body[min(s.off, len(s.p.body)):min(s.off+got, len(s.p.body))]
		s.wrong = s.wrong || !bytes.Equal(want, buf[:got])
		s.off, n = s.off+got, n-got
		if s.ended = err == io.EOF; err != nil {
			return
		}
	}
}

// arrived counts an attempt and says which it is, from 1.
func (x *replayTrial) arrived(p *replayPlan) int {
	x.mu.Lock()
	s := x.states[p.id]
	if s == nil {
		s = &replayState{}
		x.states[p.id] = s
	}
	s.attempts++
	before := *s
	x.mu.Unlock()
	if before.reached && p.unsafe() {
		x.breaks(p, before.attempts, "it is not to be retried once sent")
	}
	if before.took && int64(len(p.body)) > x.caps.request {
		x.breaks(p, before.attempts, "repeated, with a body over the cap of %d of which some was taken", x.caps.request)
	}
	return before.attempts
}

// judge compares what came with what was sent.
func (s *replayAttempt) judge() {
	x, p := s.x, s.p
	x.mu.Lock()
	state := x.states[p.id]
	state.reached = state.reached || !s.refused && !s.limited
	state.took = state.took || s.off > 0
	x.mu.Unlock()
	x.tally.count(s)
	switch {
	case s.method != p.method:
		x.breaks(p, s.n, "it is a %s", s.method)
	case s.wrong:
		x.breaks(p, s.n, "other bytes, somewhere in the first %d", s.off)
	case s.ended && s.off != len(p.body):
		x.breaks(p, s.n, "%d bytes that look whole", s.off)
	case s.ended && s.trailer().Get("X-Sum") != p.trailers:
		x.breaks(p, s.n, "trailers %v", s.trailer())
	case !s.ended && s.willing:
		x.breaks(p, s.n, "cut off after %d bytes, while the upstream read on", s.off)
	}
}

func (a *replayTally) count(s *replayAttempt) {
	a.attempts.Add(1)
	a.bytes.Add(int64(s.off))
	if s.n > 1 {
		a.repeats.Add(1)
	}
	if !s.ended {
		a.cut.Add(1)
		return
	}
	a.whole.Add(1)
	if s.n > 1 {
		a.wholeRepeats.Add(1)
	}
	if s.p.trailers != "" {
		a.withTrailers.Add(1)
	}
}
