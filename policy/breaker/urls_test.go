package breaker

import (
	"testing"
	"time"
)

// lightly serves a request every two seconds, to the URLs in turn, for a minute.
func (d *guardHarness) lightly(keys ...uint32) {
	d.t.Helper()
	for i := range 30 {
		d.advance(2 * time.Second)
		p, v := d.g.Acquire(d.now, Request{Key: keys[i%len(keys)]})
		if v != VerdictGo {
			d.t.Fatalf("verdict %d", v)
		}
		d.now += 10 * time.Millisecond
		d.handleSignal(d.g.Release(p, d.now, AttemptEnd{Status: 200, Key: keys[i%len(keys)]}))
	}
}

// askFor takes a permit for a URL or joins the queue.
func (d *guardHarness) askFor(key uint32) {
	p, v := d.g.Acquire(d.now, Request{Key: key})
	if v <= VerdictProbe {
		d.out = append(d.out, p)
		return
	}
	d.line++
	d.keys = append(d.keys, key)
	d.dequeue()
}

// silentFor is how long a silence here counts for nothing, as long as a response is valid.
const silentFor = answerCounts - 5*time.Second

// untilTripped requests the URLs in turn, every 500 ms, without a response. It returns how long the
// breaker took to open, at most silentFor, and how many requests were sent.
func (d *guardHarness) untilTripped(keys ...uint32) (took time.Duration, sent int) {
	d.t.Helper()
	began := d.now
	for i := 0; d.g.State().Breaker == Closed && d.now < began+silentFor; i++ {
		d.askFor(keys[i%len(keys)])
		d.advance(500 * time.Millisecond)
	}
	return d.now - began, len(d.out)
}

// With little traffic, the silence of one URL does not open the breaker if another URL was answered
// before. If both are silent, or no other URL is known, the upstream counts as silent.
func TestASilenceAtLittleTrafficIsTriedBeforeItIsJudged(t *testing.T) {
	for name, tc := range map[string]struct {
		known, silent []uint32
		closes        bool
	}{
		"one hangs that was never answered": {[]uint32{1}, []uint32{2}, false},
		"one of two hangs":                  {[]uint32{1, 2}, []uint32{2}, false},
		"both are silent":                   {[]uint32{1, 2}, []uint32{1, 2}, true},
		"the only one is silent":            {[]uint32{1}, []uint32{1}, true},
		"all are silent":                    {[]uint32{1, 2, 3, 4, 5, 6, 7, 8, 9}, []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9}, true},
	} {
		d := newGuardHarness(t, Options{})
		d.lightly(tc.known...)
		took, sent := d.untilTripped(tc.silent...)
		if closed := took < silentFor; closed != tc.closes || sent > 60 {
			t.Errorf("%s: closed %v after %v, %d sent", name, closed, took, sent)
		}
	}
}

// oneHangs answers URL 1 lightly, then leaves requests for URL 2 without a response.
func (d *guardHarness) oneHangs() {
	d.t.Helper()
	d.lightly(1)
	for range 20 {
		d.askFor(2)
		d.advance(100 * time.Millisecond)
	}
}

// The request that decides does not wait behind those for the URL that hangs.
func TestWhileSuspectARespondingURLIsTriedAtOnce(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.oneHangs()
	if s := d.g.State(); !s.Suspect || d.line == 0 {
		t.Fatalf("no doubt: %+v", s)
	}
	p, v := d.g.Acquire(d.now, Request{Key: 1})
	if v != VerdictGo {
		t.Fatalf("verdict %d", v)
	}
	d.handleSignal(d.g.Release(p, d.now+time.Millisecond, AttemptEnd{Status: 200, Key: 1}))
	if s := d.g.State(); s.Suspect || s.Breaker != Closed || d.line > 0 {
		t.Errorf("after its response: %+v, %d wait", s, d.line)
	}
}

// One URL fails all the time. Another one shows that the upstream works, until it fails as well.
func TestAnotherURLSpeaksForTheUpstreamUntilItFails(t *testing.T) {
	for _, failing := range []uint32{3, 1 + 2*64} { // the second has the same hash as 1
		d := newGuardHarness(t, Options{})
		d.lightly(1)
		fail := func(key uint32, n int) {
			for range n {
				if p, v := d.g.Acquire(d.now, Request{Key: key}); v == VerdictGo {
					d.now += 30 * time.Millisecond
					d.handleSignal(d.g.Release(p, d.now, AttemptEnd{Status: 503, Key: key}))
				}
			}
		}
		fail(failing, 200)
		d.want(Closed, OpenedByNothing)
		fail(1, 1)
		d.want(Open, OpenedByFailing)
	}
}

// A response of long ago proves nothing.
func TestAResponseCountsForAWhile(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.lightly(1)
	d.advance(answerCounts + time.Second)
	for range many {
		if d.g.State().Breaker != Closed {
			break
		}
		p, _ := d.g.Acquire(d.now, Request{Key: 2})
		d.handleSignal(d.g.Release(p, d.now, AttemptEnd{Status: 503, Key: 2}))
	}
	d.want(Open, OpenedByFailing)
}

// While suspect, one request for a URL that was answered lately passes at once. Others wait, also a
// second one, one that is not complete, and one for a URL that was never answered.
func TestWhileSuspectOneTrialPasses(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.oneHangs()
	for _, tc := range []struct {
		r    Request
		want Verdict
	}{
		{Request{Key: 3}, VerdictSuspect},
		{Request{}, VerdictSuspect},
		{Request{Key: 1, Unfinished: true}, VerdictSuspect},
		{Request{Key: 1}, VerdictGo},
		{Request{Key: 1}, VerdictSuspect},
	} {
		if _, v := d.g.Acquire(d.now, tc.r); v != tc.want {
			t.Errorf("%+v: verdict %d, want %d", tc.r, v, tc.want)
		}
	}
}

// Two URLs are silent, so the breaker is open, and a URL that was answered lately is tried. Until that
// shows something nobody is refused at once.
func TestWhileATrialIsInFlightNobodyIsRefusedAtOnce(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.lightly(1)
	for i := 0; d.g.State().Breaker == Closed && i < 30; i++ {
		d.askFor(uint32(2 + i%2))
		d.advance(100 * time.Millisecond)
	}
	d.want(HalfOpen, OpenedByStall)
	for _, tc := range []struct {
		after time.Duration
		key   uint32
		want  Verdict
	}{{0, 4, VerdictBreakerOpen}, {0, 1, VerdictProbe}, {0, 4, VerdictSuspect}, {0, 1, VerdictSuspect}, {overdueUnknown, 4, VerdictBreakerOpen}} {
		d.now += tc.after
		if _, v := d.g.Acquire(d.now, Request{Key: tc.key}); v != tc.want {
			t.Errorf("%+v: verdict %d", tc, v)
		}
	}
}

// In slow start, requests of each URL that is silent pass twice a second, and take no place of others.
func TestASilentURLTakesNoPlaceInSlowStart(t *testing.T) {
	d := inSlowStart(t)
	d.acquire()
	d.end(0, AttemptEnd{Status: 200}) // room for ten
	ask := func(key uint32) Verdict {
		p, v := d.g.Acquire(d.now, Request{Key: key})
		if v > VerdictProbe {
			d.g.CancelWait(d.now, Request{Key: key})
		} else if key != 2 && key != 4 {
			d.handleSignal(d.g.Release(p, d.now, AttemptEnd{Status: 200, Key: key}))
		}
		return v
	}
	ask(2)
	ask(4)
	for end := d.now + 400*time.Millisecond; d.now < end; d.now += 50 * time.Millisecond {
		ask(3)
	}
	for i, want := range []Verdict{VerdictSuspect, VerdictGo, VerdictSuspect, VerdictGo} {
		for _, key := range []uint32{2, 4} {
			if v := ask(key); v != want {
				t.Errorf("silent, %d: verdict %d, want %d", i, v, want)
			}
		}
		for range 10 {
			if v := ask(3); v != VerdictGo {
				t.Fatalf("another URL, %d: verdict %d", i, v)
			}
			d.now += overdueUnknown / 29
		}
	}
}

// A trial takes a permit, so it does not exceed a fixed limit.
func TestATrialKeepsAFixedLimit(t *testing.T) {
	d := newGuardHarness(t, Options{ConcurrencyLimit: ConcurrencyLimitFixed, FixedLimit: 2})
	d.lightly(1)
	for range 2 {
		d.handleSignal(d.g.Expire(d.now))
		d.askFor(2)
		d.advance(400 * time.Millisecond)
	}
	d.handleSignal(d.g.Expire(d.now))
	if !d.g.State().Suspect {
		t.Fatalf("not suspect: %+v", d.g.State())
	}
	if _, v := d.g.Acquire(d.now, Request{Key: 1}); v != VerdictSuspect {
		t.Errorf("verdict %d at the limit", v)
	}
}

// failEach ends a request with a 503 for each key, ten per second, while the breaker is closed.
func (d *guardHarness) failEach(n int, key func(i int) uint32, also func()) {
	d.t.Helper()
	for i := 0; i < n && d.g.State().Breaker == Closed; i++ {
		p, v := d.g.Acquire(d.now, Request{})
		if v != VerdictGo {
			d.t.Fatalf("verdict %d", v)
		}
		d.handleSignal(d.g.Release(p, d.now, AttemptEnd{Status: 503, Key: key(i)}))
		d.advance(100 * time.Millisecond)
		also()
	}
}

// One client requests many URLs that fail. Others get good responses, rarely.
func TestFailingURLsOfOneClientDoNotAffectRareRequests(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.lightly(1)
	tick := 0
	d.failEach(600, func(i int) uint32 { return uint32(100 + i%50) }, func() {
		if tick++; tick%30 == 0 {
			d.acquire()
			d.end(len(d.out)-1, AttemptEnd{Status: 200, Key: 1})
		}
	})
	d.want(Closed, OpenedByNothing)
}

// An upstream that fails opens the breaker also if its good responses were rare: soon if the URLs
// that were answered fail, and otherwise when their responses are too old.
func TestAFailingUpstreamWithRareRequestsOpensTheBreaker(t *testing.T) {
	for name, tc := range map[string]struct {
		key    func(i int) uint32
		within time.Duration
	}{
		"known URLs": {func(i int) uint32 { return uint32(1 + i%9) }, evidenceWindow + time.Second},
		"new URLs":   {func(i int) uint32 { return uint32(100 + 2*i) }, 2*evidenceWindow + time.Second},
	} {
		d := newGuardHarness(t, Options{})
		d.lightly(1, 2, 3, 4, 5, 6, 7, 8, 9)
		began := d.now
		d.failEach(700, tc.key, func() {})
		if took, s := d.now-began, d.g.State(); s.Opened[OpenedByFailing] != 1 || took > tc.within {
			t.Errorf("%s: %v after %v", name, s.Breaker, took)
		}
	}
}

// In slow start a response from before the outage does not keep the breaker closed.
func TestAnUpstreamThatFailsInSlowStartOpensTheBreakerAgain(t *testing.T) {
	d := inSlowStart(t)
	for i := range 30 {
		if d.acquire() != VerdictGo {
			break
		}
		d.now += time.Millisecond
		d.end(0, AttemptEnd{Status: 503, Key: uint32(100 + i)})
	}
	d.want(HalfOpen, OpenedByFailing) // a URL that was answered before is tried at once
}
