package policy

import (
	"testing"
	"time"
)

// lightly serves a request every two seconds, of the URLs in turn, for a minute.
func (d *desk) lightly(keys ...uint32) {
	d.t.Helper()
	for i := range 30 {
		d.pass(2 * time.Second)
		p, v := d.g.Enter(d.now, Request{Key: keys[i%len(keys)]})
		if v != VerdictGo {
			d.t.Fatalf("verdict %d", v)
		}
		d.now += 10 * time.Millisecond
		d.heed(d.g.Leave(p, d.now, Ending{Status: 200, Key: keys[i%len(keys)]}))
	}
}

// askFor asks for a URL, or stands in line.
func (d *desk) askFor(key uint32) {
	p, v := d.g.Enter(d.now, Request{Key: key})
	if v <= VerdictProbe {
		d.out = append(d.out, p)
		return
	}
	d.line++
	d.keys = append(d.keys, key)
	d.pump()
}

// silentFor is how long silence speaks for nothing here, as long as an answer does.
const silentFor = answeredFor - 5*time.Second

// untilShut asks for the URLs in turn, every 500 ms, without an answer. It returns how
// long it took to close the gate, silentFor at most, and what was sent.
func (d *desk) untilShut(keys ...uint32) (took time.Duration, sent int) {
	d.t.Helper()
	began := d.now
	for i := 0; d.g.State().Gate == GateOpen && d.now < began+silentFor; i++ {
		d.askFor(keys[i%len(keys)])
		d.pass(500 * time.Millisecond)
	}
	return d.now - began, len(d.out)
}

// On an upstream of little traffic, one URL's silence closes nothing while another was
// answered before. If both are silent, the upstream is, and so it is where no other is known.
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
		d := newDesk(t, GuardOptions{})
		d.lightly(tc.known...)
		took, sent := d.untilShut(tc.silent...)
		if closed := took < silentFor; closed != tc.closes || sent > 8 {
			t.Errorf("%s: closed %v after %v, %d sent", name, closed, took, sent)
		}
	}
}

// The request that tells is not kept waiting behind those for the URL that hangs.
func TestInDoubtAURLThatWasAnsweredIsTriedAtOnce(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	d.lightly(1)
	for range 20 {
		d.askFor(2)
		d.pass(100 * time.Millisecond)
	}
	if s := d.g.State(); !s.Doubt || d.line == 0 {
		t.Fatalf("no doubt: %+v", s)
	}
	p, v := d.g.Enter(d.now, Request{Key: 1})
	if v != VerdictGo {
		t.Fatalf("verdict %d", v)
	}
	d.heed(d.g.Leave(p, d.now+time.Millisecond, Ending{Status: 200, Key: 1}))
	if s := d.g.State(); s.Doubt || s.Gate != GateOpen || d.line > 0 {
		t.Errorf("after its answer: %+v, %d wait", s, d.line)
	}
}

// One URL fails all the time. Another one speaks for the upstream until it fails as well.
func TestAnotherURLSpeaksForTheUpstreamUntilItFails(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	d.lightly(1)
	fail := func(key uint32, n int) {
		for range n {
			if p, v := d.g.Enter(d.now, Request{Key: key}); v == VerdictGo {
				d.now += 30 * time.Millisecond
				d.heed(d.g.Leave(p, d.now, Ending{Status: 503, Key: key}))
			}
		}
	}
	fail(2, 200)
	d.want(GateOpen, ClosedByNothing)
	fail(1, 1)
	d.want(GateClosed, ClosedByFailing)
}

// What was answered long ago speaks for nothing.
func TestAnAnswerSpeaksForAWhile(t *testing.T) {
	d := newDesk(t, GuardOptions{})
	d.lightly(1)
	d.pass(answeredFor + time.Second)
	for range evidenceVolume {
		if d.g.State().Gate != GateOpen {
			break
		}
		p, _ := d.g.Enter(d.now, Request{Key: 2})
		d.heed(d.g.Leave(p, d.now, Ending{Status: 503, Key: 2}))
	}
	d.want(GateClosed, ClosedByFailing)
}
