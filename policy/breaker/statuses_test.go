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
