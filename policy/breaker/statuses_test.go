package breaker

import (
	"testing"
	"time"
)

func TestWhatStatusesOpenTheBreaker(t *testing.T) {
	for status, opens := range map[int]bool{404: false, 429: false, 500: false, 501: false, 502: true, 503: true, 504: true, 505: false} {
		g, now := New(Options{Rand: seeded(1)}), time.Duration(0)
		for i := range 3 * many {
			p, v := g.Acquire(now, Request{})
			if v > VerdictProbe {
				break
			}
			now += time.Millisecond
			g.Release(p, now, AttemptEnd{Kind: Responded, Status: status, Key: uint32(i + 1)})
		}
		if got := g.State().Opened[OpenedByFailing] > 0; got != opens {
			t.Errorf("%d opens it: %v, want %v", status, got, opens)
		}
	}
}

// A 500 concerns one request. So it ends a silence, and does not show that an upstream that failed is back.
func TestWhatA500Shows(t *testing.T) {
	d := newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 10*ms)
	d.untilOpen()
	d.end(len(d.out)-1, AttemptEnd{Status: 500})
	d.want(SlowStart, OpenedByStall)

	d = newGuardHarness(t, Options{})
	d.serve(15*time.Second, 100, 10*ms)
	for d.g.State().Breaker == Closed {
		d.acquire()
		d.end(0, AttemptEnd{Status: 503})
		d.now += 10 * ms
	}
	for _, status := range []int{500, 200} {
		for d.line == 0 && len(d.out) == 0 {
			d.acquire()
		}
		for end := d.now + time.Second; d.now < end && len(d.out) == 0; {
			d.advance(10 * ms)
		}
		d.end(0, AttemptEnd{Status: status})
		if s := d.g.State().Breaker; (s == SlowStart) != (status == 200) {
			t.Errorf("after %d: %v", status, s)
		}
	}
}

// Nothing but 500 comes: that concerns the upstream if it lasts for a second, for several URLs and clients.
func TestNothingBut500(t *testing.T) {
	for name, tc := range map[string]struct {
		urls, clients uint32
		every         time.Duration
		want          OpenedBy
	}{
		"several URLs and clients": {5, 3, 60 * ms, OpenedByFailing},
		"four URLs":                {4, 3, 60 * ms, OpenedByNothing},
		"two clients":              {5, 2, 60 * ms, OpenedByNothing},
		"a moment":                 {5, 3, 40 * ms, OpenedByNothing},
	} {
		d := newGuardHarness(t, Options{})
		d.serve(15*time.Second, 100, 10*ms)
		d.advance(time.Second)
		for i := range uint32(20) {
			d.acquire()
			if len(d.out) == 0 {
				break
			}
			d.end(0, AttemptEnd{Status: 500, Key: 2*(i%tc.urls) + 1, Client: i % tc.clients})
			d.advance(tc.every)
		}
		if s := d.g.State(); s.OpenedBy != tc.want {
			t.Errorf("%s: opened by %v, want %v", name, s.OpenedBy, tc.want)
		}
	}
}
