package proxy

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
	"github.com/retryproxy/retryproxy/proxy/internal/idlepoller"
	"github.com/retryproxy/retryproxy/proxy/proxyproto"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Server accepts clients and serves them. Call New, Listen and Serve, and Drain from another
// goroutine; Reload and Stats at any time. Safe for concurrent use.
type Server struct {
	request.Process
	settings          atomic.Pointer[settings.Settings]
	killed            atomic.Bool
	closing           chan struct{} // closed when accepting has to end
	closeOnce         sync.Once
	listeners         []listener
	clients           *clientSlots
	acceptQueue       *acceptQueue
	costs             clientCosts
	evicting          eviction
	streams           *streamSlots
	pauses            atomic.Uint64
	faults            atomic.Uint64 // panics contained
	handshakeFailures atomic.Uint64 // of clients
	headerFailures    [proxyproto.NumFailures]atomic.Uint64
	active            atomic.Int64 // requests between head and end
	lastBusy          atomic.Int64 // while draining: when a request last ended, since started
	idleEnd           atomic.Bool  // idle connections are to end

	mu    sync.Mutex // guards conns
	conns map[*conn]struct{}

	connections atomic.Int64      // clients connected, parked or not
	ends        sync.WaitGroup    // of these
	wg          sync.WaitGroup    // of goroutines that serve them
	idle        idlepoller.Poller // where idle ones are parked
	parkAfter   time.Duration
	premature   floodguard.Limits
	memory      memoryReleaser
}

type listener struct {
	net.Listener
	name string // for routes: "" is the main one
}

// New checks c and returns a Server for it. It opens and dials nothing.
func New(c *Config) (*Server, error) {
	s := &Server{
		closing:   make(chan struct{}),
		conns:     map[*conn]struct{}{},
		parkAfter: cmp.Or(c.ParkAfter, parkAfter),
		premature: cmp.Or(c.PrematureEnds, floodguard.DefaultLimits),
		memory:    memoryReleaser{over: make(chan struct{})},
	}
	s.clients = newClientSlots(c.MaxConnections, clientShare(c.ClientMemory))
	s.Clock, s.RetryBuffer.Limit = clock.New(), c.RetryBufferTotalBytes
	s.OnFault, s.OnWait, s.CloseIdleUpstream = s.report, s.memory.note, s.closeIdle
	s.Attempts = attempt.Host{Clock: &s.Clock, UnderPressure: s.clients.underPressure}
	s.acceptQueue = newAcceptQueue(s.clients)
	s.costs = costsOf(c.ClientMemory)
	s.streams = newStreamSlots(maxStreams(c))
	n, err := settings.Prepare(c, settings.Process{Clock: &s.Clock, Draining: &s.Draining}, s.settings.Load())
	if err != nil {
		return nil, err
	}
	s.settings.Store(n)
	n.WarnOfHTTP2Off()
	return s, nil
}

// Reload applies c to requests that begin from now on; those in flight end with what they began
// with. Listen, MaxConnections, ClientMemory and RetryBufferTotalBytes stay as they were. On an
// error nothing changes.
func (s *Server) Reload(c *Config) error {
	n, err := settings.Prepare(c, settings.Process{Clock: &s.Clock, Draining: &s.Draining}, s.settings.Load())
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

// ListenError says which address of Config.Listen cannot be listened on.
type ListenError struct {
	Address string
	Err     error
}

// Error returns the cause, which names the address.
func (e *ListenError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ListenError) Unwrap() error { return e.Err }

// Listen opens all listeners. If one cannot be opened, it opens none and returns an error that
// joins a *ListenError for each. It takes over the path of a unix socket that nothing listens on
// any more.
func (s *Server) Listen() error {
	var errs []error
	for i, addr := range s.settings.Load().Listen {
		l, err := s.socket(addr)
		if err != nil {
			errs = append(errs, &ListenError{addr, err})
			continue
		}
		name := addr
		if i == 0 {
			name = ""
		}
		s.listeners = append(s.listeners, listener{l, name})
	}
	if len(errs) > 0 {
		s.closeListeners()
		s.listeners = nil
	}
	return errors.Join(errs...)
}

func (s *Server) socket(addr string) (net.Listener, error) {
	if given := s.settings.Load().InheritedListener; given != nil {
		if l := given(addr); l != nil {
			return l, nil
		}
	}
	return listen(addr)
}

func listen(addr string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(addr, "unix:")
	if !isUnix {
		lc := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: true}}
		return lc.Listen(context.Background(), "tcp", addr)
	}
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
	} else if fi, err := os.Stat(path); err == nil && fi.Mode().Type() == os.ModeSocket {
		_ = os.Remove(path)
	}
	return net.Listen("unix", path)
}

// Addrs returns the addresses listened on, in the order of Config.Listen.
func (s *Server) Addrs() []net.Addr {
	var all []net.Addr
	for _, l := range s.listeners {
		all = append(all, l.Addr())
	}
	return all
}

func (s *Server) closeListeners() {
	for _, l := range s.listeners {
		_ = l.Close()
	}
}

// Serve accepts clients until Drain, or until ctx ends, which closes everything at once. It
// returns when every connection has ended.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.kill)
	defer stop()
	var accepting sync.WaitGroup
	for _, l := range s.listeners {
		accepting.Go(func() { s.accept(l) })
	}
	seating := make(chan struct{})
	go func() { defer close(seating); s.seat() }()
	accepting.Wait()
	s.stopAccepting()
	<-seating
	s.seatAll() // an accept loop may have been the last
	s.ends.Wait()
	s.memory.end()
	s.idle.Close()
	s.wg.Wait()
	for _, u := range s.settings.Load().Upstreams() {
		u.Close()
	}
	s.settings.Load().FlushLogs()
	return nil
}

// kill ends everything at once.
func (s *Server) kill() {
	s.Draining.Store(true)
	s.killed.Store(true)
	s.stopAccepting()
	s.closeListeners()
	s.each(func(c *conn) { _ = c.Wire.Close() })
	s.idle.Close()
	s.memory.end()
}

func (s *Server) stopAccepting() { s.closeOnce.Do(func() { close(s.closing) }) }

// accept takes clients from one listener. It pauses at the limit, and if the system has no
// descriptor left; the system's queue holds the clients then.
func (s *Server) accept(l listener) {
	defer func() { _ = l.Close() }()
	for {
		nc, err := l.Accept()
		if err == nil {
			s.admit(acceptedConn{nc: nc, name: l.name, cost: s.costs.accepted(s.settings.Load())})
			continue
		}
		select {
		case <-s.closing:
			return
		default:
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		s.pauses.Add(1)
		s.settings.Load().Log.Warn("accept paused", zap.Error(err))
		select {
		case <-s.closing:
		case <-time.After(acceptPause):
		}
	}
}

// acceptPause is the wait after a failed accept: long enough not to spin, short enough not to be
// noticed when a descriptor is free again.
const acceptPause = 50 * time.Millisecond

func (s *Server) start(n acceptedConn) {
	s.ends.Add(1)
	s.connections.Add(1)
	s.wg.Go(func() {
		c := newConn(s, n.nc, n.name)
		c.cost = n.cost
		c.parks = c.Raw != nil && c.TLS == nil
		s.run(c)
	})
}

// run serves an accepted connection until it ends or is parked.
func (s *Server) run(c *conn) {
	s.handle(c)
	c.endLeaving()
	s.memory.note()
	if !c.handedToPoller {
		s.gone(c.cost)
	}
}

// gone forgets an accepted connection that has ended.
func (s *Server) gone(cost int64) {
	s.connections.Add(-1) // before its slot is free, so that no more than the limit are ever counted
	s.clients.release(cost)
	s.ends.Done()
}

// ServeConn serves one client's connection until it ends, and closes it. name is the listener for
// the routes, "" the main one.
func (s *Server) ServeConn(nc net.Conn, name string) {
	s.connections.Add(1)
	defer s.connections.Add(-1)
	c := newConn(s, nc, name)
	s.clients.force(0)
	defer func() { s.clients.release(c.cost) }()
	s.handle(c)
}

// handle serves a connection where kill and Drain can find it.
func (s *Server) handle(c *conn) {
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	if s.killed.Load() {
		_ = c.Wire.Close() // it may have come too late for kill to find it
	}
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	c.serve()
}

// contain keeps a fault in serving one client from ending all others. The fault is logged and
// counted, and this client's connection ends.
func (s *Server) contain(c *conn, fault any) {
	if fault == nil {
		return
	}
	s.report(fault)
	c.mustReset = true
	c.Abort()
	if c.x.EndAfterFault() {
		s.requestEnded()
	}
}

// report counts and logs a fault.
func (s *Server) report(fault any) {
	s.faults.Add(1)
	s.settings.Load().Log.Error("a request ended in a fault of the proxy, please report it",
		zap.Any("fault", fault), zap.ByteString("stack", debug.Stack()))
}

// each calls f for every connection, and then for the streams on it.
func (s *Server) each(f func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		f(c)
		c.http2.Load().each(f)
	}
}

// Stats is a picture of the server at one moment.
type Stats struct {
	Connections       int                            // clients connected
	AcceptPauses      uint64                         // times accepting had to wait
	EvictedIdle       uint64                         // connections ended, as others needed their slots, while idle
	EvictedStalled    uint64                         // ... and connections and streams whose client took nothing
	Faults            uint64                         // requests that ended in a fault of the proxy itself
	HandshakeFailures uint64                         // clients whose TLS handshake failed
	HeaderFailures    [proxyproto.NumFailures]uint64 // connections that did not begin with the PROXY protocol header they had to begin with
	RetryBufferUsed   int64                          // kept for retries now
	Draining          bool
	RateLimitPauses   ratelimit.PauseState
	Paused            int                        // requests that wait for the end of a shared rate-limit pause
	RateLimits        []admission.RateLimitStats // in no order
	Upstreams         []UpstreamStats
}

// UpstreamStats is the picture of one upstream.
type UpstreamStats struct {
	Name         string // its URL, without secrets
	Pool         upstream.Stats
	Addresses    upstream.EndpointSummary
	BudgetTokens float64
	HasBudget    bool
	Guard        breaker.GuardState
	LongestWait  time.Duration          // of queued requests, so far; 0: none is queued
	LastFailure  *admission.DialFailure // the last failed connection; nil: none failed yet
	HasThrottle  bool
	Throttle     float64                         // share of requests not sent
	HasProbe     bool                            // the upstream is probed by GET
	Probed       [breaker.NumProbeResults]uint64 // what came of these probes
}

// Stats returns a picture of the server for metrics.
func (s *Server) Stats() Stats {
	n := s.settings.Load()
	st := Stats{Connections: int(s.connections.Load())}
	st.AcceptPauses, st.Faults, st.HandshakeFailures = s.pauses.Load(), s.faults.Load(), s.handshakeFailures.Load()
	st.EvictedIdle, st.EvictedStalled = s.evicting.idle.Load(), s.evicting.stalled.Load()
	for why := range st.HeaderFailures {
		st.HeaderFailures[why] = s.headerFailures[why].Load()
	}
	st.RetryBufferUsed = s.RetryBuffer.Used.Load()
	st.Draining = s.Draining.Load()
	st.RateLimitPauses, st.Paused = s.RateLimitPauses.State(), int(s.Paused.Load())
	now := s.Clock.Elapsed()
	st.RateLimits = n.RateLimitStats()
	for _, u := range n.Upstreams() {
		us := UpstreamStats{
			Name: u.Pool.Target().String(), Pool: u.Pool.Stats(), Addresses: u.Pool.Endpoints(), BudgetTokens: u.RetryBudget.Tokens(now), HasBudget: n.Budgeted[u], LastFailure: u.DialFailures.Last.Load(),
			Guard: u.Admission.Guard.State(), LongestWait: u.Admission.LongestWait(), HasProbe: u.Admission.ProbeRequest != nil, Probed: u.Admission.ProbeStats.Read(),
		}
		if u.Throttler != nil {
			us.HasThrottle, us.Throttle = true, u.Throttler.Probability(now)
		}
		st.Upstreams = append(st.Upstreams, us)
	}
	return st
}

// closeIdle closes the oldest idle connection to any upstream, to free its descriptor. It reports
// false if there is none.
func (s *Server) closeIdle() bool {
	for _, u := range s.settings.Load().Upstreams() {
		if u.Pool.CloseOldest() {
			return true
		}
	}
	return false
}
