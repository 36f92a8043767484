package policy

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// seen returns a throttler with these counts.
func seen(requests, accepts int) *ClientThrottler {
	t := NewClientThrottler()
	for i := range requests {
		t.Done(i < accepts)
	}
	return t
}

func TestClientThrottlingProbability(t *testing.T) {
	for _, tc := range []struct {
		requests, accepts int
		want              float64
	}{
		{0, 0, 0}, {1, 1, 0}, {10, 10, 0}, {10, 5, 0}, {10, 4, 2. / 11}, {10, 0, 10. / 11}, {1, 0, 1. / 2}, {1000, 1, 998. / 1001},
	} {
		if got := seen(tc.requests, tc.accepts).Probability(0); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("%d requests, %d accepts: %v, want %v", tc.requests, tc.accepts, got, tc.want)
		}
	}
}

func TestClientThrottlingForgets(t *testing.T) {
	th := seen(100, 0)
	th.Probability(0) // the clock starts
	for _, at := range []time.Duration{clientThrottlingMean, 2 * clientThrottlingMean, 20 * clientThrottlingMean} {
		n := 100 * math.Exp(-float64(at)/float64(clientThrottlingMean))
		if got, want := th.Probability(at), n/(n+1); math.Abs(got-want) > 1e-9 {
			t.Errorf("after %v: %v, want %v", at, got, want)
		}
	}
}

func TestClientThrottlerAllowFollowsTheDraw(t *testing.T) {
	th := seen(10, 0) // 10/11
	if th.Allow(0, 0.9) || !th.Allow(0, 0.99) {
		t.Error("the draw does not decide")
	}
	if got, want := th.Probability(0), 11./12; math.Abs(got-want) > 1e-12 {
		t.Errorf("%v after one was turned away, want %v", got, want)
	}
}

// Requests in flight are no rejections: a healthy upstream is never throttled, however many
// requests begin at once.
func TestClientThrottlingSparesAHealthyUpstream(t *testing.T) {
	r := seeded(61)
	th := NewClientThrottler()
	underWay := 0
	for now := time.Duration(0); now < 2*time.Minute; now += time.Duration(r.Int64N(int64(20 * time.Millisecond))) {
		for range r.IntN(50) {
			if !th.Allow(now, 0) {
				t.Fatalf("turned away at %v with %d in flight", now, underWay)
			}
			underWay++
		}
		for range r.IntN(underWay + 1) {
			underWay--
			th.Done(true)
		}
		if r.IntN(500) == 0 {
			now += time.Minute // a pause without requests
		}
	}
}

// drive sends rate requests per second, from one time to another, to an upstream that accepts
// capacity of them per second.
func drive(r backoff.Rand, th *ClientThrottler, from, to time.Duration, rate, capacity int) (sent, taken int) {
	for second := from; second < to; second += time.Second {
		room := capacity
		for i := range rate {
			now := second + time.Duration(i)*time.Second/time.Duration(rate)
			if !th.Allow(now, r.Float64()) {
				continue
			}
			sent++
			th.Done(room > 0)
			if room > 0 {
				room--
				taken++
			}
		}
	}
	return sent, taken
}

// An upstream that accepts c per second gets about 2c, whatever the load.
func TestClientThrottlingSendsAboutTwiceWhatIsAccepted(t *testing.T) {
	for _, tc := range []struct{ rate, capacity int }{{400, 10}, {300, 100}, {100, 3}} {
		r, th := seeded(62), NewClientThrottler()
		drive(r, th, 0, 2*time.Minute, tc.rate, tc.capacity)
		sent, taken := drive(r, th, 2*time.Minute, 12*time.Minute, tc.rate, tc.capacity)
		if ratio := float64(sent) / float64(taken); ratio < 1.8 || ratio > 2.3 {
			t.Errorf("%+v: sent %d, taken %d: %.2f", tc, sent, taken, ratio)
		}
		if want := 600 * tc.capacity; taken < want*9/10 {
			t.Errorf("%+v: %d of %d places used", tc, taken, want)
		}
	}
}

// An upstream that accepts nothing gets a request about every ten seconds, and all requests again
// within the documented time.
func TestClientThrottlingNoticesRecovery(t *testing.T) {
	for _, rate := range []int{10, 100} {
		longest := 0
		for seed := range uint64(10) {
			r, th := seeded(100+seed), NewClientThrottler()
			drive(r, th, 0, time.Minute, rate, 0)
			sent, _ := drive(r, th, time.Minute, 11*time.Minute, rate, 0)
			if sent < 20 || sent > 180 {
				t.Errorf("%d a second: a dead upstream got %d in ten minutes, want about 60", rate, sent)
			}
			at := 11 * time.Minute
			seconds := 0
			for ; seconds < 600; seconds++ {
				if sent, _ := drive(r, th, at, at+time.Second, rate, rate); sent == rate {
					break
				}
				at += time.Second
			}
			longest = max(longest, seconds)
		}
		// The theory predicts a mean; when the first request gets through is random.
		if told := 10 * math.Log(5*float64(rate)); float64(longest) > 2.5*told {
			t.Errorf("%d a second: all were sent after %d s, want about %.0f", rate, longest, told)
		}
	}
}

func TestClientThrottlingProbabilityStaysBelowOne(t *testing.T) {
	r := seeded(63)
	th := NewClientThrottler()
	now := time.Duration(0)
	for range 200_000 {
		now += time.Duration(r.Int64N(int64(3*time.Second))) - time.Second // also backwards
		now = max(now, 0)
		if p := th.Probability(now); !(p >= 0 && p < 1) {
			t.Fatalf("%v", p)
		}
		if th.Allow(now, r.Float64()) && r.IntN(3) > 0 {
			th.Done(r.IntN(4) == 0)
		}
	}
}

func TestClientThrottlerConcurrently(t *testing.T) {
	th := NewClientThrottler()
	var wg sync.WaitGroup
	for g := range uint64(8) {
		wg.Go(func() {
			r := seeded(g)
			for i := range 5000 {
				if th.Allow(time.Duration(i)*time.Millisecond, r.Float64()) {
					th.Done(true)
				}
			}
		})
	}
	wg.Wait()
	if p := th.Probability(5 * time.Second); p != 0 {
		t.Errorf("%v though all was taken", p)
	}
}

func TestTook(t *testing.T) {
	responded := func(code int) Attempt { return Attempt{Cause: CauseStatus, Status: code} }
	for _, tc := range []struct {
		a               Attempt
		accepted, known bool
	}{
		{responded(200), true, true}, {responded(404), true, true}, {responded(500), true, true}, {responded(501), true, true}, {responded(505), true, true},
		{responded(429), false, true}, {responded(502), false, true}, {responded(503), false, true}, {responded(504), false, true},
		{Attempt{Cause: CauseDial}, false, true}, {Attempt{Cause: CauseReset}, false, true}, {Attempt{Cause: CauseAttemptTimeout}, false, true},
		{Attempt{Cause: CauseIdleClose}, false, false}, {Attempt{Cause: CauseRefusedStream}, false, false},
	} {
		if accepted, known := tc.a.UpstreamAccepted(); accepted != tc.accepted || known != tc.known {
			t.Errorf("%v %d: %v, %v", tc.a.Cause, tc.a.Status, accepted, known)
		}
	}
}
