package main

import (
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/sim"
)

// inVirtualTime plays the same storm with package sim: the rules without network, kernel and
// scheduler. HAProxy's own retries are not in it.
func inVirtualTime(way string, o *options, seed uint64) verdict {
	c := o.storm
	c.Seed = seed
	switch way {
	case "retryproxy":
		c.Via = sim.ViaProxy
	case "haproxy-tuned":
		c.Via = sim.ViaSlots
	}
	result := sim.Run(c)
	ticks := make([]rig.Counts, c.Length/rig.Tick)
	for i := range ticks {
		at := time.Duration(i) * rig.Tick
		s := result.Sum(at, at+rig.Tick)
		ticks[i] = rig.Counts{rig.Good: s.Good, rig.Bad: s.Bad, rig.Late: s.Late, atServer: s.AtOnce}
	}
	begin, end := o.outageAt()
	return judge(ticks, begin, end)
}
