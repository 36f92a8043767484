package main

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	virtual "github.com/retryproxy/retryproxy/policy/storm"
)

// inVirtualTime plays the same storm with package policy/storm: the rules
// without network, kernel and scheduler. Its verdict stands beside the live one.
// HAProxy's own retries are not in it.
func inVirtualTime(way string, o *options, seed uint64) verdict {
	c := virtual.Default()
	c.Seed, c.Length = seed, o.length()
	c.Callers.N, c.Callers.Every, c.Callers.Patience, c.Callers.Again = o.callers.n, o.callers.every, o.callers.patience, o.callers.again
	if o.callers.backoff {
		c.Callers.Backoff, _ = policy.New("full-jitter", policy.Options{Base: o.callers.again, Max: o.callers.most})
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
