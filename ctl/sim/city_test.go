package sim

import (
	"testing"
	"time"
)

// city is 100 000 clients for ten minutes, with a proxy for each thousand.
func city(via Via) Config {
	c := Default()
	c.Via = via
	c.Scale(100_000)
	c.Length = 10 * time.Minute
	return c
}

func BenchmarkCity(b *testing.B) {
	for _, way := range []struct {
		name string
		via  Via
	}{{"direct", ViaNothing}, {"slots", ViaSlots}, {"proxy", ViaProxy}} {
		b.Run(way.name, func(b *testing.B) {
			for b.Loop() {
				w := newWorld(city(way.via))
				w.play()
				b.ReportMetric(float64(w.n), "events/op")
			}
		})
	}
}

// Events do not allocate. Clients, proxies and the maximum number of concurrent requests do.
func TestEventsDoNotAllocate(t *testing.T) {
	for _, via := range []Via{ViaNothing, ViaSlots, ViaProxy} {
		c := Default()
		c.Via, c.Seed = via, 1
		var events uint32
		allocations := testing.AllocsPerRun(1, func() {
			w := newWorld(c)
			w.play()
			events = w.n
		})
		if most := float64(events) / 20; allocations > most {
			t.Errorf("via %d: %.0f allocations in %d events", via, allocations, events)
		}
	}
}

// A storm of twice the size behaves like two storms.
func TestScaleKeepsTheStorm(t *testing.T) {
	c := Default()
	c.Via, c.Seed = ViaProxy, 1
	c.Scale(3000)
	if c.Clients.N != 3000 || c.Server.Free != 90 || c.Server.Step != 45 || c.Slots != 90 || c.Server.Most != 60_000 || c.Server.AcceptQueue != 98_304 || c.Proxies != 3 {
		t.Fatalf("scaled to 3 000 clients: %+v", c)
	}
	r := Run(c)
	if peace := r.Sum(5*time.Second, 15*time.Second); peace.Good < 2700 || peace.Good > 3300 {
		t.Errorf("%d good responses in 10 s of peace, want about 3 000", peace.Good)
	}
	if d := r.GoodputRecovered(55*time.Second, 300, 0.95); d > 3*time.Second {
		t.Errorf("good again after %v", d)
	}
	small := Default()
	small.Scale(20)
	if small.Server.Free != 1 || small.Slots != 1 || small.Proxies != 1 || small.Server.Step != 0.3 {
		t.Errorf("scaled to 20 clients: %+v", small)
	}
}
