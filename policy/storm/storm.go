// Package storm plays an outage in virtual time: a server, the clients who make
// it worse by trying again, and what stands between them. It drives the code of
// package policy itself (Guard, Line, Budget, Policy, every Backoff), so what
// holds here holds in the proxy as far as the rules go; what a network, a
// kernel and a scheduler add is not here.
//
// Begin with [Default], which is the storm that `make storm` plays live, change
// what is to be different, and [Run] it. The same Config gives the same Result,
// on any machine. Ten minutes of 100 000 clients take a few seconds.
//
// [RunFleet] plays something else by the same means: many processes that call
// one upstream which has a rate limit, and what they share.
//
// Nothing here reads a clock or starts a goroutine; a Run shares nothing with
// another.
package storm

import (
	"math"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// Config is a storm.
type Config struct {
	Seed    uint64
	Length  time.Duration // virtual time to play
	Clients Clients
	Server  Server
	Faults  []Fault // in order, not overlapping
	Via     Via
	Slots   int           // ViaSlots: connections to the server at most
	SlotFor time.Duration // ViaSlots: wait for one at most, then 503
	// ViaSlots: wait for a response on one at most, then 504; 0 = no bound
	SlotTimeout time.Duration
	Proxies     int // ViaProxy: how many share the clients evenly; 0 = 1
	Proxy       Proxy
}

// Clients are many independent programs that each want a response now and then.
type Clients struct {
	N        int
	Every    time.Duration // mean of the exponential pause after a response
	Patience time.Duration // each try is given up after this
	// RetryAfter is the pause before the next try after a failure or a try given
	// up, until a 200 comes. 0: never again (then the pause is Every).
	RetryAfter time.Duration
	Backoff    policy.Backoff // instead of Again; nil = the constant Again
	// FromPause makes Backoff take the pause before a request for the wait
	// before its first retry, so that a client that asks every ten seconds
	// never asks more often after a failure. It matters to strategies that grow
	// from the wait before (normal, decorrelated).
	FromPause bool
}

// Server answers each request after a time that grows with the requests it has
// at once, whoever waits for them still:
//
//	time = Base                                        up to Free at once
//	time = Base * Factor^((at once - Free) / Step)     above
//
// looked at anew every Look while a request waits.
type Server struct {
	Base   time.Duration
	Free   int
	Factor float64
	Step   float64
	Look   time.Duration
	// Most requests have room in the server, its kernel included; more find
	// nobody who accepts and wait in vain. It matters only to clients
	// without a proxy. 0 = no bound.
	Most int
	// Slow is the share of requests that take SlowTimes as long.
	Slow, SlowTimes float64
	// Spread makes the times of single requests differ: each is multiplied by
	// a lognormal number with this standard deviation of its logarithm.
	Spread float64
}

// FaultKind is what goes wrong.
type FaultKind uint8

// The kinds of fault.
const (
	// Stop: as by SIGSTOP. Connections are accepted by the kernel, nothing is
	// answered; what was sent meanwhile is worked off afterwards.
	Stop FaultKind = iota
	// Kill: connections are reset and refused; afterwards there is a new server.
	Kill
	// Reject: 503 to everything, after Fault.After.
	Reject
	// Slower: every response takes Fault.Times as long.
	Slower
	// Surge: clients pause only 1/Fault.Times as long.
	Surge
	// Burst: at its begin, Fault.N clients who are pausing send at once.
	Burst
)

// Fault is something that goes wrong for a while.
type Fault struct {
	Kind  FaultKind
	At    time.Duration
	For   time.Duration
	After time.Duration // Reject: 0 = the usual time of a response
	Times float64       // Slower, Surge
	N     int           // Burst
}

// Via is what stands between clients and server.
type Via uint8

// The ways.
const (
	ViaNothing Via = iota
	// ViaSlots: a proxy with a fixed number of connections and a first-in
	// first-out queue before it, which forgets requests of clients who left
	// (HAProxy's maxconn and timeout queue).
	ViaSlots
	// ViaProxy: retryproxy.
	ViaProxy
)

// Proxy is the part of retryproxy's settings that matters here.
type Proxy struct {
	Guard               policy.GuardOptions // Rand is set by Run
	Policy              policy.Policy
	Budget              policy.BudgetConfig
	AttemptTimeout      time.Duration
	QueueMax            int           // in the queue at most
	BreakerQueueTimeout time.Duration // wait at a breaker that is not closed at most
	LimitQueueTimeout   time.Duration // wait for the limit at most
	Oldest              bool          // serve the queue from its old end
	Hangup              bool          // close a connection when its client leaves, instead of listening for a late response
}

// Default is the storm of a server that is stopped for 40 s, straight.
func Default() Config {
	return Config{
		Length: 115 * time.Second,
		Clients: Clients{
			N: 1000, Every: 10 * time.Second, Patience: 2 * time.Second, RetryAfter: 100 * time.Millisecond,
		},
		Server: Server{
			Base: 100 * time.Millisecond, Free: 30, Factor: 1.05, Step: 15, Look: 50 * time.Millisecond, Most: 20_000,
		},
		Faults:  []Fault{{Kind: Stop, At: 15 * time.Second, For: 40 * time.Second}},
		Slots:   30,
		SlotFor: time.Second, SlotTimeout: 1100 * time.Millisecond,
		Proxies: 1,
		Proxy:   DefaultProxy(),
	}
}

// Scale makes it the same storm with n clients, at least 1: a server, slots and
// proxies for as many. A proxy has up to a thousand of them.
func (c *Config) Scale(n int) {
	times := float64(n) / float64(c.Clients.N)
	size := func(v int) int { return max(1, int(math.Round(float64(v)*times))) }
	c.Clients.N = n
	c.Server.Free, c.Server.Most, c.Slots = size(c.Server.Free), size(c.Server.Most), size(c.Slots)
	c.Server.Step *= times
	c.Proxies = max(1, (n+999)/1000)
}

// DefaultProxy has the settings of a proxy beside the server.
func DefaultProxy() Proxy {
	profile, err := policy.FindProfile(policy.DefaultProfile)
	if err != nil {
		panic(err) // it names one of its own
	}
	p, err := profile.Policy()
	if err != nil {
		panic(err) // they are constants
	}
	return Proxy{
		Policy:              p,
		Budget:              policy.DefaultBudget(),
		AttemptTimeout:      profile.AttemptTimeout,
		QueueMax:            4096,
		BreakerQueueTimeout: 20 * time.Second,
		LimitQueueTimeout:   time.Second,
		Hangup:              true,
	}
}
