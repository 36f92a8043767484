package sim

import (
	"fmt"
	"reflect"
	"testing"
	"time"
)

// Measured with real processes: without a proxy the server never recovers, and clients that never
// retry leave 8 373 requests stuck.
func TestStraightNeverRecovers(t *testing.T) {
	c := Default()
	c.Seed = 1
	r := Run(c)
	after := r.Sum(55*time.Second, c.Length)
	if after.Good != 0 {
		t.Errorf("%d good responses in the 60 s after the stop, want 0", after.Good)
	}
	if after.AtOnce < 19_000 || after.AtOnce > 20_000 {
		t.Errorf("%d requests stuck, want about 20 000", after.AtOnce)
	}
	c.Clients.RetryAfter = 0
	r = Run(c)
	after = r.Sum(55*time.Second, c.Length)
	if after.Good != 0 || after.AtOnce < 8200 || after.AtOnce > 8550 {
		t.Errorf("without retries: %d good responses and %d stuck, want 0 and about 8 373", after.Good, after.AtOnce)
	}
}

// HAProxy with a hand-tuned maxconn: measured a peak of 1 139, and errors under 5 % after 8 to 9 s.
func TestSlotsRecoverLate(t *testing.T) {
	c := Default()
	c.Via, c.Seed = ViaSlots, 1
	r := Run(c)
	if n := r.Sum(0, c.Length).AtOnce; n < 900 || n > 1500 {
		t.Errorf("peak %d, measured 1 139", n)
	}
	if d := r.ErrorsUnder(55*time.Second, 0.05); d < 6*time.Second || d > 12*time.Second {
		t.Errorf("errors under 5 %% after %v, measured 8 to 9 s", d)
	}
}

func TestPeaceIsTheSameThroughAll(t *testing.T) {
	for _, via := range []Via{ViaNothing, ViaSlots, ViaProxy} {
		c := Default()
		c.Via, c.Faults, c.Length = via, nil, 2*time.Minute
		s := Run(c).Sum(0, c.Length)
		// 1 000 clients with a pause of 10 s and a response of 0.1 s
		if want := 120 * 1000 / 10.1; float64(s.Good) < 0.97*want || float64(s.Good) > 1.03*want {
			t.Errorf("via %d: %d good responses, want about %.0f", via, s.Good, want)
		}
		if s.Bad+s.Late > 0 {
			t.Errorf("via %d: %d bad, %d late", via, s.Bad, s.Late)
		}
	}
}

func TestSameSeedSameStorm(t *testing.T) {
	c := Default()
	c.Via, c.Proxies, c.Seed = ViaProxy, 3, 7
	a, b := Run(c), Run(c)
	if !reflect.DeepEqual(a, b) {
		t.Error("two runs with one seed differ")
	}
	c.Seed = 8
	if reflect.DeepEqual(a.Seconds, Run(c).Seconds) {
		t.Error("two seeds gave the same storm")
	}
}

// Parking is only an optimisation: without it the result is the same, but slower.
func TestParkingChangesNothing(t *testing.T) {
	for _, via := range []Via{ViaNothing, ViaSlots} {
		c := Default()
		c.Via, c.Clients.N, c.Clients.Every = via, 200, 2*time.Second
		c.Server.Step = 5 // collapses with 200 clients
		c.Length = 45 * time.Second
		c.Faults[0].For = 10 * time.Second
		quick, slow := newWorld(c), newWorld(c)
		slow.server.parkFrom = aDay
		quick.play()
		slow.play()
		if !reflect.DeepEqual(quick.result.Seconds, slow.result.Seconds) {
			t.Errorf("via %d: parked\n%v\nnot parked\n%v", via, quick.result.Seconds, slow.result.Seconds)
		}
	}
}

func TestResponseTimeGrowsWithLoad(t *testing.T) {
	w := newWorld(Default())
	for _, tc := range []struct {
		atOnce int
		want   time.Duration
	}{
		{1, 100 * time.Millisecond}, {30, 100 * time.Millisecond},
		{45, 105 * time.Millisecond}, {60, 110250 * time.Microsecond},
		{150, 147745544 * time.Nanosecond},
	} {
		if got := w.server.need(&job{times: 1}, tc.atOnce); (got - tc.want).Abs() > time.Microsecond {
			t.Errorf("%d at once: %v, want %v", tc.atOnce, got, tc.want)
		}
	}
}

// The number of requests in the server counts in every second, even if it does not change.
func TestLevelIsCarried(t *testing.T) {
	r := newResult(&Config{Length: 5 * time.Second})
	r.level(500*time.Millisecond, 7)
	r.level(2500*time.Millisecond, 6)
	r.level(3*time.Second, 5)
	r.finish()
	for i, want := range []int{7, 7, 7, 6, 5} {
		if got := r.Seconds[i].AtOnce; got != want {
			t.Errorf("second %d: %d at once, want %d", i, got, want)
		}
	}
	if got := r.Sum(2400*time.Millisecond, 2500*time.Millisecond).AtOnce; got != 7 {
		t.Errorf("%d in a tenth of a second without a change, want 7", got)
	}
	if got := r.Sum(0, 500*time.Millisecond).AtOnce; got != 0 {
		t.Errorf("%d before the first", got)
	}
}

func TestRecoveryTimes(t *testing.T) {
	r := newResult(&Config{Length: 20 * time.Second})
	for at := time.Duration(0); at < 20*time.Second; at += 10 * time.Millisecond {
		switch {
		case at < 5*time.Second || at >= 12*time.Second:
			r.good(at)
		case at < 10*time.Second:
			r.late(at)
		}
	}
	r.finish()
	// 100 per second from 12 s on: 95 % of the mean over 5 s is reached after 4.75 s.
	if got := r.GoodputRecovered(10*time.Second, 100, 0.95); got != 6800*time.Millisecond {
		t.Errorf("good again after %v", got)
	}
	if got := r.GoodputRecovered(10*time.Second, 200, 0.95); got != Never {
		t.Errorf("good again after %v though it never is", got)
	}
	// The last second that is not below 5 %, because it is empty, ends at 12 s.
	if got := r.ErrorsUnder(8*time.Second, 0.05); got != 4*time.Second {
		t.Errorf("errors under 5 %% after %v", got)
	}
	if got := r.ErrorsUnder(15*time.Second, 0.05); got != 0 {
		t.Errorf("errors under 5 %% after %v in peace", got)
	}
}

func BenchmarkStorm(b *testing.B) {
	for _, proxies := range []int{1, 50} {
		b.Run(fmt.Sprint(proxies), func(b *testing.B) {
			c := Default()
			c.Via, c.Proxies = ViaProxy, proxies
			for b.Loop() {
				Run(c)
			}
		})
	}
}
