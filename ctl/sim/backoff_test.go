package sim

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// normalClients is the storm with clients that use the strategy normal, with factor e and waits of
// at most five minutes.
func normalClients(t *testing.T, seed uint64, base time.Duration, jitter float64) Config {
	t.Helper()
	c := Default()
	b, err := backoff.New("normal", backoff.Options{Base: base, Factor: 2.71828, Jitter: jitter, Max: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	c.Clients.Backoff, c.Seed, c.Length = b, seed, 3*time.Minute
	return c
}

// This storm comes from a simulation that was published to show that exponential backoff saves a
// server which naive clients keep down. There, a client's first wait is e times the pause before its
// request. Its two programs, run as published on Linux, do so with the accept queue of their time, 128
// connections, after any outage: the kernel drops almost everything that is sent meanwhile. With the
// queue of today, 4 096, the backlog outlasts the clients' patience.
func TestTheAcceptQueueDecidesWhetherThePublishedClientsHelp(t *testing.T) {
	for _, down := range []time.Duration{40 * time.Second, 117 * time.Second} {
		for _, queue := range []int{128, 4096, 32_768} {
			for seed := uint64(1); seed <= 2; seed++ {
				c := normalClients(t, seed, 0, 0.1)
				c.Clients.FromPause, c.Server.AcceptQueue, c.Faults[0].For = true, queue, down
				end := c.Faults[0].At + down
				c.Length = end + time.Minute
				d := Run(c).ErrorsUnder(end, 0.05)
				if want := queue == 128; (d != Never) != want || want && d > 5*time.Second {
					t.Errorf("%v of outage, queue of %d, seed %d: errors were under 5 %% after %v, want within 5 s with a queue of 128 only", down, queue, seed, d)
				}
				if queue != 128 {
					continue
				}
				c.Clients.Backoff = nil
				if d := Run(c).GoodputRecovered(end, 100, 0.5); d != Never {
					t.Errorf("%v of outage, seed %d: naive clients got half of the good responses after %v, want never", down, seed, d)
				}
			}
		}
	}
}

// With a first wait of 27 s for every client, the server needs 60 s for the backlog, and the third
// tries begin 64 s after the outage. With noise of a tenth of the wait (7 s), they begin earlier;
// with the published noise of 0.1 s, they do not. The published programs, changed to this rule,
// recovered after 60 s.
func TestAFirstWaitForEverybodyHelpsIfItOutlastsThePile(t *testing.T) {
	for _, tc := range []struct {
		base     time.Duration
		jitter   float64
		recovers bool
	}{
		{27 * time.Second, 0.001, true},
		{27 * time.Second, 0.1, false},
		{100 * time.Millisecond, 0.1, false},
	} {
		d := Run(normalClients(t, 1, tc.base, tc.jitter)).ErrorsUnder(55*time.Second, 0.05)
		if recovers := d != Never; recovers != tc.recovers || recovers && (d < 55*time.Second || d > 70*time.Second) {
			t.Errorf("first wait %v, noise %v: recovered %v (after %v), want %v, after 60 to 65 s", tc.base, tc.jitter, recovers, d, tc.recovers)
		}
	}
}

// As in the published programs, each client begins with one pause, from the start of the simulation.
func TestEachClientBeginsWithOnePause(t *testing.T) {
	for peace, want := range map[time.Duration]float64{
		// The pause in flight has a mean of 10 s left, and began up to 10 s ago in the mean, but not
		// before the start: 10 + 10 (1 - exp(-peace/10 s)).
		time.Second:     10.95,
		2 * time.Minute: 20,
	} {
		c := normalClients(t, 1, 0, 0.1)
		c.Clients.FromPause = true
		c.Scale(5000)
		c.Faults[0].At, c.Length = peace, peace+time.Millisecond
		w := newWorld(c)
		w.play()
		sum := 0.0
		for i := range w.clients {
			sum += w.clients[i].wait.Seconds()
		}
		if mean := sum / 5000; mean < want-0.5 || mean > want+0.5 {
			t.Errorf("after %v of peace the pause in flight is %.2f s in the mean, want %.2f s", peace, mean, want)
		}
	}
}
