package breaker

import (
	"testing"
	"time"
)

// An attempt that timed out is one failure, even if its connection is reset later.
func TestAnAbandonedAttemptFailsOnce(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(3*time.Second, 100, 10*time.Millisecond)
	d.advance(evidenceWindow + time.Second)
	var late []Permit
	for range many - 1 {
		p, v := d.g.Acquire(d.now, Request{})
		if v != VerdictGo {
			t.Fatalf("verdict %d", v)
		}
		p, s := d.g.Abandon(p, d.now, AttemptEnd{Kind: TimedOut})
		d.handleSignal(s)
		late = append(late, p)
	}
	d.now += time.Millisecond
	for _, p := range late {
		d.handleSignal(d.g.Release(p, d.now, AttemptEnd{Kind: Reset}))
	}
	d.want(Closed, OpenedByNothing)
}

// Clients that left late are evidence of a silence if they sent their requests in it. Requests before a
// response are none.
func TestClientsThatLeftLateCountInTheirSilenceOnly(t *testing.T) {
	for responded, want := range map[bool]OpenedBy{false: OpenedByStall, true: OpenedByNothing} {
		d := newGuardHarness(t, Options{})
		for range manyClients {
			d.acquire()
		}
		d.advance(time.Second)
		if responded {
			d.acquire()
			d.now += time.Second
			d.end(len(d.out)-1, AttemptEnd{Status: 200})
			d.handleSignal(d.g.Expire(d.now))
		}
		d.advance(20 * time.Second)
		for _, p := range d.out {
			_, s := d.g.Abandon(p, d.now, AttemptEnd{Kind: TimedOut})
			d.handleSignal(s)
		}
		d.handleSignal(d.g.Expire(d.now))
		if got := d.g.State().OpenedBy; got != want {
			t.Errorf("responded %v: opened by %v, want %v", responded, got, want)
		}
	}
}

// While there are failures, the response of another URL shows that the upstream works, however many
// requests it answers.
func TestAResponseAmongFailuresSpeaksForTheUpstream(t *testing.T) {
	for key, want := range map[uint32]OpenedBy{1: OpenedByNothing, 2: OpenedByFailing} {
		d := newGuardHarness(t, Options{})
		end := func(e AttemptEnd) {
			d.acquire()
			d.now += time.Millisecond
			d.end(0, e)
		}
		end(AttemptEnd{Status: 503, Key: 2})
		end(AttemptEnd{Status: 200, Key: key})
		for range many {
			end(AttemptEnd{Status: 503, Key: 2})
			if d.g.State().Breaker != Closed {
				break
			}
		}
		if got := d.g.State().OpenedBy; got != want {
			t.Errorf("key %d answered: opened by %v, want %v", key, got, want)
		}
	}
}

// Clients that leave before the usual response would be there are no evidence of a silence, however
// many they are.
func TestClientsInAHurryAreNoEvidence(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 100*time.Millisecond)
	for end := d.now + 5*time.Second; d.now < end; d.advance(10 * time.Millisecond) {
		if v := d.acquire(); v != VerdictGo {
			t.Fatalf("verdict %d, %+v", v, d.g.State())
		}
		if len(d.out) > 6 {
			p := d.out[0]
			d.out = d.out[1:]
			d.handleSignal(second(d.g.Abandon(p, d.now, AttemptEnd{Kind: Abandoned, Closed: true})))
		}
	}
}

// Nearly all attempts time out, and the few responses in between show that the upstream is not silent.
func TestAbandonedAttemptsAreFailuresBesideAFewResponses(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(10*time.Second, 50, 10*time.Millisecond)
	for i := 0; d.g.State().Breaker == Closed; i++ {
		d.now += 10 * time.Millisecond
		d.acquire()
		if i%20 == 0 && len(d.out) > 0 {
			d.end(len(d.out)-1, AttemptEnd{Status: 200})
			continue
		}
		if i > 1000 {
			t.Fatal("not opened within 10 s")
		}
		if len(d.out) == 0 { // a limit holds it back
			continue
		}
		p := d.out[len(d.out)-1]
		d.out = d.out[:len(d.out)-1]
		d.handleSignal(second(d.g.Abandon(p, d.now, AttemptEnd{Kind: TimedOut, Closed: true})))
	}
}

// While a probe hangs, a client that leaves late shows that clients do not wait for ever. Another probe
// would only be one more request to work off.
func TestAClientThatLeavesLateDelaysTheNextProbe(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 10*time.Millisecond)
	d.untilOpen()
	d.acquire() // it waits
	d.advance(time.Second)
	d.handleSignal(second(d.g.Abandon(d.out[0], d.now, AttemptEnd{Kind: Abandoned})))
	before := d.g.State()
	d.advance((30 * time.Second) - 2*time.Second)
	if s := d.g.State(); s.Probes != before.Probes {
		t.Errorf("%d probes after %v, %d before", s.Probes, (30*time.Second)-time.Second, before.Probes)
	}
}

// Clients that left late in an earlier silence do not count in this one.
func TestEachSilenceHasItsOwnClientsThatLeftLate(t *testing.T) {
	d := newGuardHarness(t, Options{})
	for i := range manyClients {
		d.acquire()
		d.advance(20 * time.Second)
		p := d.out[0]
		d.out = d.out[1:]
		d.handleSignal(second(d.g.Abandon(p, d.now, AttemptEnd{Kind: TimedOut})))
		d.handleSignal(d.g.Expire(d.now))
		if i == 0 {
			d.acquire()
			d.end(0, AttemptEnd{Status: 200})
			d.handleSignal(d.g.Expire(d.now))
		}
	}
	d.want(Closed, OpenedByNothing)
}
