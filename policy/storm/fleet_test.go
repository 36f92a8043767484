package storm

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

func TestTheSameFleetGivesTheSameResult(t *testing.T) {
	for s := ShareNothing; s <= ShareQuota; s++ {
		c := DefaultFleet(20)
		c.Share = s
		if a, b := RunFleet(c), RunFleet(c); a != b {
			t.Errorf("sharing %d: %+v and %+v", s, a, b)
		}
		other := c
		other.Seed++
		if a, b := RunFleet(c), RunFleet(other); a == b {
			t.Errorf("sharing %d: another seed gives the same %+v", s, a)
		}
	}
}

// The upstream never answers more than its bucket has.
func TestAFleetGetsNoMoreThanTheQuota(t *testing.T) {
	for s := ShareNothing; s <= ShareQuota; s++ {
		c := DefaultFleet(50)
		c.Share, c.Settle = s, 0
		r := RunFleet(c)
		if most := c.Quota*c.Length.Seconds() + c.Burst; float64(r.Good) > most || r.Good == 0 {
			t.Errorf("sharing %d: %d good answers of %.0f", s, r.Good, most)
		}
		if r.Limited > r.Sent-r.Good || s != ShareQuota && r.Turned > r.Limited {
			t.Errorf("sharing %d: %+v does not add up", s, r)
		}
	}
}

// Half of what is asked for is too much, and a fleet that shares nothing sends
// it all; what one process learns for all of its requests spares most of that.
func TestWhatIsSharedSpares429s(t *testing.T) {
	var limited [4]float64
	for s := ShareNothing; s <= ShareQuota; s++ {
		c := DefaultFleet(50)
		c.Share = s
		limited[s] = RunFleet(c).LimitedShare
	}
	if limited[ShareQuota] > 0.001 {
		t.Errorf("share of 429s when all take turns: %.4f", limited[ShareQuota])
	}
	if limited[ShareNothing] < 0.4 || limited[ShareWithin] > 0.1 || limited[ShareCooldowns] > 0.1 {
		t.Errorf("shares of 429s: %.3f", limited)
	}
}

// Without too much load nobody is told to wait, whatever is shared.
func TestAFleetWithinItsQuotaIsLeftAlone(t *testing.T) {
	for s := ShareNothing; s <= ShareQuota; s++ {
		c := DefaultFleet(50)
		c.Share, c.Every = s, 4*c.Every
		if r := RunFleet(c); r.Limited != 0 || r.Turned != 0 || max(r.Good, r.Sent) > min(r.Good, r.Sent)+10 {
			t.Errorf("sharing %d: %+v", s, r)
		}
	}
}

// The longer the word travels, the more is sent in vain.
func TestADelayedWordCosts429s(t *testing.T) {
	var limited []float64
	for _, delay := range []time.Duration{0, 100 * time.Millisecond} {
		c := DefaultFleet(200)
		c.Share, c.Delay = ShareCooldowns, delay
		limited = append(limited, RunFleet(c).LimitedShare)
	}
	if limited[0] >= limited[1]/2 {
		t.Errorf("shares of 429s at once and after 100 ms: %.3f", limited)
	}
}

// What is told is heard after the way to the engine and the way from there,
// which is the process's own.
func TestAWordIsHeardAfterItsWay(t *testing.T) {
	f := &fleet{Fleet: Fleet{Share: ShareCooldowns, Delay: 10 * time.Millisecond}, queue: newQueue(time.Hour)}
	who, near, far := &process{}, &process{delay: time.Millisecond}, &process{delay: 9 * time.Millisecond}
	f.now = 100 * time.Millisecond
	f.pauseBegins(who)
	for at, want := range map[time.Duration][3]bool{
		100 * time.Millisecond: {true, false, false}, 105 * time.Millisecond: {true, false, false},
		106 * time.Millisecond: {true, true, false}, 114 * time.Millisecond: {true, true, true},
	} {
		f.now = at
		for i, p := range []*process{who, near, far} {
			if got := f.pauseLeft(p) > 0; got != want[i] {
				t.Errorf("%v: process %d pauses: %v, want %v", at, i, got, want[i])
			}
		}
	}
}

// With more processes than requests in a second each one's own share comes too
// rarely: it is leases that bring the slots to those who want them.
func TestLeasesGoToThoseWhoWantThem(t *testing.T) {
	c := DefaultFleet(3000)
	c.Share = ShareQuota
	if r := RunFleet(c); r.GoodShare < 0.97 || r.LimitedShare > 0.001 || r.Asked == 0 {
		t.Errorf("%+v", r)
	}
}

// However many processes there are, the engine is not asked more than it answers with ease, and
// nothing of the quota is lost by it: with as much of it for each, and with less and less.
func TestTheLedgerIsAskedABoundedNumberOfTimes(t *testing.T) {
	for name, c := range map[string]Fleet{"rarely there": DefaultFleet(3000), "busy": DefaultFleet(600)} {
		c.Share, c.Length = ShareQuota, 13*time.Second
		if name == "busy" {
			c.Grow()
		}
		r := RunFleet(c)
		if asked := float64(r.Asked) / c.Length.Seconds(); asked > 1.15*policy.QuotaQuestions || r.GoodShare < 0.97 || r.LimitedShare > 0.01 {
			t.Errorf("%s: %.0f questions a second, %+v", name, asked, r)
		}
	}
}

func TestAFleetRepeatsAsOftenAsItsPolicySays(t *testing.T) {
	c := DefaultFleet(50)
	c.Settle, c.Policy.MaxRetries = 0, 1
	c.Budget = policy.BudgetConfig{Ratio: 10, MinPerSecond: 10_000, Burst: 1_000_000}
	r := RunFleet(c)
	if most := 2*(r.Good+r.Turned) + c.Processes*c.Callers; r.Sent > most || r.Turned == 0 {
		t.Errorf("%+v: at most %d should be sent", r, most)
	}
}

func TestNobodyWaitsLongerForASlotThanAllowed(t *testing.T) {
	for _, most := range []time.Duration{200 * time.Millisecond, 2 * time.Second} {
		c := DefaultFleet(300)
		c.Share, c.QuotaWait = ShareQuota, most
		if r := RunFleet(c); r.Waited > most || r.Waited < most/2 {
			t.Errorf("the longest wait for a slot was %v, at most %v is allowed", r.Waited, most)
		}
	}
}
