package budget

import (
	"math"
	"testing"
	"time"
)

func TestARetryThatWaitsComesBeforeLaterOnes(t *testing.T) {
	b := New(Default())
	drain(b, 0)
	b.Join()
	b.Join()
	at := 2500 * time.Millisecond // two tokens and a half
	if b.TryRetry(at) {
		t.Error("a later retry took a token while two wait")
	}
	for range 2 {
		if !b.TryQueued(at) {
			t.Error("no token for a retry that waits")
		}
		b.Leave()
	}
	if b.TryQueued(at) || b.TryRetry(at) {
		t.Error("a third token")
	}
	if !b.TryRetry(3 * time.Second) {
		t.Error("no token after the queue is empty")
	}
}

func TestDelayIsTheTimeUntilTheNextToken(t *testing.T) {
	for name, tc := range map[string]struct {
		c        Config
		requests int // at 0
		queued   int
		now      time.Duration
		want     time.Duration
	}{
		"one a second":                      {Config{MinPerSecond: 1, Burst: 1}, 0, 0, 0, time.Second},
		"a part is there":                   {Config{MinPerSecond: 1, Burst: 1}, 0, 0, 250 * time.Millisecond, 750 * time.Millisecond},
		"a token is there":                  {Config{MinPerSecond: 1, Burst: 1}, 0, 0, time.Second, 0},
		"behind three":                      {Config{MinPerSecond: 1, Burst: 1}, 0, 3, 0, 4 * time.Second},
		"a token is there, but two wait":    {Config{MinPerSecond: 1, Burst: 1}, 0, 2, time.Second, 2 * time.Second},
		"nothing adds tokens":               {Config{Burst: 1}, 0, 0, 0, math.MaxInt64},
		"requests go on as in the last 10s": {Config{Ratio: 0.2, Burst: 1}, 52, 0, 0, 577 * time.Millisecond}, // 0.4 are left; 1.04 a second
		"those requests are long past":      {Config{Ratio: 0.2, Burst: 1}, 52, 0, 20 * time.Second, math.MaxInt64},
	} {
		b := New(tc.c)
		requests(b, tc.requests, 0)
		drain(b, 0)
		for range tc.queued {
			b.Join()
		}
		if got := b.Delay(tc.now); got-tc.want > time.Millisecond || tc.want-got > time.Millisecond {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestDelaysOfAQueue(t *testing.T) {
	b := New(Config{MinPerSecond: 2, Burst: 1})
	drain(b, 0)
	for range 4 {
		b.Join()
	}
	if first, last, next := b.FirstDelay(0), b.LastDelay(0), b.Delay(0); first != 500*time.Millisecond || last != 2*time.Second || next != 2500*time.Millisecond {
		t.Errorf("first %v, last %v, next %v", first, last, next)
	}
}

// In a fleet the grants of the engine count, and each question without a token asks for one.
func TestQueuedRetriesOfAFleet(t *testing.T) {
	asked := 0
	b := New(Config{MinPerSecond: 1, Burst: 5})
	b.Share(func() { asked++ })
	b.ApplyGrant(0, 0, 2)
	b.Join()
	if b.TryQueued(0) || asked != 1 {
		t.Errorf("a token without a grant, or %d questions instead of one", asked)
	}
	if d := b.FirstDelay(0); d != time.Second {
		t.Errorf("the next token after %v, want 1s", d)
	}
	b.ApplyGrant(0, 1, 2)
	if b.TryRetry(0) || !b.TryQueued(0) {
		t.Error("the granted token is not that of the retry that waits")
	}
}
