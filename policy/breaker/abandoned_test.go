package breaker

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

func TestAbandonedPermitsAreFreedInTime(t *testing.T) {
	const period = 5 * time.Second
	var l abandonedPermits
	if l.nextEvent(period) != backoff.Forever {
		t.Error("an event without permits")
	}
	l.add(10 * time.Second)
	if n := l.expire(15*time.Second, period); n != 0 {
		t.Errorf("%d freed after one period", n)
	}
	l.add(15 * time.Second)
	if at := l.nextEvent(period); at != 20*time.Second {
		t.Errorf("the next event is at %v", at)
	}
	if n := l.expire(20*time.Second, period); n != 1 || l.count() != 1 {
		t.Errorf("%d freed after two periods and %d left, want 1 and 1", n, l.count())
	}
	if n := l.expire(time.Hour, period); n != 1 || l.nextEvent(period) != backoff.Forever {
		t.Errorf("%d freed after an hour, want 1", n)
	}
}
