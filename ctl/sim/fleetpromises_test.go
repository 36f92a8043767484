package sim

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

func TestTheSameFleetGivesTheSameResult(t *testing.T) {
	for s := ShareNothing; s <= ShareRateLimit; s++ {
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

// The upstream never answers more than its bucket allows.
func TestAFleetGetsNoMoreThanTheRateLimit(t *testing.T) {
	for s := ShareNothing; s <= ShareRateLimit; s++ {
		c := DefaultFleet(50)
		c.Share, c.Settle = s, 0
		r := RunFleet(c)
		if most := c.RateLimit*c.Length.Seconds() + c.Burst; float64(r.Good) > most || r.Good == 0 {
			t.Errorf("sharing %d: %d good responses of %.0f", s, r.Good, most)
		}
		if r.Limited > r.Sent-r.Good || s != ShareRateLimit && r.RateLimited > r.Limited {
			t.Errorf("sharing %d: %+v does not add up", s, r)
		}
	}
}

// The demand is twice the limit, and a fleet that shares nothing sends all of it. If each process
// shares a 429 among its own requests, most of that is avoided.
func TestSharingSpares429s(t *testing.T) {
	var limited [4]float64
	for s := ShareNothing; s <= ShareRateLimit; s++ {
		c := DefaultFleet(50)
		c.Share = s
		limited[s] = RunFleet(c).LimitedShare
	}
	if limited[ShareRateLimit] > 0.001 {
		t.Errorf("share of 429s when all take turns: %.4f", limited[ShareRateLimit])
	}
	if limited[ShareNothing] < 0.4 || limited[ShareWithin] > 0.1 || limited[ShareRateLimitPauses] > 0.1 {
		t.Errorf("shares of 429s: %.3f", limited)
	}
}

// Without overload no request is delayed, whatever is shared.
func TestAFleetWithinItsRateLimitIsNotDelayed(t *testing.T) {
	for s := ShareNothing; s <= ShareRateLimit; s++ {
		c := DefaultFleet(50)
		c.Share, c.Every = s, 4*c.Every
		if r := RunFleet(c); r.Limited != 0 || r.RateLimited != 0 || max(r.Good, r.Sent) > min(r.Good, r.Sent)+10 {
			t.Errorf("sharing %d: %+v", s, r)
		}
	}
}

// The longer a pause takes to arrive, the more requests are rejected.
func TestADelayedPauseCosts429s(t *testing.T) {
	var limited []float64
	for _, delay := range []time.Duration{0, 100 * time.Millisecond} {
		c := DefaultFleet(200)
		c.Share, c.Delay = ShareRateLimitPauses, delay
		limited = append(limited, RunFleet(c).LimitedShare)
	}
	if limited[0] >= limited[1]/2 {
		t.Errorf("shares of 429s at once and after 100 ms: %.3f", limited)
	}
}

// A shared pause arrives after the time to the engine and the time from there, which differs by
// process.
func TestASharedPauseArrivesAfterItsDelay(t *testing.T) {
	f := &fleet{Fleet: Fleet{Share: ShareRateLimitPauses, Delay: 10 * time.Millisecond}, eventQueue: newEventQueue(time.Hour)}
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

// With more processes than requests per second, the own share comes too rarely: leases bring the
// slots to the processes that want them.
func TestLeasesGoToThoseWhoWantThem(t *testing.T) {
	c := DefaultFleet(3000)
	c.Share = ShareRateLimit
	if r := RunFleet(c); r.GoodShare < 0.97 || r.LimitedShare > 0.001 || r.LeaseRequests == 0 {
		t.Errorf("%+v", r)
	}
}

// However many processes there are, the engine gets no more requests than it easily answers.
// Nothing of the rate limit is lost by that, whether it grows with the processes or not.
func TestTheLedgerIsAskedABoundedNumberOfTimes(t *testing.T) {
	for name, c := range map[string]Fleet{"rarely there": DefaultFleet(3000), "busy": DefaultFleet(600)} {
		c.Share, c.Length = ShareRateLimit, 13*time.Second
		if name == "busy" {
			c.Grow()
		}
		r := RunFleet(c)
		if asked := float64(r.LeaseRequests) / c.Length.Seconds(); asked > 1.15*ratelimit.LedgerRequestsPerSecond || r.GoodShare < 0.97 || r.LimitedShare > 0.01 {
			t.Errorf("%s: %.0f questions a second, %+v", name, asked, r)
		}
	}
}

func TestAFleetRetriesAsOftenAsItsPolicySays(t *testing.T) {
	c := DefaultFleet(50)
	c.Settle, c.Policy.MaxRetries = 0, 1
	c.Budget = budget.Config{Ratio: 10, MinPerSecond: 10_000, Burst: 1_000_000}
	r := RunFleet(c)
	if most := 2*(r.Good+r.RateLimited) + c.Processes*c.Clients; r.Sent > most || r.RateLimited == 0 {
		t.Errorf("%+v: at most %d should be sent", r, most)
	}
}

func TestNobodyWaitsLongerForASlotThanAllowed(t *testing.T) {
	for _, most := range []time.Duration{200 * time.Millisecond, 2 * time.Second} {
		c := DefaultFleet(300)
		c.Share, c.RateLimitWait = ShareRateLimit, most
		if r := RunFleet(c); r.Waited > most || r.Waited < most/2 {
			t.Errorf("the longest wait for a slot was %v, at most %v is allowed", r.Waited, most)
		}
	}
}
