package config

import (
	"cmp"
	"path"
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/proxy/certs"
)

func requireUpstream(s *Settings, problems *Problems) {
	if !s.Default.Upstream.Set() && s.Default.Variable("UPSTREAM") == "" {
		problems.errorf(Prefix+"UPSTREAM", "", "must be set, for example to http://localhost:3000 or https://api.example.com")
	}
}

// derive sets the defaults that depend on other settings. A default never contradicts a
// setting.
func derive(s *Settings) {
	if s.Position == "auto" {
		s.Position = "outbound"
		if s.Default.Upstream.Loopback() {
			s.Position = "inbound"
		}
	}
	if !s.Default.Listen.Set() {
		s.Default.Listen = Address{text: "127.0.0.1:8080"}
		if s.Position == "inbound" {
			s.Default.Listen = Address{text: ":8080"}
		}
	}
	for _, r := range s.All() {
		r.derive(s)
	}
}

// Default queue timeouts for an upstream that is down. An application that restarts beside its
// sidecar is worth waiting for. A remote service that is down must not block all workers of the
// application for longer than necessary: long enough for the last pod to leave a Service and the
// next one to appear.
const (
	holdInbound  = 20 * time.Second
	holdOutbound = 10 * time.Second
)

func (r *Route) derive(s *Settings) {
	if !r.Listen.Set() {
		r.Listen = s.Default.Listen
	}
	r.fillBackoff()
	if r.Variable("BACKOFF_THROTTLED_BASE") == "" {
		r.BackoffThrottledBase = atMost(max(r.BackoffThrottledBase, r.BackoffBase), r.BackoffMax)
	}
	if r.Variable("QUEUE_TIMEOUT") == "" {
		switch {
		case r.QueueTimeout > 0: // from the profile
		case s.Position == "inbound":
			r.QueueTimeout = holdInbound
		default:
			r.QueueTimeout = holdOutbound
		}
		r.QueueTimeout = atMost(r.QueueTimeout, r.RequestTimeout)
	}
	if r.Variable("RETRY_BUFFER_BYTES") == "" {
		r.RetryBufferBytes = min(r.RetryBufferBytes, s.RetryBufferTotalBytes)
	}
}

// dialTimeout returns the time to connect. A dial never outlasts its attempt.
func (r *Route) dialTimeout() time.Duration {
	return atMost(dialTimeout, cmp.Or(r.AttemptTimeout.Value(), r.RequestTimeout/dialShare))
}

// ForwardProxy reports whether absolute URLs are handled as by a forward proxy. An outbound
// retryproxy may have clients that use http_proxy. In front of an application, every URL is the
// application's.
func (s *Settings) ForwardProxy() bool { return s.Position == "outbound" }

// atMost is min, except that a bound of 0 means no bound.
func atMost(d, bound time.Duration) time.Duration {
	if bound > 0 {
		return min(d, bound)
	}
	return d
}

// Files returns the files named in the settings whose change requires a reload: the file of
// settings, the certificates and secret headers, without duplicates.
func (s *Settings) Files() []string {
	var files []string
	seen := map[string]bool{"": true}
	add := func(name string) {
		if name != "" {
			name = path.Clean(name)
		}
		if !seen[name] {
			seen[name] = true
			files = append(files, name)
		}
	}
	add(s.ConfigFile)
	add(s.HTTPRouteFile)
	addCert := func(cert string) {
		add(cert)
		if cert != "" {
			add(certs.KeyFile(cert))
		}
	}
	addCert(s.TLSCert)
	add(s.TLSClientCA)
	for _, r := range s.All() {
		add(r.UpstreamCA)
		addCert(r.UpstreamCert)
		add(r.RequestHeadersFile)
	}
	return files
}

// Listeners returns the addresses to accept clients on, without duplicates: the main one
// first, then those of routes.
func (s *Settings) Listeners() []Address {
	var list []Address
	for _, r := range s.All() {
		if !slices.Contains(list, r.Listen) {
			list = append(list, r.Listen)
		}
	}
	return list
}

// ListenVariable returns the variable that sets the address of a listener.
func (s *Settings) ListenVariable(address string) string {
	switch address {
	case s.Default.Listen.String():
		return Prefix + "LISTEN"
	case s.AdminListen.String():
		return Prefix + "ADMIN_LISTEN"
	}
	for i := range s.Routes {
		if r := &s.Routes[i]; r.Listen.String() == address {
			return routePrefix(r.Name) + "LISTEN"
		}
	}
	return Prefix + "LISTEN"
}

// Find returns the route of that name, nil if there is none.
func (s *Settings) Find(name string) *Route {
	for _, r := range s.All() {
		if r.Name == name {
			return r
		}
	}
	return nil
}
