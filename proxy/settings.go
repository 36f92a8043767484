package proxy

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/internal/boundedlog"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/godebug"
	"github.com/retryproxy/retryproxy/proxy/route"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// settings is one version of the configuration, made ready to run. A request
// keeps the version that it began with.
type settings struct {
	*Config
	server    *Server
	table     *route.Table[*routeState]
	fallback  *routeState
	trust     forward.Trust
	all       []*routeState
	budgeted  map[*upstreamState]bool // those whose budget some route asks
	clientTLS *tls.Config             // nil: clients come without TLS
	http2     bool                    // it is spoken with clients

	announcers forward.Trust // whose connections begin with a header of the PROXY protocol

	hedges                map[hedgeKey]*policy.Hedge          // of the version before
	rateLimits            map[[sha256.Size]byte]*rateLimitSet // by seed
	longestRateLimitPause time.Duration                       // that any route shares
}

// routeState is a route with what its requests share.
type routeState struct {
	*Route
	upstream           *upstreamState
	observer           func() Observer // of a request that begins
	gaveUpLog          boundedlog.Limiter
	spare              *routeState   // as a request to the fallback upstream sees it; nil without one
	isSpare            bool          // it is the spare of another
	hedge              *policy.Hedge // nil: off
	plainRetryOn       bool          // a response below 300 is never a failure
	repeatsReset       bool          // a connection that ends without a response is a failure to repeat after
	rateLimitPauseSeed [sha256.Size]byte
	rateLimit          *rateLimitSet // nil: none
}

// upstreamState is what all routes to one upstream share, and what outlives a
// reload while any route still uses it.
type upstreamState struct {
	key    string
	pool   *upstream.Group
	budget *policy.Budget
	door   *admissionQueue

	failures *dialFailures

	budgetKey uint64 // in a fleet

	throttle *policy.ClientThrottler // nil: off
}

func (u *upstreamState) close() {
	u.door.close()
	u.pool.Close()
}

func (r *routeState) budget() *policy.Budget {
	if r.NoBudget {
		return nil
	}
	return r.upstream.budget
}

// prepare makes c runnable, with the upstreams of the version before it where
// they are the same.
func (s *Server) prepare(c *Config) (*settings, error) {
	if c.Default.Upstream.Address == "" {
		return nil, errors.New("no upstream for the default route")
	}
	n := &settings{Config: c, server: s, trust: forward.NewTrust(c.TrustedProxies), budgeted: map[*upstreamState]bool{}, rateLimits: map[[sha256.Size]byte]*rateLimitSet{}}
	n.announcers = forward.NewTrust(c.ProxyProtocolFrom)
	if n.Log == nil {
		n.Log = zap.NewNop()
	}
	n.http2 = n.MaxConcurrentStreams > 0 && !godebug.Off(godebug.HTTP2Server)
	n.prepareTLS()
	known := map[string]*upstreamState{}
	if old := s.settings.Load(); old != nil {
		for _, r := range old.all {
			known[r.upstream.key] = r.upstream
		}
	}
	n.hedges = s.hedges()
	var rules []route.Rule[*routeState]
	for i := range c.Routes {
		r := n.add(&c.Routes[i], known)
		rules = append(rules, route.Rule[*routeState]{Match: r.Match, Value: r, Name: r.Name})
	}
	n.fallback = n.add(&c.Default, known)
	n.hedges = nil
	var err error
	if n.table, err = route.New(rules, n.fallback); err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	return n, nil
}

// warnOfHTTP2Off says once what of HTTP/2 the environment has turned off in net/http.
func (n *settings) warnOfHTTP2Off() {
	if n.MaxConcurrentStreams > 0 && !n.http2 {
		n.Log.Warn("HTTP/2 is not offered to clients, as the environment has GODEBUG=" + godebug.HTTP2Server + "=0")
	}
	if godebug.Off(godebug.HTTP2Client) {
		n.Log.Warn("HTTP/2 is not spoken with upstreams, as the environment has GODEBUG=" + godebug.HTTP2Client + "=0")
	}
}

func (n *settings) add(r *Route, known map[string]*upstreamState) *routeState {
	r = observed(r)
	if n.Tracer != nil {
		r = traced(r)
	}
	state := &routeState{Route: r, observer: observeNothing}
	if n.Observe != nil {
		state.observer = n.Observe(r.Name)
	}
	state.gaveUpLog.PerMinute = n.GaveUpLogPerMinute
	state.gaveUpLog.OnSuppressed = func(suppressed int) {
		n.Log.Warn("more requests given up, lines suppressed", zap.String("route", r.Name), zap.Int("count", suppressed))
	}
	state.plainRetryOn = plain(&r.Policy.RetryOn)
	state.repeatsReset = !r.DryRun && retriesResets(&r.Policy)
	if r.RateLimitPause.Kind != RateLimitPauseNone {
		state.rateLimitPauseSeed = pauseSeed(r)
		n.longestRateLimitPause = max(n.longestRateLimitPause, r.RateLimitPause.Max)
	}
	state.upstream = n.upstreamOf(r, known)
	state.hedge = n.hedgeOf(state)
	state.rateLimit = n.rateLimitOf(r)
	if !r.NoBudget {
		n.budgeted[state.upstream] = true
	}
	n.all = append(n.all, state)
	if r.Fallback != nil && r.Fallback.Status == 0 {
		state.spare = &routeState{Route: fallbackRoute(r), isSpare: true, plainRetryOn: state.plainRetryOn}
		state.spare.upstream = n.upstreamOf(state.spare.Route, known)
		n.all = append(n.all, state.spare)
	}
	return state
}

// flushLogs counts the log lines that were suppressed so far.
func (n *settings) flushLogs() {
	for _, r := range n.all {
		if !r.isSpare {
			r.gaveUpLog.Flush()
		}
	}
	for _, u := range n.upstreams() {
		u.failures.logLimiter.Flush()
	}
}

// retriesResets says whether p retries a request that may run twice after a connection
// that ended without a response, where nothing else speaks against it.
func retriesResets(p *policy.Policy) bool {
	s := policy.Situation{MaxRetries: 1, Safe: true, Replay: policy.ReplayWhole, Left: policy.Forever}
	return p.Decide(&policy.Attempt{Cause: policy.CauseReset}, &s, nil, 0, policy.Shared()).Retry
}

// upstreamOf is the one that routes with equal settings for it share.
func (n *settings) upstreamOf(r *Route, known map[string]*upstreamState) *upstreamState {
	key := fmt.Sprintf("%s %+v %+v %d %d %v %+v %s %v %+v", r.Upstream.Key(), r.Budget, r.Guard, r.QueueMax, r.QueueOrder, r.ClientThrottling, r.Probe, r.FaultInjection, r.DryRun, r.Eject)
	if known[key] == nil {
		o := r.Eject.options()
		o.Start = n.server.clockStart()
		failures := newDialFailures(n.Log, r.Upstream.String())
		o.OnDialError = failures.record
		pool := upstream.NewGroup(r.Upstream, o)
		known[key] = &upstreamState{
			key:    key,
			pool:   pool,
			budget: n.newBudget(r), budgetKey: budgetKey(r),
			door: newAdmissionQueue(n.server, pool, r, n.Log), failures: failures,
		}
		known[key].door.lastCause = failures.lastCause
		if r.ClientThrottling {
			known[key].throttle = policy.NewClientThrottler()
		}
	}
	return known[key]
}

// rateLimitOf is the one that routes of the same rate limit and key to the same upstream share, with
// those who wait for it since the version before; nil for none.
func (n *settings) rateLimitOf(r *Route) *rateLimitSet {
	if !r.RateLimit.Rate.Limited() {
		return nil
	}
	key := rateLimitSeed(r)
	if old := n.server.settings.Load(); n.rateLimits[key] == nil && old != nil && old.rateLimits[key] != nil {
		n.rateLimits[key] = old.rateLimits[key]
	}
	if n.rateLimits[key] == nil {
		n.rateLimits[key] = newRateLimitSet(n.server, r, n.RateLimitWanted)
	}
	return n.rateLimits[key]
}

// rand is what draws faults.
func (n *settings) rand() policy.Rand {
	if n.Rand != nil {
		return n.Rand
	}
	return policy.Shared()
}

// plain says whether no response below 300 can be a failure, so that most
// answers need no closer look.
func plain(on *policy.RetryOn) bool {
	if len(on.HeaderNames()) > 0 || on.AnyGRPC() {
		return false
	}
	for code := 100; code < 300; code++ {
		if on.Code(code) {
			return false
		}
	}
	return true
}

// find gives the route that takes the request.
func (n *settings) find(c *conn, r *http1.Request) *routeState {
	if len(n.Routes) == 0 {
		return n.fallback
	}
	return n.table.Find(c.listen, r.Authority, r.Path, r.Method, r)
}

// upstreams lists each upstream once.
func (n *settings) upstreams() []*upstreamState {
	var all []*upstreamState
	seen := map[*upstreamState]bool{}
	for _, r := range n.all {
		if !seen[r.upstream] {
			seen[r.upstream] = true
			all = append(all, r.upstream)
		}
	}
	return all
}

// peerOf says who is at the other end.
func peerOf(addr net.Addr, n *settings) forward.Peer {
	p := forward.Peer{TrustConfigured: n.TrustedProxies != nil}
	switch a := addr.(type) {
	case *net.TCPAddr:
		ap := a.AddrPort()
		p.Addr = ap.Addr().Unmap()
		p.Text = p.Addr.WithZone("").String()
		p.Trusted = n.trust.Trusted(p.Addr)
	case *net.UnixAddr:
		p.Text, p.Trusted = "unix", true
	default:
		p.Addr = netip.Addr{}
	}
	return p
}
