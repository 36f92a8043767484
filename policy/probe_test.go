package policy

import (
	"testing"
	"time"
)

func TestWhatAProbeTells(t *testing.T) {
	for _, tc := range []struct {
		ending Ending
		want   ProbeResult
		tells  Ending
	}{
		{Ending{Kind: Answered, Status: 200}, ProbeBack, Ending{Kind: Answered, Status: 200}},
		{Ending{Kind: Answered, Status: 302}, ProbeBack, Ending{Kind: Answered, Status: 302}},
		{Ending{Kind: Answered, Status: 401}, ProbeBack, Ending{Kind: Answered, Status: 401}},
		{Ending{Kind: Answered, Status: 404}, ProbeBack, Ending{Kind: Answered, Status: 404}},
		{Ending{Kind: Answered, Status: 499}, ProbeBack, Ending{Kind: Answered, Status: 499}},
		{Ending{Kind: Answered, Status: 101}, ProbeFailing, Ending{Kind: Answered, Status: 503}},
		{Ending{Kind: Answered, Status: 429}, ProbeFailing, Ending{Kind: Answered, Status: 503}},
		{Ending{Kind: Answered, Status: 500}, ProbeFailing, Ending{Kind: Answered, Status: 503}},
		{Ending{Kind: Answered, Status: 503}, ProbeFailing, Ending{Kind: Answered, Status: 503}},
		{Ending{Kind: Reset}, ProbeUnanswered, Ending{Kind: Reset}},
		{Ending{Kind: Refused}, ProbeUnreachable, Ending{Kind: Refused}},
		{Ending{Kind: DialFailed}, ProbeUnreachable, Ending{Kind: DialFailed}},
		{Ending{Kind: Unsent}, ProbeUnreachable, Ending{Kind: DialFailed}}, // else the next probe would not wait
	} {
		if got, tells := ProbeEnding(tc.ending); got != tc.want || tells != tc.tells {
			t.Errorf("%+v: %v and %+v, want %v and %+v", tc.ending, got, tells, tc.want, tc.tells)
		}
	}
}

// With OwnProbe whoever comes waits, the probe is an event, and its waits are
// those of the gate.
func TestAnOwnProbeIsLeftToTheUser(t *testing.T) {
	for _, tc := range []struct {
		ending Ending // of the attempt and of each probe
		most   time.Duration
	}{
		{Ending{Kind: Refused}, refusedMost},
		{Ending{Kind: DialFailed}, failedMost},
	} {
		d := newDesk(t, GuardOptions{OwnProbe: true})
		d.ask()
		d.end(0, tc.ending)
		if v := d.ask(); v != VerdictHold {
			t.Fatalf("%+v: verdict %d while the gate is closed", tc.ending, v)
		}
		last := d.now
		for range 20 {
			d.now = max(d.now, d.g.NextEvent())
			d.heed(d.g.Expire(d.now))
			if v := d.ask(); v != VerdictHold {
				t.Fatalf("%+v: verdict %d while a probe is due", tc.ending, v)
			}
			if at := d.g.NextEvent(); at > d.now {
				t.Fatalf("%+v: a probe is due at %v, the next event is at %v", tc.ending, d.now, at)
			}
			p, due := d.g.Probe(d.now)
			if !due || d.now-last > tc.most || tc.most > 500*time.Millisecond {
				t.Fatalf("%+v: due %v, %v after the last one", tc.ending, due, d.now-last)
			}
			last = d.now
			_, e := ProbeEnding(tc.ending)
			d.heed(d.g.Leave(p, d.now, e))
		}
		d.now = d.g.NextEvent()
		d.g.Expire(d.now)
		p, _ := d.g.Probe(d.now)
		d.heed(d.g.Leave(p, d.now, Ending{Kind: Answered, Status: 204}))
		if s := d.g.State(); s.Gate != GateRamp && s.Gate != GateOpen || len(d.out) == 0 {
			t.Errorf("%+v: after a good probe %+v, %d let in", tc.ending, s, len(d.out))
		}
	}
}

// A stall makes a probe due at once. It hangs; its late answer opens the gate,
// though another probe was sent meanwhile.
func TestTheLateAnswerOfAHungOwnProbeCounts(t *testing.T) {
	d := newDesk(t, GuardOptions{OwnProbe: true})
	d.serve(3*time.Second, 100, 10*time.Millisecond)
	step := func(t time.Duration) { // not pass, which would stand still at a probe that nobody takes
		d.now += t
		d.heed(d.g.Expire(d.now))
	}
	for range 200 {
		d.ask()
		step(10 * time.Millisecond)
	}
	d.want(GateHalfOpen, ClosedByStall)
	first, due := d.g.Probe(d.now)
	if !due {
		t.Fatal("no probe is due after a stall")
	}
	for range 60 {
		step(time.Second)
	}
	if _, due := d.g.Probe(d.now); !due {
		t.Fatal("a hung probe is not replaced")
	}
	d.heed(d.g.Leave(first, d.now, Ending{Kind: Answered, Status: 200}))
	if s := d.g.State().Gate; s != GateRamp && s != GateOpen {
		t.Errorf("gate %v after the late answer", s)
	}
}
