package account

import (
	"testing"
	"time"
)

const key = 7

func TestAPauseGrowsWithEachTrialThatFails(t *testing.T) {
	var a Accounts
	now := time.Second
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute, time.Hour, time.Hour} {
		if first := a.UsedUp(key, now, 0); first != (i == 0) {
			t.Errorf("%d: new is %v", i, first)
		}
		if a.UsedUp(key, now+time.Millisecond, 0) { // sent before
			t.Errorf("%d: new twice", i)
		}
		if left := a.Left(key, now); left < want || left > want+time.Millisecond {
			t.Fatalf("%d: left out for %v, want %v", i, left, want)
		}
		now += want + time.Millisecond
		if left := a.Left(key, now); left != 0 {
			t.Fatalf("%d: nobody tries it: %v", i, left)
		}
		if left := a.Left(key, now); left != trialTime {
			t.Errorf("%d: a second one tries it too: %v", i, left)
		}
	}
	if !a.Works(key) || a.Works(key) || a.Any() || a.Left(key, now) != 0 {
		t.Error("it works, and is left out")
	}
	a.UsedUp(key, now, 0)
	if left := a.Left(key, now); left != MinPause {
		t.Errorf("after it worked, left out for %v", left)
	}
}

func TestAResetIsObeyed(t *testing.T) {
	for reset, want := range map[time.Duration]time.Duration{
		time.Millisecond: time.Millisecond, 5 * time.Second: 5 * time.Second, 23 * time.Hour: 23 * time.Hour,
		1<<63 - 1: MaxReset, 0: MinPause, -1: MinPause,
	} {
		var a Accounts
		a.UsedUp(key, time.Hour, reset)
		if left := a.Left(key, time.Hour); left != want {
			t.Errorf("%v: left out for %v", reset, left)
		}
		if left := a.Left(key+1, time.Hour); left != 0 {
			t.Errorf("another account is left out for %v", left)
		}
	}
	var a Accounts
	a.UsedUp(key, 0, time.Hour)
	a.UsedUp(key, 0, time.Second) // a response to an earlier request shortens nothing
	if left := a.Left(key, 0); left != time.Hour {
		t.Errorf("left out for %v", left)
	}
}

// A trial without a result, as when its client left, is made again, and does not let the pause grow.
func TestATrialWithoutAResult(t *testing.T) {
	var a Accounts
	a.UsedUp(key, 0, 0)
	for i := range 3 {
		now := MinPause + time.Duration(i)*trialTime
		if a.Left(key, now) != 0 || a.Left(key, now+trialTime-1) != 1 {
			t.Errorf("trial %d", i)
		}
	}
	a.UsedUp(key, time.Hour, 0)
	if left := a.Left(key, time.Hour); left != 2*MinPause {
		t.Errorf("left out for %v", left)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	var a Accounts
	for i := range uint64(2 * maxAccounts) {
		a.UsedUp(i, 0, 0)
	}
	if n := len(a.out); n != maxAccounts {
		t.Errorf("%d accounts", n)
	}
	if !a.UsedUp(1<<60, MinPause, 0) || len(a.out) != 1 {
		t.Errorf("%d accounts after their time", len(a.out))
	}
}
