package proxy

import (
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Accepts says whether a request to a forward proxy is for the route that takes
// it: its target names the route's upstream, or one of several, or a host that the
// route is for. docs/decisions/0017-proxy-protocol-and-forward-proxy.md has the rules.
//
// It is asked only of requests in absolute form. It keeps one service from answering
// for another. What is dialled does not depend on it: that is the route's upstream, whatever a target says.
func (r *Route) Accepts(q *http1.Request) bool {
	if http1.EqualFold(q.Scheme, "https") && r.Upstream.TLS == nil {
		return false // the client wants nobody on the way to read it
	}
	// A pattern has matched where there is one, with its port if it names one.
	byName := r.Match.Host != "" && (forward.HasPort(r.Match.Host) || forward.PortImplied(q.Authority, q.Scheme))
	return byName || r.isUpstream(q)
}

// wouldDropTLS says whether a request for an https target would go to
// another upstream without TLS.
func (x *exchange) wouldDropTLS(to upstream.Target) bool {
	return x.set.ForwardProxy && x.req.Form == http1.Absolute && http1.EqualFold(x.req.Scheme, "https") && to.TLS == nil
}

func (r *Route) isUpstream(q *http1.Request) bool {
	if forward.IsHost(q.Authority, q.Scheme, r.Upstream.Host) {
		return true
	}
	for i := range r.Upstream.MoreTargets {
		if forward.IsHost(q.Authority, q.Scheme, r.Upstream.MoreTargets[i].Host) {
			return true
		}
	}
	return false
}
