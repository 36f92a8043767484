package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/overload"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/ctl/sim"
)

// rows returns the table, first what takes the whole machine.
func rows() []*row {
	return slices.Concat(storms(), metastable(), losses(), lockouts())
}

const (
	second = time.Second
	ms     = time.Millisecond
)

// When the fault of a storm begins and ends, and when the clients end.
const (
	stormFrom = 8 * second
	stormTo   = 28 * second
	stormEnd  = 50 * second
)

// twentyURLs are what the clients of a storm request.
func twentyURLs(client int) string { return fmt.Sprint("/work/", client%20) }

// clientsOf returns the clients of package sim's storm.
func clientsOf(c sim.Clients, path func(client int) string) *rig.Crowd {
	return &rig.Crowd{N: c.N, Every: c.Every, Patience: c.Patience, Came: true, Path: path, Again: func(*rand.Rand, int) time.Duration { return c.RetryAfter }}
}

// outage returns a storm: a thousand naive clients and a server that becomes slow with many requests.
func outage(name, how string, begin, end func(*stage) error) *row {
	c := sim.Default()
	return &row{
		name: name, how: how, model: overload.Model{Server: c.Server}, crowd: clientsOf(c.Clients, twentyURLs),
		fault: span{stormFrom, stormTo}, end: stormEnd, steps: []step{{stormFrom, begin}, {stormTo, end}},
	}
}

// with returns the row with goals.
func (r *row) with(goals ...goal) *row {
	r.goals = append(r.goals, goals...)
	return r
}

// by returns the row with many processes of retryproxy.
func (r *row) by(proxies int) *row {
	r.proxies = proxies
	return r
}

// path returns the row with other paths of the clients.
func (r *row) path(path func(client int) string) *row {
	r.crowd.Path = path
	return r
}

var (
	stopIt = signal(0, syscall.SIGSTOP)
	goOn   = signal(0, syscall.SIGCONT)
	killIt = kill(0)
	backUp = start(0)
)

func storms() []*row {
	return []*row{
		outage("storm: stop", "the server is stopped for 20 s", stopIt, goOn).with(storm(1.5, 3.3, 100)...),
		outage("storm: kill", "it is killed, and started again after 20 s", killIt, backUp).with(storm(1.5, 3.3, 100)...),
		outage("storm: 503", "it answers 503 to everything for 20 s", order("503"), order("200")).with(storm(1.5, 3.3, 100)...),
		outage("storm: 500", "it answers 500 to everything for 20 s", order("500"), order("200")).with(storm(1.6, 3.3, 100)...),
		outage("storm: one URL", "stopped for 20 s; all clients request one URL", stopIt, goOn).path(func(int) string { return "/work" }).with(storm(1.5, 3.3, 100)...),
		outage("storm: new URLs", "stopped for 20 s; each request has a new URL", stopIt, goOn).path(func(int) string { return fmt.Sprint("/work/", rand.Uint64()) }).with(storm(1.5, 3.3, 100)...),
		outage("fifty processes: stop", "stopped for 20 s; fifty processes of retryproxy", stopIt, goOn).by(50).with(storm(1.2, 3.0, 250)...),
		outage("fifty processes: kill", "killed for 20 s; fifty processes of retryproxy", killIt, backUp).by(50).with(storm(1.2, 3.0, 250)...),
		outage("many processes: stop", "stopped for 20 s; a hundred processes of retryproxy", stopIt, goOn).by(100).with(again95(2.5), errorsOver(4)),
		surge(),
		coldStart(),
	}
}

// surge is thirty times the load for 20 s, with a quarter of the storm's clients.
func surge() *row {
	c := sim.Default()
	c.Scale(c.Clients.N / 4)
	r := &row{
		name: "surge", how: "for 20 s there are as many clients again, which pause only a thirtieth of the time", model: overload.Model{Server: c.Server},
		crowd: clientsOf(c.Clients, twentyURLs), fault: span{stormFrom, stormTo}, end: stormEnd,
	}
	more := c.Clients
	more.Every /= 30
	r.surge = clientsOf(more, twentyURLs)
	r.surge.Seed = 1
	return r.with(errorsOver(2))
}

// coldStart is a server that takes 25 times as long after a start, whatever its load.
func coldStart() *row {
	return (&row{
		name: "cold start", how: "killed for 5 s; then everything takes 25 times as long", model: overload.Flat(10*ms, 0),
		crowd: &rig.Crowd{N: 800, Every: 10 * second, Patience: 30 * second, Came: true, Path: twentyURLs, Again: func(*rand.Rand, int) time.Duration { return again }},
		fault: span{stormFrom, 13 * second}, end: 35 * second,
		steps: []step{{stormFrom, killIt}, {13 * second, startAs(0, &overload.Model{Server: overload.Flat(250*ms, 0).Server})}},
	}).with(again95(3))
}
