package main

import (
	"fmt"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/overload"
	"github.com/retryproxy/retryproxy/ctl/sim"
)

// always returns users that come all the time until the end.
func always(rate float64, patience time.Duration, tries int, end time.Duration) users {
	return users{rate: rate, patience: patience, tries: tries, when: []span{{0, end}}, path: twentyURLs}
}

// queueing is a server of 200 requests a second: ten at a time take 50 ms each, the others wait.
var queueing = overload.Flat(50*ms, 10)

// chance is the share of requests that may be lost by chance, where most rows lose some anyway.
const chance = 0.01

// metastable returns rows whose trouble outlasts its cause: clients that try again keep the server busy with
// work that nobody waits for.
func metastable() []*row {
	return []*row{
		deploy(1, after(0.97)), deploy(2, after(0.97)), deploy(4, after(0.89)),
		cacheLost(), slowNotDown(), spike(), pauses(), halved(),
		abandoned("abandoned permits", nil), abandoned("abandoned permits with a fixed limit", []string{"RETRYPROXY_CONCURRENCY_LIMIT=26"}),
	}
}

// deploy restarts two endpoints one after the other. Each is down for 2 s and cold afterwards.
func deploy(seconds int, goals ...goal) *row {
	m := overload.Flat(20*ms, 0)
	cold := m
	cold.Cold, cold.ColdFor = 100, time.Duration(seconds)*second
	again := func(i int) func(*stage) error { return startAs(i, &cold) }
	return (&row{
		name: fmt.Sprintf("deploy %d s cold", seconds), model: m, servers: 2,
		how:   fmt.Sprintf("two endpoints are restarted one after the other; each is down for 2 s, and its first hundred requests take %d s longer; clients wait 2.5 s", seconds),
		users: []users{always(100, 2500*ms, 1, 34*second)}, fault: span{6 * second, 14 * second}, end: 34 * second,
		steps: []step{{6 * second, kill(0)}, {8 * second, again(0)}, {12 * second, kill(1)}, {14 * second, again(1)}},
		slack: chance,
	}).with(append(asOff(), goals...)...)
}

// cacheLost is a cache before a store that becomes slow with many requests.
func cacheLost() *row {
	m := overload.Model{CacheFor: 2 * ms, Server: sim.Server{Base: 200 * ms, Free: 30, Factor: 1.3, Step: 15, Look: 50 * ms}}
	u := always(200, second, 4, 40*second)
	u.path = func(n int) string { return fmt.Sprint("/key/", n*7919%1000) }
	return (&row{
		name: "cache lost", how: "a cache of a thousand URLs loses its content; behind it is a store that becomes slow above 30 requests at once", model: m,
		users: []users{u}, fault: span{8 * second, 8*second + 100*ms}, end: 40 * second, steps: []step{{8 * second, order("forget")}},
		slack: chance,
	}).with(again95(8))
}

// slowNotDown is an upstream whose responses suddenly take 12 s, before clients that wait for them.
func slowNotDown() *row {
	return (&row{
		name: "slow but not down", how: "outbound; for 20 s all responses take 12 s; clients wait 30 s", model: overload.Flat(50*ms, 0), settings: outbound,
		users: []users{always(40, 30*second, 1, 32*second)}, fault: span{6 * second, 26 * second}, end: 32 * second,
		steps: []step{{6 * second, order("delay 12s")}, {26 * second, order("delay 0s")}},
	}).with(during(1), after(1), lost(0))
}

var outbound = []string{"RETRYPROXY_POSITION=outbound"}

// spike is three times the load for 20 s.
func spike() *row {
	more := always(160, second, 4, 0)
	more.when = []span{{8 * second, 28 * second}}
	return (&row{
		name: "spike", how: "for 20 s three times the load, a fifth more than the server can do", model: queueing,
		users: []users{always(80, second, 4, 45*second), more}, fault: span{8 * second, 28 * second}, end: 45 * second, slack: chance,
	}).with(after(0.95), again95(2))
}

// pauses stop the server for 0.7 s every 5 s.
func pauses() *row {
	r := &row{
		name: "pauses", how: "the server stands still for 0.7 s every 5 s; clients wait 0.5 s", model: queueing,
		users: []users{always(115, 500*ms, 4, 43*second)}, fault: span{8 * second, 29 * second}, end: 43 * second, slack: chance,
	}
	for at := r.fault.from; at < r.fault.to; at += 5 * second {
		r.steps = append(r.steps, step{at, stopIt}, step{at + 700*ms, goOn})
	}
	return r.with(during(0.97), after(0.99))
}

// halved is a server with half of its capacity for 20 s.
func halved() *row {
	return (&row{
		name: "capacity halved", how: "for 20 s the server takes twice as long, and the load is a tenth more than it can do", model: queueing,
		users: []users{always(110, second, 4, 45*second)}, fault: span{8 * second, 28 * second}, end: 45 * second, slack: chance,
		steps: []step{{8 * second, order("slower 2")}, {28 * second, order("slower 1")}},
	}).with(after(0.90), again95(2.5))
}

// abandoned are 25 hanging requests whose clients leave while the server is overloaded for 5 s.
func abandoned(name string, settings []string) *row {
	more := always(300, second, 2, 0)
	more.when = []span{{6 * second, 11 * second}}
	leaving := hanging("POST", 0, span{6 * second, 7 * second})
	leaving.burst, leaving.patience = 25, second
	return (&row{
		name: name, how: "while the load is fourfold for 5 s, 25 clients of a URL that hangs leave", model: overload.Flat(100*ms, 26), settings: settings,
		users: []users{always(100, second, 4, 35*second), more}, others: []users{leaving}, fault: span{6 * second, 11 * second}, end: 35 * second, slack: chance,
	}).with(after(0.95), again95(3))
}
