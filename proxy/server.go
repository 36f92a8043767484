package proxy

import (
	"cmp"
	"context"
	"net"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/internal/boundedlog"
	"github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
	"github.com/retryproxy/retryproxy/proxy/internal/idlepoller"
	"github.com/retryproxy/retryproxy/proxy/proxyproto"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/slots"
)

// Server accepts clients and serves them. Call New, Listen and Serve in this order, and Drain from
// another goroutine. Reload and Stats may be called at any time. It is safe for concurrent use.
type Server struct {
	process   *request.Process // what all exchanges share
	settings  atomic.Pointer[settings.Settings]
	listeners listenerSet
	clients   clients
	connected connections
	parked    idlepoller.Poller // where idle connections wait
	drain     drainState
	memory    memoryReleaser
	ahead     http2.ReadAhead // of requests and responses by HTTP/2
	workers   http2.Workers   // that serve the streams of HTTP/2 clients

	parkAfter time.Duration
	premature floodguard.Limits

	faults            atomic.Uint64 // panics that were contained
	handshakeFailures atomic.Uint64 // of clients
	headerFailures    [proxyproto.NumFailures]atomic.Uint64
	clientFaults      *boundedlog.Limiter // of log lines
	turnedAway        *boundedlog.Limiter // likewise, about clients without a slot
}

// New checks c and returns a Server for it. It opens no socket and dials nothing.
func New(c *Config) (*Server, error) {
	s := &Server{
		listeners: listenerSet{closing: make(chan struct{})},
		connected: connections{served: map[*conn]struct{}{}},
		parkAfter: cmp.Or(c.ParkAfter, parkAfter),
		premature: cmp.Or(c.PrematureEnds, floodguard.DefaultLimits),
		memory:    memoryReleaser{over: make(chan struct{})},
		ahead:     readAhead(c.ClientMemory),
	}
	s.clientFaults = boundedlog.New(faultLinesPerMinute, s.moreFaults)
	s.turnedAway = boundedlog.New(1, s.moreTurnedAway)
	table := slots.New(c.MaxConnections, clientShare(c.ClientMemory))
	s.process = request.NewProcess(c.RetryBufferTotalBytes, request.Hooks{
		OnFault: s.report, OnWait: s.memory.note, CloseIdleUpstream: s.closeIdle, UnderPressure: table.UnderPressure,
	})
	s.drain.process = s.process
	s.clients = clients{
		slots: table, queue: newAcceptQueue(table, s.turnAway), costs: costsOf(c.ClientMemory), streams: newStreamSlots(maxStreams(c), s.process.Clock),
		uploads:   uploadLimit{most: table.MostUploads(costsOf(c.ClientMemory).plain)},
		connected: &s.connected, parked: &s.parked, clock: s.process.Clock,
		pauses: &s.listeners.pauses, closing: s.listeners.closing, start: s.start,
	}
	n, err := s.prepare(c)
	if err != nil {
		return nil, err
	}
	s.settings.Store(n)
	n.WarnOfHTTP2Off()
	return s, nil
}

// prepare makes the settings of c, and carries over what the current settings have learnt.
func (s *Server) prepare(c *Config) (*settings.Settings, error) {
	return settings.Prepare(c, s.process.ForSettings(s.ahead), s.settings.Load())
}

// Reload applies c to requests that begin from now on; requests in flight keep the settings with
// which they began. Listen, MaxConnections, ClientMemory and RetryBufferTotalBytes do not change.
// On an error, nothing changes.
func (s *Server) Reload(c *Config) error {
	n, err := s.prepare(c)
	if err != nil {
		return err
	}
	old := s.settings.Swap(n)
	kept := map[*settings.UpstreamState]bool{}
	for _, u := range n.Upstreams() {
		kept[u] = true
	}
	for _, u := range old.Upstreams() {
		if !kept[u] {
			u.Close()
		}
	}
	old.FlushLogs()
	return nil
}

func (s *Server) log() *zap.Logger { return s.settings.Load().Log }

func (s *Server) now() clock.Instant { return s.process.Clock.Now() }

// SetRetryPercent sets the percentage of retries that are made from now on, on all routes, within
// [0, 100]. It starts at 100. See docs/decisions/0010-retry-percent.md. It is safe for concurrent
// use.
func (s *Server) SetRetryPercent(percent int) { s.process.SetRetryPercent(percent) }

// RetryPercent returns the percentage that SetRetryPercent set last.
func (s *Server) RetryPercent() int { return s.process.RetryPercent() }

// Listen opens all listeners. If one cannot be opened, it opens none and returns an error that
// joins a *ListenError for each. It takes over the path of a unix socket that no process listens
// on any more.
func (s *Server) Listen() error {
	n := s.settings.Load()
	err := s.listeners.open(n.Listen, n.InheritedListener)
	s.drain.listens.Store(err == nil)
	return err
}

// Addrs returns the addresses listened on, in the order of Config.Listen.
func (s *Server) Addrs() []net.Addr {
	var all []net.Addr
	for _, l := range s.listeners.all {
		all = append(all, l.Addr())
	}
	return all
}

// Serve accepts clients until Drain is called, or until ctx ends, which closes everything at once.
// It returns when every connection has ended.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.kill)
	defer stop()
	seating := make(chan struct{})
	go func() { defer close(seating); s.clients.seat() }()
	s.listeners.accept(s.accepted, func() *zap.Logger { return s.settings.Load().Log })
	s.listeners.stop()
	<-seating
	s.clients.seatAll() // the accept loop may have ended with clients still queued
	s.drain.listens.Store(false)
	s.connected.ends.Wait()
	s.memory.end()
	s.parked.Close()
	s.connected.goroutines.Wait()
	for _, u := range s.settings.Load().Upstreams() {
		u.Close()
	}
	s.settings.Load().FlushLogs()
	s.clientFaults.Flush()
	s.turnedAway.Flush()
	return nil
}

// kill closes everything at once.
func (s *Server) kill() {
	s.process.BeginDrain(s.now())
	s.listeners.stop()
	s.listeners.close()
	s.connected.kill()
	s.parked.Close()
	s.memory.end()
	s.workers.Close()
}

func (s *Server) accepted(nc net.Conn, name string) {
	s.drain.clientAccepted()
	n := s.settings.Load()
	s.clients.admit(acceptedConn{nc: nc, name: name, tls: n.ClientTLS != nil, cost: s.clients.costs.newcomer})
}

// start serves a client that has a slot.
func (s *Server) start(n acceptedConn) {
	s.connected.ends.Add(1)
	s.connected.count.Add(1)
	s.connected.goroutines.Go(func() {
		c := newConn(s, n.nc, n.name)
		c.hasSlot(n.slot)
		c.parks = c.client.Raw != nil
		s.run(c)
	})
}

// run serves an accepted connection until it ends or is parked.
func (s *Server) run(c *conn) {
	defer s.connected.forget(c) // after its slot is free, so that an evicted one counts as ending until then
	s.connected.serve(c)
	c.endLeaving()
	s.memory.note()
	if !c.handedToPoller {
		s.gone(c.slot)
	}
}

// gone removes an accepted connection that has ended.
func (s *Server) gone(slot *slots.Slot) {
	s.connected.count.Add(-1) // before its slot is free, so that the count never exceeds the limit
	s.clients.slots.Release(slot)
	s.connected.ends.Done()
}

// ServeConn serves one client's connection until it ends, and closes it. name is the listener for
// the routes; "" is the main one.
func (s *Server) ServeConn(nc net.Conn, name string) {
	s.connected.count.Add(1)
	defer s.connected.count.Add(-1)
	c := newConn(s, nc, name)
	defer s.connected.forget(c)
	c.hasSlot(s.clients.slots.Force(0))
	defer s.clients.slots.Release(c.slot)
	s.connected.serve(c)
}

// contain keeps a panic in serving one client from ending all others. The fault is logged and
// counted, and this client's connection ends.
func (s *Server) contain(c *conn, fault any) {
	if fault == nil {
		return
	}
	s.report(fault)
	c.mustReset = true
	c.client.Abort()
	if c.x.EndAfterFault() {
		s.drain.requestEnded()
	}
}

// report counts and logs a fault.
func (s *Server) report(fault any) {
	s.faults.Add(1)
	s.log().Error("a request failed because of a bug in retryproxy; please report it",
		zap.Any("fault", fault), zap.ByteString("stack", debug.Stack()))
}

// closeIdle closes the longest idle connection to any upstream, to free its descriptor. It reports
// false if there is none.
func (s *Server) closeIdle() bool {
	for _, u := range s.settings.Load().Upstreams() {
		if u.Pool.CloseOldest() {
			return true
		}
	}
	return false
}

// faultLinesPerMinute limits the warnings about clients' faults. Further ones are counted.
const faultLinesPerMinute = 10

// clientFault logs a warning about what a client did wrong on its connection.
func (s *Server) clientFault(msg string, fields ...zap.Field) {
	if s.clientFaults.Allow() {
		s.log().Warn(msg, fields...)
	}
}

// moreFaults logs how many more faults of clients there were.
func (s *Server) moreFaults(suppressed int) {
	s.log().Warn("more failures of clients' connections, lines suppressed", zap.Int("count", suppressed))
}

// http2Fault logs a client's fault that ended its HTTP/2 connection.
func (s *Server) http2Fault(peer net.Addr, err error) {
	s.clientFault("an HTTP/2 connection of a client failed", zap.Stringer("peer", peer), zap.Error(err))
}
