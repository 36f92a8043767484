package main

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	virtual "github.com/retryproxy/retryproxy/sim"
)

// inVirtualTime plays the same storm with package policy/storm: the rules
// without network, kernel and scheduler. Its verdict stands beside the live one.
// HAProxy's own retries are not in it.
func inVirtualTime(way string, o *options, seed uint64) verdict {
	c := virtual.Default()
	c.Seed, c.Length = seed, o.length()
	c.Clients.N, c.Clients.Every, c.Clients.Patience, c.Clients.RetryAfter = o.clients.n, o.clients.every, o.clients.patience, o.clients.again
	if o.clients.backoff {
		c.Clients.Backoff, _ = backoff.New("full-jitter", backoff.Options{Base: o.clients.again, Max: o.clients.most})
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
	return judge(ticksOfResult(virtual.Run(c), o.length()), o.peace, o.peace+o.down)
}

// ticksOfResult are the same counts in the form of a live run.
func ticksOfResult(r *virtual.Result, length time.Duration) []tick {
	ticks := make([]tick, length/tickTime)
	for i := range ticks {
		at := time.Duration(i) * tickTime
		s := r.Sum(at, at+tickTime)
		ticks[i] = tick{Good: s.Good, Bad: s.Bad, Late: s.Late, AtOnce: s.AtOnce}
	}
	return ticks
}
