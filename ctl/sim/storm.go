// Package sim simulates an outage in virtual time: a server, the clients that make it worse
// by trying again, and a proxy between them. It uses the code of package policy itself
// (breaker.Guard, queue.Queue, budget.Budget, policy.Policy, every backoff.Strategy). So
// its results apply to the rules of the proxy, but not to effects of network, kernel and
// scheduler.
//
// Begin with [Default], which is the storm of `make storm`, change it, and [Run] it. The
// same Config returns the same Result on any machine. Ten minutes of 100 000 clients take
// half a minute.
//
// The package reads no clock and starts no goroutine; runs share no state.
package sim

import (
	"math"
	"time"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
)

// Config is the configuration of a storm.
type Config struct {
	Seed    uint64
	Length  time.Duration // virtual time to simulate
	Clients Clients
	Server  Server
	Faults  []Fault // in order, not overlapping
	Via     Via
	Slots   int           // ViaSlots: maximum number of connections to the server
	SlotFor time.Duration // ViaSlots: maximum wait for a connection, then 503
	// ViaSlots: maximum wait for a response, then 504; 0 = no limit.
	SlotTimeout time.Duration
	Proxies     int // ViaProxy: number of proxies that share the clients evenly; 0 = 1
	Proxy       Proxy
}

// Clients is the configuration of independent clients that each send a request now and
// then.
type Clients struct {
	N        int
	Every    time.Duration // mean of the exponential pause after a response
	Patience time.Duration // each try is given up after this
	// RetryAfter is the pause before the next try after a failed or abandoned try, until a
	// 200 arrives. 0: no retry (then the pause is Every).
	RetryAfter time.Duration
	Backoff    backoff.Strategy // instead of RetryAfter; nil = the constant RetryAfter
	// FromPause makes Backoff treat the pause before a request as the wait before its first
	// retry. So a client that sends every ten seconds does not send more often after a
	// failure. It affects strategies that grow from the previous wait (normal,
	// decorrelated).
	FromPause bool
	// URLs is the number of URLs that clients request, each always the same; 0 means 1.
	URLs int
	// Regular makes clients send every Every, whatever became of the request before, and evenly spread.
	Regular bool
	Tries   int // at most, for a request; 0 = until a 200 arrives
}

// Server is the configuration of a server whose response time grows with the number of requests in
// progress, even if nobody waits for them any more:
//
//	time = Base                                        up to Free requests
//	time = Base * Factor^((requests - Free) / Step)    above
//
// It is evaluated again every Look while a request is in progress.
type Server struct {
	Base   time.Duration
	Free   int
	Factor float64
	Step   float64
	Look   time.Duration
	// Workers is the number of requests in progress at a time. Others wait in their order, also if their
	// client has left. 0 = no limit.
	Workers int
	// Most is the maximum number of requests in the server, its kernel included. Further
	// ones are not accepted and wait in vain. It only affects clients without a proxy. 0 =
	// no limit.
	Most int
	// AcceptQueue is the limit that the server gives to listen(2), or net.core.somaxconn if that is
	// less. A server that is stopped accepts nothing, so connections beyond it wait in vain until it
	// resumes: the kernel drops each SYN, and the client's kernel sends it again. An abandoned
	// connection keeps its place. It only affects clients without a proxy. 0 = no limit.
	AcceptQueue int
	// Slow is the share of requests that take SlowTimes as long.
	Slow, SlowTimes float64
	// URLs is the number of URLs of a cache before the server, which has all of them until a
	// Forget; 0 = no cache. A hit takes HitTime, whatever the load.
	URLs    int
	HitTime time.Duration
	// Spread makes the times of single requests differ: each is multiplied by a lognormal
	// number with this standard deviation of its logarithm.
	Spread float64
}

// FaultKind is a kind of fault.
type FaultKind uint8

// The kinds of fault.
const (
	// Stop: like SIGSTOP. The kernel queues connections up to Server.AcceptQueue, but nothing is
	// answered. Requests sent in the meantime are processed afterwards.
	Stop FaultKind = iota
	// Kill: connections are reset and refused; afterwards there is a new server.
	Kill
	// Reject: 503 to everything, after Fault.After.
	Reject
	// Slower: every response takes Fault.Times as long.
	Slower
	// Surge: clients pause only 1/Fault.Times as long.
	Surge
	// Forget: at its start, the cache loses its content.
	Forget
	// Burst: at its start, Fault.N pausing clients send at once.
	Burst
	// Cold: an endpoint was restarted. A share Fault.Times of the clients sends to it, and the first Fault.N
	// requests that it gets take Fault.After longer. With Fault.Lost, the connections to the others are
	// reset first: they are killed, and the rest is what is cold.
	Cold
)

// Fault is a fault of limited duration.
type Fault struct {
	Kind  FaultKind
	At    time.Duration
	For   time.Duration
	After time.Duration // Reject: 0 = the usual response time; Cold
	Times float64       // Slower, Surge, Cold
	N     int           // Burst, Cold
	Lost  bool          // Cold
}

// Via is what clients send through.
type Via uint8

// The kinds of Via.
const (
	ViaNothing Via = iota
	// ViaSlots: a proxy with a fixed number of connections and a first-in first-out queue,
	// which drops requests of clients that left (HAProxy's maxconn and timeout queue).
	ViaSlots
	// ViaProxy: retryproxy.
	ViaProxy
)

// Proxy holds the settings of retryproxy that affect the simulation.
type Proxy struct {
	Guard               breaker.Options // Rand is set by Run
	Policy              policy.Policy
	Budget              budget.Config
	AttemptTimeout      time.Duration
	QueueMax            int           // maximum number of queued requests
	BreakerQueueTimeout time.Duration // maximum wait while the breaker is not closed
	LimitQueueTimeout   time.Duration // maximum wait for the limit
}

// Default returns the storm of a server that is stopped for 40 s, without a proxy.
func Default() Config {
	return Config{
		Length: 115 * time.Second,
		Clients: Clients{
			N: 1000, Every: 10 * time.Second, Patience: 2 * time.Second, RetryAfter: 100 * time.Millisecond,
		},
		Server: Server{
			Base: 100 * time.Millisecond, Free: 30, Factor: 1.05, Step: 15, Look: 50 * time.Millisecond, Most: 20_000,
			AcceptQueue: 32_768, // as bench/internal/overload listens
		},
		Faults:  []Fault{{Kind: Stop, At: 15 * time.Second, For: 40 * time.Second}},
		Slots:   30,
		SlotFor: time.Second, SlotTimeout: 1100 * time.Millisecond,
		Proxies: 1,
		Proxy:   DefaultProxy(),
	}
}

// Scale changes the number of clients to n, at least 1, and the server, slots and proxies
// in proportion. A proxy has at most a thousand clients.
func (c *Config) Scale(n int) {
	times := float64(n) / float64(c.Clients.N)
	size := func(v int) int { return max(1, int(math.Round(float64(v)*times))) }
	c.Clients.N = n
	c.Server.Free, c.Server.Most, c.Slots = size(c.Server.Free), size(c.Server.Most), size(c.Slots)
	c.Server.AcceptQueue = size(c.Server.AcceptQueue)
	c.Server.Step *= times
	c.Proxies = max(1, (n+999)/1000)
}

// DefaultProxy returns the settings of a proxy beside the server.
func DefaultProxy() Proxy {
	r := config.Defaults("interactive")
	p, err := r.Policy()
	if err != nil {
		panic(err) // its settings are constants
	}
	b, _ := r.Budget()
	return Proxy{
		Policy:              p,
		Budget:              b,
		AttemptTimeout:      r.AttemptTimeout.Value(),
		QueueMax:            r.QueueMax,
		BreakerQueueTimeout: r.QueueTimeout,
		LimitQueueTimeout:   time.Second,
	}
}
