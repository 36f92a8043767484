package breaker

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// FuzzGuard drives a Guard by bytes. Each byte is one call that a user may make. It checks these
// promises:
//
//   - while the breaker is not closed, only a probe or an incomplete request is admitted;
//   - there is one probe at a time; another one follows only if the last one ended, was lost, was
//     given up, or has hung for leastHang;
//   - only a probe exceeds a fixed limit, and incomplete requests take at most half of it;
//   - while suspect, at most one request passes every 100 ms;
//   - a waiting request gets a signal when it can be admitted, or an event is due;
//   - with ActiveProbe no attempt becomes the probe, and an event is due for one;
//   - in the end no permit is taken.
func FuzzGuard(f *testing.F) {
	f.Add(byte(0), []byte("eeeeLLLLeeeeeeRRRRttttttttttNNNNNN"))
	f.Add(byte(1), []byte("eeeeeeeeeeeeeettttttttTTTTTTTTTTaaaaaaaaaTTTTnnnnLLLL"))
	f.Add(byte(2), []byte("eLeLeLeLeLeLeLeLeLeLTeTeTeTeTeTeTeTeTeTcTcTcTTTTpCpCtt"))
	f.Add(byte(4), []byte("eeeeeeeeeeeeeettttttttTTTTTTTTTTaaaaaaaaaTTTTnnnnLLLLkkkk"))
	f.Add(byte(1), []byte("eeeeeeeeeeeeeettttttttTTTTTTTTTT\xef\xefee\xefnnnnLLLL"))
	f.Add(byte(0), []byte("eLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeeeeeeee----eeee--eeee--eeee--LLLLLL"))
	f.Add(byte(3), []byte("eLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeLeeeeeeee----eeee--eeee--eeee--aaaaTTTT"))
	f.Add(byte('1'), []byte("0000A007A07A\xe100*09#XX07\xb1"))
	f.Add(byte('4'), []byte("0000AA07A\xe100*09#90000")) // refused connections, and a probe that hangs
	f.Add(byte(1), []byte("\xe4\xe4\xe4\xe4eee\x94\x94LL\x94RRtttttt"))
	f.Add(byte('K'), []byte("070090\xcf07A\xcea7a\xa80A9A0000\x817000079\xed0"))                                   // one passes in doubt
	f.Add(byte(1), []byte(strings.Repeat("0", 22)+"A"+strings.Repeat("0", 76)+"*0000000000000\xfc7777#B9C000000")) // a failing upstream, and a probe that hangs
	f.Add(byte(3), []byte{0x10, 0x20, 0xff, 0x83, 0x00, 0x41, 0x9c})
	f.Fuzz(func(t *testing.T, kind byte, acts []byte) {
		o := [5]Options{{}, {ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: 3}, {ConcurrencyLimit: ConcurrencyLimitOff}, {NoBreaker: true}, {ActiveProbe: true}}[kind%5]
		o.Rand = rand.New(rand.NewPCG(uint64(kind), 1))
		w := &fuzzed{t: t, g: New(o), fixed: o.FixedLimit, own: o.ActiveProbe}
		for i, act := range acts[:min(len(acts), 2000)] {
			w.act(act, i)
		}
		w.finish()
	})
}

type fuzzed struct {
	t     *testing.T
	g     *Guard
	fixed int
	own   bool // ActiveProbe
	now   time.Duration
	out   []Permit  // their clients wait
	late  []Permit  // abandoned, with open connections
	line  []Request // the newest last

	doubted time.Duration // when a request passed while suspect
	probe   Permit        // the last one taken, while it is in flight
	probeAt time.Duration

	picked   Request  // by Pick
	probeWhy OpenedBy // why the breaker was open at that time
}

// leastHang returns the shortest time that a probe hangs before another one is sent beside it.
func leastHang(why OpenedBy) time.Duration {
	if why == OpenedByStall || why == OpenedByNothing {
		return (30 * time.Second) / 2
	}
	return rhythms[why].hang / 2
}

func (w *fuzzed) act(act byte, i int) {
	pick := func(n int) int { return (int(act)*31 + i) % n }
	switch act % 12 {
	case 0, 1, 2, 3:
		w.now += time.Duration(act) * 100 * time.Microsecond
		state := w.g.State().Breaker
		r := Request{Unfinished: act >= 192}
		p, v := w.g.Acquire(w.now, r)
		if v > VerdictProbe {
			w.line = append(w.line, r)
		} else {
			w.notOurs(v)
			w.taken(p, v, state)
		}
	case 4, 5:
		if n := len(w.out); n > 0 && act >= 128 {
			p, s := w.g.Sent(w.out[pick(n)], w.now)
			w.out[pick(n)] = p
			w.handleSignal(s)
		} else if n > 0 {
			w.release(pick(n), AttemptEnd{Status: 200, Key: uint32(act)})
		}
	case 6:
		if len(w.out) > 0 {
			w.release(pick(len(w.out)), AttemptEnd{Kind: EndKind(act / 12 % uint8(numEndKinds)), Status: 503, Key: 1})
		}
	case 7:
		if n := len(w.out); n > 0 {
			w.abandon(pick(n), act&16 != 0)
		}
	case 8:
		if n := len(w.late); n > 0 {
			k := pick(n)
			p := w.late[k]
			w.late = append(w.late[:k], w.late[k+1:]...)
			w.ended(p)
			w.handleSignal(w.g.Release(p, w.now, AttemptEnd{Kind: EndKind(act / 12 % 6), Status: 200}))
		}
	case 9:
		w.now += time.Duration(act) * time.Duration(act) * 100 * time.Microsecond // up to 6.5 s
		w.handleSignal(w.g.Expire(w.now))
		w.handleSignal(w.g.Expire(w.now)) // the observations may make something due
		if at := w.g.NextEvent(); at > 0 && at <= w.now {
			w.t.Fatalf("at %v, the next event is one of %v: its timer never rests", w.now, at)
		}
	case 10:
		if n := len(w.line); n > 0 {
			w.g.CancelWait(w.now, w.remove(n-1))
		} else if act >= 192 {
			w.handleSignal(w.g.EndpointLost(w.now))
		}
	case 11:
		state := w.g.State().Breaker
		if w.probes(state, [...]EndKind{Connected, Refused, DialFailed, Dropped}[act/16%4]) {
			break
		}
		if act&128 != 0 && w.probe.Taken() {
			s := w.g.ReplaceProbe(w.probe, w.now)
			w.ended(w.probe)
			w.handleSignal(s)
		}
	}
	w.check()
}

// probes takes the probe that is due, and reports whether one was. A check ends at once with kind.
func (w *fuzzed) probes(before State, kind EndKind) bool {
	w.t.Helper()
	p, due := w.g.Probe(w.now)
	switch {
	case due && p.Check():
		w.handleSignal(w.g.Release(p, w.now, AttemptEnd{Kind: kind}))
	case due:
		w.taken(p, VerdictProbe, before)
	}
	return due
}

func (w *fuzzed) taken(p Permit, v Verdict, before State) {
	w.t.Helper()
	state := w.g.State()
	if v == VerdictGo && !p.Sending() && state.Breaker != Closed && state.Breaker != SlowStart {
		w.t.Fatalf("let through while the breaker is %v (before: %v)", state.Breaker, before)
	}
	if v == VerdictGo && state.Suspect {
		if w.doubted > 0 && w.now-w.doubted < (100*time.Millisecond) {
			w.t.Fatalf("two passed in doubt within %v", w.now-w.doubted)
		}
		w.doubted = w.now
	}
	if v == VerdictGo && w.fixed > 0 && state.InFlight-state.Abandoned > w.fixed {
		w.t.Fatalf("%d in flight, limit %d", state.InFlight, w.fixed)
	}
	if n := w.g.counters.sending.Load(); w.fixed > 0 && v == VerdictGo && state.Breaker == Closed && p.Sending() && n > half(int64(w.fixed)) {
		w.t.Fatalf("%d incomplete in flight, limit %d", n, w.fixed)
	}
	if p.Probe() != (v == VerdictProbe) && !state.Suspect { // who passes in doubt may become the probe
		w.t.Fatalf("verdict %d with a place whose Probe is %v", v, p.Probe())
	}
	if v == VerdictProbe {
		if w.probe.Taken() && w.now-w.probeAt < min(leastHang(w.probeWhy), leastHang(state.OpenedBy)) {
			w.t.Fatalf("a second probe %v after the first, opened by %v", w.now-w.probeAt, state.OpenedBy)
		}
		w.probe, w.probeAt, w.probeWhy = p, w.now, state.OpenedBy
	}
	w.out = append(w.out, p)
}

// ended records that the probe is no longer in flight, if p is the probe.
func (w *fuzzed) ended(p Permit) {
	if p.probe == w.probe.probe {
		w.probe = Permit{}
	}
}

func (w *fuzzed) release(i int, e AttemptEnd) {
	w.t.Helper()
	p := w.out[i]
	w.out = append(w.out[:i], w.out[i+1:]...)
	w.ended(p)
	w.handleSignal(w.g.Release(p, w.now, e))
	w.mayHaveReopened()
}

func (w *fuzzed) abandon(i int, closed bool) {
	w.t.Helper()
	p := w.out[i]
	w.out = append(w.out[:i], w.out[i+1:]...)
	q, s := w.g.Abandon(p, w.now, AttemptEnd{Kind: Abandoned, Closed: closed})
	if q.Taken() == (closed || p.Sending()) {
		w.t.Fatalf("closed %v, and the place is taken %v", closed, q.Taken())
	}
	if !q.Taken() {
		w.ended(p)
	} else {
		w.late = append(w.late, q)
	}
	w.handleSignal(s)
}

// mayHaveReopened forgets the probe if something else opened the breaker, or if a reset showed that
// another machine has the address now.
func (w *fuzzed) mayHaveReopened() {
	if s := w.g.State(); s.Breaker != HalfOpen {
		w.probe = Permit{}
	}
}

func (w *fuzzed) handleSignal(s Signal) {
	w.t.Helper()
	w.mayHaveReopened()
	if s&SignalWake == 0 {
		return
	}
	for len(w.line) > 0 {
		state := w.g.State().Breaker
		p, v := w.g.Next(w.now, w)
		if v > VerdictProbe {
			return
		}
		if w.picked.Unfinished != p.Sending() {
			w.t.Fatal("a permit for another request")
		}
		w.notOurs(v)
		w.taken(p, v, state)
	}
}

// Pick implements Line.
func (w *fuzzed) Pick(fits func(Request) bool) (Request, bool) {
	for i := len(w.line) - 1; i >= 0; i-- {
		if fits(w.line[i]) {
			w.picked = w.remove(i)
			return w.picked, true
		}
	}
	return Request{}, false
}

// remove removes a request from the queue.
func (w *fuzzed) remove(i int) Request {
	r := w.line[i]
	w.line = slices.Delete(w.line, i, i+1)
	return r
}

// notOurs checks the verdict for an attempt that is not admitted.
func (w *fuzzed) notOurs(v Verdict) {
	w.t.Helper()
	if w.own && v == VerdictProbe {
		w.t.Fatal("an attempt was made the probe")
	}
}

func (w *fuzzed) check() {
	w.t.Helper()
	s := w.g.State()
	if s.Queued != len(w.line) {
		w.t.Fatalf("%d wait, counted %d", len(w.line), s.Queued)
	}
	if least := len(w.out); s.InFlight < least || s.Abandoned < 0 {
		w.t.Fatalf("%d in flight and %d abandoned, with %d waited for", s.InFlight, s.Abandoned, least)
	}
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	if len(w.line) > 0 && w.g.core.admitsAt(w.now) <= w.now && w.g.core.eventAt > w.now {
		w.t.Fatal("somebody waits who could be let in, and no event says so")
	}
	if w.g.core.probesSeparately() && w.g.core.pace.due() && w.g.core.eventAt > w.now {
		w.t.Fatal("a probe is due, and no event says so")
	}
	if len(w.line) > 0 && len(w.out)+len(w.late) == 0 && w.g.core.eventAt == backoff.Forever {
		w.t.Fatal("somebody waits, nothing is in flight, and no event will come")
	}
}

func (w *fuzzed) finish() {
	w.t.Helper()
	for turn := 0; len(w.out)+len(w.line) > 0; turn++ {
		if turn > 10_000+4*len(w.line) {
			w.t.Fatalf("%d wait for ever: %+v, next event %v, now %v", len(w.line), w.g.State(), w.g.NextEvent(), w.now)
		}
		for len(w.out) > 0 {
			w.release(0, AttemptEnd{Status: 200})
		}
		if len(w.line) > 0 {
			w.now = max(w.now, min(w.g.NextEvent(), w.now+time.Hour)) + time.Millisecond
			w.handleSignal(w.g.Expire(w.now))
			w.probes(HalfOpen, Connected)
			w.check()
		}
	}
	for _, p := range w.late {
		w.handleSignal(w.g.Release(p, w.now, AttemptEnd{Kind: Reset}))
	}
	w.now += 5 * time.Minute
	w.g.Expire(w.now)
	if s := w.g.State(); s.InFlight != 0 || s.Abandoned != 0 {
		w.t.Fatalf("in the end: %+v", s)
	}
}
