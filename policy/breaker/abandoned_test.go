package breaker

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// Abandoned permits count until they are released or freed, and never twice.
func TestAbandonedPermitsAreCountedOnce(t *testing.T) {
	type place struct {
		batch uint32
		at    time.Duration
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		var l abandonedPermits
		var out []place
		now, counted := time.Duration(0), int64(0)
		for range 5000 {
			now += time.Duration(r.Int64N(int64(300 * time.Millisecond)))
			bound := time.Duration(1+r.Int64N(20)) * time.Second
			switch k := r.IntN(20); {
			case k < 12:
				out = append(out, place{l.add(now), now})
				counted++
			case k < 18 && len(out) > 0:
				i := r.IntN(len(out))
				if l.release(out[i].batch) {
					counted--
				} else if now-out[i].at < bound {
					// freed by an expire with a shorter bound, or by freeAll
					if now-out[i].at < abandonedBatchTime && l.first != l.next && out[i].batch >= l.first {
						t.Fatal("a young place was freed by age")
					}
				}
				out = append(out[:i], out[i+1:]...)
			case k == 18:
				counted -= l.expire(now, bound)
				for i := range l.next - l.first {
					b := l.batches[(l.first+i)%abandonedBatches]
					if b.count > 0 && now >= b.began+abandonedBatchTime+bound {
						t.Fatalf("a batch of %v is not freed at %v with bound %v", b.began, now, bound)
					}
				}
			case k == 19 && r.IntN(20) == 0:
				counted -= l.freeAll()
				if counted != 0 {
					t.Fatalf("%d left after all were freed", counted)
				}
			}
			if l.count != counted || counted < 0 {
				t.Fatalf("%d counted, want %d", l.count, counted)
			}
		}
	}
}

func TestAbandonedPermitsAreFreedInTime(t *testing.T) {
	var l abandonedPermits
	if l.nextEvent(time.Second) != backoff.Forever {
		t.Error("an event without places")
	}
	l.add(10 * time.Second)
	batch := l.add(10*time.Second + abandonedBatchTime - 1)
	at := l.nextEvent(5 * time.Second)
	if at != 16*time.Second {
		t.Errorf("freed at %v", at)
	}
	if n := l.expire(at-1, 5*time.Second); n != 0 {
		t.Errorf("%d freed early", n)
	}
	if n := l.expire(at, 5*time.Second); n != 2 {
		t.Errorf("%d freed", n)
	}
	if l.release(batch) {
		t.Error("a freed place was given back")
	}
}

// If there are more batches than slots, the last batch takes the rest.
func TestAbandonedPermitsOfManySeconds(t *testing.T) {
	var l abandonedPermits
	for i := range 3 * abandonedBatches {
		l.add(time.Duration(i) * abandonedBatchTime)
	}
	if l.count != 3*abandonedBatches || l.next-l.first != abandonedBatches {
		t.Errorf("%d places in %d batches", l.count, l.next-l.first)
	}
	if n := l.expire(time.Hour, time.Second); n != 3*abandonedBatches {
		t.Errorf("%d freed", n)
	}
}
