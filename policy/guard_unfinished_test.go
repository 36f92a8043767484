package policy

import (
	"testing"
	"time"
)

// sending enters with a request that is not whole.
func (d *desk) sending() Place {
	d.t.Helper()
	p, v := d.g.Enter(d.now, Request{Unfinished: true})
	if v != VerdictGo {
		d.t.Fatalf("verdict %d", v)
	}
	return d.g.Sending(p)
}

// What is wrong with requests that are not sent whole is their clients' doing.
func TestRequestsThatAreNotSentWholeAreNoEvidence(t *testing.T) {
	for name, e := range map[string]Ending{
		"503": {Status: 503}, "reset": {Kind: Reset}, "timed out": {Kind: TimedOut}, "left": {Kind: Abandoned, Closed: true},
	} {
		d := newDesk(t, GuardOptions{})
		d.serve(10*time.Second, 50, 10*time.Millisecond)
		for range 100 {
			p := d.sending()
			d.pass(3 * time.Second)
			if e.Kind == TimedOut || e.Kind == Abandoned {
				_, s := d.g.Abandon(p, d.now, e)
				d.heed(s)
			} else {
				d.heed(d.g.Leave(p, d.now, e))
			}
		}
		s := d.g.State()
		if s.Gate != GateOpen || s.Bound > 0 || s.InFlight != 0 || s.Abandoned != 0 || s.Usual > 20*time.Millisecond || d.g.sending.Load() != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// Its latency begins when it is sent whole, and from then on its silence counts.
func TestARequestCountsFromWhenItIsSentWhole(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	d.serve(10*time.Second, 50, 10*time.Millisecond)
	for range 200 {
		p := d.sending()
		d.now += 2 * time.Second
		p = d.g.Sent(p, d.now)
		d.now += 10 * time.Millisecond
		d.heed(d.g.Leave(p, d.now, Ending{Status: 200}))
	}
	about(t, "usual", d.g.State().Usual, 10*time.Millisecond)
	for range 5 {
		d.g.Sent(d.sending(), d.now)
	}
	for end := d.now + 5*time.Second; d.now < end; d.now += 50 * time.Millisecond {
		d.g.Expire(d.now)
	}
	d.want(GateHalfOpen, ClosedByStall)
}

// That no connection can be made is not the request's doing.
func TestARefusedConnectionCountsWhateverItIsFor(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	d.heed(d.g.Leave(d.sending(), d.now, Ending{Kind: Refused}))
	d.want(GateClosed, ClosedByRefused)
	if n := d.g.sending.Load(); n != 0 {
		t.Errorf("%d are sent", n)
	}
}

// Where nothing else waits, requests that are not whole are let through now and then, and
// one that is sent whole and answered opens the gate.
func TestUnfinishedRequestsAloneAreLetThroughNowAndThen(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	for range evidenceVolume {
		d.ask()
		d.end(0, Ending{Status: 503})
	}
	d.pass(time.Second)
	first := d.sending()
	for range 5 {
		if _, v := d.g.Enter(d.now, Request{Unfinished: true}); v != VerdictHold {
			t.Fatalf("verdict %d beside the one let through", v)
		}
		d.line++
	}
	if at := d.g.NextEvent(); at <= d.now || at > d.now+failedMost {
		t.Errorf("the next one at %v, now it is %v", at, d.now)
	}
	if p, v := d.g.Enter(d.now, Request{}); v != VerdictHold { // it stands behind the others...
		t.Errorf("verdict %d, place %v", v, p)
	}
	d.line++
	if p, v := d.g.Next(d.now, Request{Unfinished: true}); v != VerdictProbe || !p.Probe() { // ... and is the probe
		t.Errorf("verdict %d for those who wait", v)
	}
	d.line--
	d.heed(d.g.Leave(d.g.Sent(first, d.now), d.now+time.Millisecond, Ending{Status: 200}))
	d.want(GateRamp, ClosedByFailing)
}
