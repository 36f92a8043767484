package breaker

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/status"
)

func TestTheBreakersBackoffPacesItsProbes(t *testing.T) {
	doubling := growing{first: time.Second}
	g := New(Options{Backoff: doubling, Rand: seeded(1), ConnectProbe: true})
	now := time.Duration(0)
	refuse := func(p Permit) (wait time.Duration) {
		g.Release(p, now, AttemptEnd{Kind: Refused})
		return g.NextEvent() - now
	}
	p, _ := g.Acquire(now, Request{})
	wait := refuse(p)
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		if wait != want {
			t.Fatalf("the next probe comes after %v, want %v", wait, want)
		}
		now += wait
		g.Expire(now)
		probe, due := g.Probe(now)
		if !due {
			t.Fatalf("no probe is due after %v", wait)
		}
		wait = refuse(probe)
	}
	now += wait
	g.Expire(now)
	probe, _ := g.Probe(now)
	g.Release(probe, now, AttemptEnd{Kind: Connected})
	now += time.Minute
	g.Expire(now)
	p, v := g.Acquire(now, Request{})
	if v != VerdictGo {
		t.Fatalf("after a success: %v", v)
	}
	if wait := refuse(p); wait != time.Second {
		t.Errorf("after a success the first wait is %v, want a second", wait)
	}
}

// growing doubles its wait with each failure.
type growing struct{ first time.Duration }

func (b growing) Wait(s backoff.Step, _ backoff.Rand) time.Duration { return b.first << s.Retry }

func TestABreakersBackoffOfNoWaitStillPauses(t *testing.T) {
	g := New(Options{Backoff: backoff.None{}, Rand: seeded(1), ConnectProbe: true})
	p, _ := g.Acquire(0, Request{})
	g.Release(p, 0, AttemptEnd{Kind: Refused})
	if at := g.NextEvent(); at != minProbeWait {
		t.Errorf("the next probe comes after %v, want %v", at, minProbeWait)
	}
}

func TestWhatStatusesOpenTheBreaker(t *testing.T) {
	for _, tc := range []struct {
		list   string
		status int
		opens  bool
	}{
		{status.DefaultFailing, 503, true}, {status.DefaultFailing, 500, false}, {"500,502-504", 500, true}, {"500", 503, false}, {"none", 503, false}, {"500", 404, false},
	} {
		set, err := status.ParseFailing(tc.list)
		if err != nil {
			t.Fatal(err)
		}
		g, now := New(Options{Failing: set, Rand: seeded(1)}), time.Duration(0)
		for i := range 3 * evidenceVolume {
			p, v := g.Acquire(now, Request{})
			if v > VerdictProbe {
				break
			}
			now += time.Millisecond
			g.Release(p, now, AttemptEnd{Kind: Responded, Status: tc.status, Key: uint32(i + 1)})
		}
		if got := g.State().Opened[OpenedByFailing] > 0; got != tc.opens {
			t.Errorf("%s: %d opens it: %v, want %v", tc.list, tc.status, got, tc.opens)
		}
	}
}

func TestParseFailing(t *testing.T) {
	for list, want := range map[string]string{"503,500": "500,503", "502-504": "502,503,504", "none": "none"} {
		if set, err := status.ParseFailing(list); err != nil || set.String() != want {
			t.Errorf("%q reads as %v (%v), want %s", list, set, err, want)
		}
	}
	for _, list := range []string{"", "429", "499-502", "600", "5xx"} {
		if set, err := status.ParseFailing(list); err == nil {
			t.Errorf("%q reads as %v, want an error", list, set)
		}
	}
	var zero status.Failing
	if zero.String() != status.DefaultFailing || !zero.Has(502) || zero.Has(500) {
		t.Errorf("the zero value is %v, want the default", zero)
	}
}
