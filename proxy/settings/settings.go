// Package settings has the configuration of the data path. Config and Route are its input.
// Settings, RouteState and UpstreamState are made from them and shared by the running requests.
//
// A reload makes new Settings. They take over every upstream, hedge and rate limit whose
// configuration has not changed, so that connections, budgets and learnt values survive it.
// Requests keep the Settings with which they began.
package settings

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/internal/boundedlog"
	"github.com/retryproxy/retryproxy/policy/hedge"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/godebug"
	"github.com/retryproxy/retryproxy/proxy/route"
)

// Settings is one version of the configuration, ready to run. A request keeps the version with
// which it began.
type Settings struct {
	*Config
	process      Process
	before       *Settings // set only during preparation
	Table        *route.Table[*RouteState]
	DefaultRoute *RouteState
	trust        forward.Trust
	All          []*RouteState
	Budgeted     map[*UpstreamState]bool // those whose budget some route uses
	ClientTLS    *tls.Config             // nil: clients connect without TLS
	HTTP2        bool                    // clients may use HTTP/2

	announcers forward.Trust // peers whose connections begin with a header of the PROXY protocol

	hedges                map[hedgeKey]*hedge.Hedge                   // of the previous version
	AllRateLimits         map[[sha256.Size]byte]*admission.RateLimits // by seed
	LongestRateLimitPause time.Duration                               // of all routes
}

// Process is what all versions of the configuration share.
type Process struct {
	Clock    *clock.Clock
	Draining *atomic.Bool // set when the process drains
	// ReadAhead is what upstreams and clients may send of a body by HTTP/2 before it is read.
	ReadAhead http2.ReadAhead
}

// Prepare makes c ready to run. It takes over unchanged upstreams from before, the version in
// force. before is nil for the first version.
func Prepare(c *Config, p Process, before *Settings) (*Settings, error) {
	if c.Default.Upstream.Address == "" {
		return nil, errors.New("no upstream for the default route")
	}
	n := &Settings{Config: c, process: p, before: before, trust: forward.NewTrust(c.TrustedProxies), Budgeted: map[*UpstreamState]bool{}, AllRateLimits: map[[sha256.Size]byte]*admission.RateLimits{}}
	n.announcers = forward.NewTrust(c.ProxyProtocolFrom)
	if n.Log == nil {
		n.Log = zap.NewNop()
	}
	n.HTTP2 = n.MaxConcurrentStreams > 0
	n.prepareTLS()
	known := map[upstreamKey]*UpstreamState{}
	if before != nil {
		for _, r := range before.All {
			known[r.UpstreamState.key] = r.UpstreamState
		}
	}
	n.hedges = before.learnt()
	var rules []route.Rule[*RouteState]
	for i := range c.Routes {
		r := n.add(&c.Routes[i], known)
		rules = append(rules, route.Rule[*RouteState]{Match: r.Match, Value: r, Name: r.Name})
	}
	n.DefaultRoute = n.add(&c.Default, known)
	n.hedges, n.before = nil, nil
	var err error
	if n.Table, err = route.New(rules, n.DefaultRoute); err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	for _, u := range n.Upstreams() {
		u.Pool.StartHealthChecks()
	}
	return n, nil
}

// WarnOfHTTP2Off logs, once, that the environment has turned off HTTP/2 in net/http, which is that of
// upstreams.
func (n *Settings) WarnOfHTTP2Off() {
	if godebug.Off(godebug.HTTP2Client) {
		n.Log.Warn("HTTP/2 is not used with upstreams, because the environment has GODEBUG=" + godebug.HTTP2Client + "=0")
	}
}

func (n *Settings) add(r *Route, known map[upstreamKey]*UpstreamState) *RouteState {
	r = observed(r)
	if n.Tracer != nil {
		r = traced(r)
	}
	state := &RouteState{Route: r, NewObserver: observeNothing}
	if n.Observe != nil {
		state.NewObserver = n.Observe(r.Name)
	}
	state.gaveUpLog = boundedlog.New(n.GaveUpLogPerMinute, func(suppressed int) {
		n.Log.Warn("more requests given up, lines suppressed", zap.String("route", r.Name), zap.Int("count", suppressed))
	})
	state.plainRetryOn = plain(r.Policy.RetryOn)
	state.RepeatsReset = !r.DryRun && retriesResets(&r.Policy)
	if !r.RateLimitPause.SharedBy.None() {
		state.rateLimitPauseSeed = pauseSeed(r)
		n.LongestRateLimitPause = max(n.LongestRateLimitPause, r.RateLimitPause.Max)
	}
	state.UpstreamState = n.upstreamOf(r, known)
	state.accounts = accountsOf(r)
	state.Hedge = n.hedgeOf(state)
	state.Terms = state.terms(n.rateLimitOf(r))
	state.LookFor = state.lookFor()
	if !r.NoBudget {
		n.Budgeted[state.UpstreamState] = true
	}
	n.All = append(n.All, state)
	n.addFallbacks(state, known)
	return state
}

// addFallbacks adds a route for each fallback upstream.
func (n *Settings) addFallbacks(state *RouteState, known map[upstreamKey]*UpstreamState) {
	for i := range state.Fallbacks {
		f := &state.Fallbacks[i]
		if f.Status != 0 {
			continue
		}
		to := &RouteState{Route: fallbackRoute(state.Route, f), IsFallback: true, plainRetryOn: state.plainRetryOn}
		to.UpstreamState = n.upstreamOf(to.Route, known)
		to.Terms = to.terms(nil)
		to.accounts = accountsOf(to.Route)
		state.FallbackRoutes = append(state.FallbackRoutes, to)
	}
	for i, to := range state.FallbackRoutes {
		to.FallbackRoutes = state.FallbackRoutes[i+1:]
		n.All = append(n.All, to)
	}
}

// FlushLogs counts the log lines that were suppressed so far.
func (n *Settings) FlushLogs() {
	for _, r := range n.All {
		if !r.IsFallback {
			r.gaveUpLog.Flush()
		}
	}
	for _, u := range n.Upstreams() {
		u.DialFailures.LogLimiter.Flush()
	}
}

// Find returns the route of the request. h finds its headers, and the model of its body if a route
// has one.
func (n *Settings) Find(listen string, r *http1.Request, h route.HeaderLookup) *RouteState {
	if len(n.Routes) == 0 {
		return n.DefaultRoute
	}
	return n.Table.Find(listen, r.Authority, r.Path, r.Method, h)
}

// Upstreams lists each upstream once.
func (n *Settings) Upstreams() []*UpstreamState {
	var all []*UpstreamState
	seen := map[*UpstreamState]bool{}
	for _, r := range n.All {
		if !seen[r.UpstreamState] {
			seen[r.UpstreamState] = true
			all = append(all, r.UpstreamState)
		}
	}
	return all
}

// PeerOf returns the peer with the address addr.
func PeerOf(addr net.Addr, n *Settings) forward.Peer {
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

// prepareTLS sets the TLS configuration for clients on TCP, or nil without TLS. Unix sockets stay
// plain, because they cannot be intercepted on a network.
func (n *Settings) prepareTLS() {
	if n.TLS == nil {
		return
	}
	n.ClientTLS = n.TLS.Clone()
	n.ClientTLS.NextProtos = clientProtocols
	if !n.HTTP2 {
		n.ClientTLS.NextProtos = clientProtocols[1:]
	}
}

// clientProtocols are offered to clients by ALPN, in order of preference.
var clientProtocols = []string{"h2", "http/1.1"}

// Announces reports whether a connection must begin with a PROXY protocol header. A unix socket
// never does: it has no address that could be trusted.
func (n *Settings) Announces(nc net.Conn) bool {
	if len(n.ProxyProtocolFrom) == 0 {
		return false
	}
	a, ok := nc.RemoteAddr().(*net.TCPAddr)
	return ok && n.announcers.Trusted(a.AddrPort().Addr())
}

// RateLimitQueue returns the queue of a key, or nil.
func (n *Settings) RateLimitQueue(key uint64) *admission.RateLimitQueue {
	for _, s := range n.AllRateLimits {
		if q := s.Known(key); q != nil {
			return q
		}
	}
	return nil
}

// RateLimitStats returns the state of all rate limits.
func (n *Settings) RateLimitStats() []admission.RateLimitStats {
	var all []admission.RateLimitStats
	permit := map[[2]string]int{}
	for _, s := range n.AllRateLimits {
		one := s.Stats()
		id := [2]string{one.Upstream, one.Rate}
		i, known := permit[id]
		if !known {
			permit[id] = len(all)
			all = append(all, one)
			continue
		}
		all[i].Waiting += one.Waiting
		all[i].Longest = max(all[i].Longest, one.Longest)
		all[i].Keys += one.Keys
		all[i].Tokens += one.Tokens
		all[i].TokenLimit += one.TokenLimit
		all[i].State = all[i].State.Plus(one.State)
	}
	return all
}

// rateLimitOf returns the rate limit that routes with the same rate and key to the same upstream
// share. It takes over the waiters of the previous version. It returns nil if the route has none.
func (n *Settings) rateLimitOf(r *Route) *admission.RateLimits {
	if !r.RateLimit.Limited() {
		return nil
	}
	key := admission.RateLimitSeed(r.Upstream.String(), r.Name, r.RateLimit)
	if old := n.before; n.AllRateLimits[key] == nil && old != nil && old.AllRateLimits[key] != nil {
		n.AllRateLimits[key] = old.AllRateLimits[key]
	}
	if n.AllRateLimits[key] == nil {
		n.AllRateLimits[key] = admission.NewRateLimits(r.Upstream.String(), r.Name, r.RateLimit, r.QueueMax, n.process.Clock.Elapsed, n.RateLimitWanted)
	}
	return n.AllRateLimits[key]
}
