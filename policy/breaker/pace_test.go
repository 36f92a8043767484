package breaker

import (
	"testing"
	"time"
)

// What was sent in a silence, a hundred times a second for 600 ms, is answered when
// each says.
func TestPaceTellsSlownessFromAnOutage(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer func(sent time.Duration) time.Duration
		slower bool
	}{
		{"each after two seconds", func(sent time.Duration) time.Duration { return sent + 2*time.Second }, true},
		{"each after one to two", func(sent time.Duration) time.Duration {
			return sent + time.Second + sent*7%time.Second
		}, true},
		{"all at once after the outage", func(time.Duration) time.Duration { return 4 * time.Second }, false},
		{"as fast as it can", func(sent time.Duration) time.Duration { return 4*time.Second + sent/3 }, false},
		{"each after a minute", func(sent time.Duration) time.Duration { return sent + time.Minute }, false},
	} {
		var p pace
		p.begin(0)
		due := map[time.Duration][]time.Duration{}
		for sent := time.Duration(0); sent < 600*ms; sent += 10 * ms {
			at := tc.answer(sent).Truncate(ms)
			due[at] = append(due[at], sent)
		}
		said := 0
		for now := time.Duration(0); now < 70*time.Second; now += ms {
			for _, sent := range due[now] {
				if p.recordResponse(sent, now) {
					said++
				}
			}
			p.expire(now)
		}
		if said != map[bool]int{true: 1}[tc.slower] {
			t.Errorf("%s: said %d times that it is slower", tc.name, said)
		}
		if p.on {
			t.Errorf("%s: still watches", tc.name)
		}
	}
}

// Neither what was sent before the silence nor what was sent after it says anything.
func TestPaceAsksOnlyWhatWasSentInTheSilence(t *testing.T) {
	var p pace
	p.begin(time.Second)
	for i := range time.Duration(100) {
		if p.recordResponse(i*9*ms, 3*time.Second+i*10*ms) {
			t.Fatal("what was sent before says that it is slower")
		}
	}
	p.recordResponse(1100*ms, 5*time.Second)
	for i := range time.Duration(100) {
		if p.recordResponse(5*time.Second+(i+1)*10*ms, 5100*ms+(i+1)*10*ms) {
			t.Fatal("what was sent after it says that it is slower")
		}
	}
}

// A slower upstream is known to be slower soon after its first late responses, with
// the breaker closed or open by then, and gets at once what it needs.
func TestASlowerUpstreamIsLearntFromItsLateResponses(t *testing.T) {
	for _, latency := range []time.Duration{time.Second, 2 * time.Second} {
		d := newGuardHarness(t, Options{})
		d.serve(15*time.Second, 100, 10*ms)
		most := 0
		sent := map[Permit]time.Duration{}
		for end := d.now + 6*time.Second; d.now < end; d.advance(10 * ms) {
			d.acquire()
			for i := len(d.out) - 1; i >= 0; i-- {
				p := d.out[i]
				if sent[p] == 0 {
					sent[p] = d.now
				}
			}
			for i := 0; i < len(d.out); i++ {
				if at := sent[d.out[i]]; at > 0 && d.now-at >= latency {
					d.end(i, AttemptEnd{Status: 200})
					i--
				}
			}
			most = max(most, len(d.out))
		}
		s := d.g.State()
		if s.MedianLatency < latency*3/4 || s.MedianLatency > latency*5/4 {
			t.Errorf("%v: %v is taken for usual", latency, s.MedianLatency)
		}
		if d.line > 0 || most < int(100*latency.Seconds()) {
			t.Errorf("%v: %d wait after six seconds, %d were in flight at most", latency, d.line, most)
		}
		if closed := s.Opened[OpenedByStall] > 0; closed != (latency > downFrom) {
			t.Errorf("%v: closed %v", latency, closed)
		}
	}
}
