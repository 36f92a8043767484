package main

import (
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/policy/backoff"
	virtual "github.com/retryproxy/retryproxy/sim"
)

// inVirtualTime plays the same storm with package sim: the rules without network, kernel and
// scheduler. HAProxy's own retries are not in it.
func inVirtualTime(way string, o *options, seed uint64) verdict {
	c := virtual.Default()
	c.Seed, c.Length = seed, o.length()
	c.Clients.N, c.Clients.Every, c.Clients.Patience, c.Clients.RetryAfter = o.clients, o.every, o.patience, o.again
	if o.manner == "backoff" {
		c.Clients.Backoff, _ = backoff.New("full-jitter", backoff.Options{Base: o.again, Max: o.most})
	}
	c.Server.Base, c.Server.Free, c.Server.Factor, c.Server.Step, c.Server.Look = o.server.base, o.server.free, o.server.factor, o.server.step, o.server.look
	c.Faults = []virtual.Fault{{Kind: map[string]virtual.FaultKind{"stop": virtual.Stop, "kill": virtual.Kill, "503": virtual.Reject}[o.outage], At: o.peace, For: o.down}}
	c.Proxies = o.proxies
	switch way {
	case "retryproxy":
		c.Via = virtual.ViaProxy
	case "haproxy-tuned":
		c.Via, c.Slots, c.SlotFor = virtual.ViaSlots, o.maxconn, o.queueFor
	}
	result := virtual.Run(c)
	ticks := make([]rig.Counts, o.length()/rig.Tick)
	for i := range ticks {
		at := time.Duration(i) * rig.Tick
		s := result.Sum(at, at+rig.Tick)
		ticks[i] = rig.Counts{rig.Good: s.Good, rig.Bad: s.Bad, rig.Late: s.Late, atServer: s.AtOnce}
	}
	return judge(ticks, o.peace, o.peace+o.down)
}
