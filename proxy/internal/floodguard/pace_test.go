package floodguard

import (
	"testing"
	"testing/synctest"
	"time"
)

// takes lets p take what came, and returns how long it waits.
func takes(p *Pace, came Traffic) time.Duration {
	pause, _ := p.Due(came)
	time.Sleep(pause)
	return pause
}

// As many frames as are allowed at once cost no time; more are read as fast as the allowance grows.
func TestAPeerIsReadSlowlyBeyondItsAllowance(t *testing.T) {
	for name, tc := range map[string]struct{ atOnce, more Traffic }{
		"frames": {Traffic{Frames: IdleFrames}, Traffic{Frames: 2000}},
		"resets": {Traffic{Frames: resetsAtOnce, Resets: resetsAtOnce}, Traffic{Frames: 2000, Resets: 2000}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := NewPace()
			if d := takes(&p, tc.atOnce); d != 0 {
				t.Errorf("%s: as many as are allowed at once took %v", name, d)
			}
			if d := takes(&p, tc.more); d != 2*time.Second {
				t.Errorf("%s: two seconds' took %v", name, d)
			}
		})
	}
}

// A peer that goes on and on is a flood; one that pauses is not.
func TestAFloodGoesOn(t *testing.T) {
	for name, tc := range map[string]struct {
		pause time.Duration
		want  bool
	}{"on and on": {0, true}, "with pauses": {1500 * time.Millisecond, false}} {
		synctest.Test(t, func(t *testing.T) {
			p := NewPace()
			flood := false
			for range 20 {
				pause, is := p.Due(Traffic{Frames: 1000})
				flood = flood || is
				time.Sleep(pause + tc.pause)
			}
			if flood != tc.want {
				t.Errorf("%s: %t", name, flood)
			}
		})
	}
}

// The allowance grows again with time, and with what the peer got.
func TestTheAllowanceOfFramesIsEarned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPace()
		takes(&p, Traffic{Frames: IdleFrames})
		if d := takes(&p, Traffic{Frames: 1000}); d != time.Second {
			t.Errorf("a second's took %v", d)
		}
		if d := takes(&p, Traffic{Frames: 300, Earned: 300}); d != 0 {
			t.Errorf("300 behind 300 responses took %v", d)
		}
		time.Sleep(time.Hour)
		takes(&p, Traffic{Frames: 1})
		if d := takes(&p, Traffic{Frames: IdleFrames + 500}); d != 500*time.Millisecond {
			t.Errorf("500 more than are allowed at once took %v", d)
		}
		p = NewPace()
		takes(&p, Traffic{Frames: 1, Earned: 5000}) // while nothing is overdrawn, it is kept
		if d := takes(&p, Traffic{Frames: IdleFrames + 4999}); d != 0 {
			t.Errorf("5000 behind 5000 pieces took %v", d)
		}
	})
}
