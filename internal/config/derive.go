package config

import (
	"cmp"
	"path"
	"time"
)

// derive sets the defaults that depend on other settings. A default never contradicts a
// setting.
func derive(s *Settings, problems *Problems) {
	if !s.Default.Upstream.Set() && s.Default.Variable("UPSTREAM") == "" {
		problems.errorf(Prefix+"UPSTREAM", "", "must be set: expected %s", units["upstream"])
	}
	if s.Position == "auto" {
		s.Position = "outbound"
		if s.Default.Upstream.Loopback() {
			s.Position = "inbound"
		}
	}
	if !s.Listen.Set() {
		s.Listen = Address{text: "127.0.0.1:8080"}
		if s.Position == "inbound" {
			s.Listen = Address{text: ":8080"}
		}
	}
	for _, r := range s.All() {
		r.derive(s)
	}
}

// Default queue timeouts for an upstream that is down. An application that restarts beside
// its sidecar is worth waiting for. A remote service that is down must not block all
// workers of the application for longer than necessary: the last pod has to leave a Service
// and the next one has to appear.
const (
	holdInbound  = 20 * time.Second
	holdOutbound = 10 * time.Second
)

// dialShare is how many timed-out dials fit the request timeout by default.
const dialShare = 3

func (r *Route) derive(s *Settings) {
	if r.Variable("DIAL_TIMEOUT") == "" {
		r.DialTimeout = atMost(r.DialTimeout, cmp.Or(r.AttemptTimeout.Value(), r.RequestTimeout/dialShare))
	}
	r.fillBackoff()
	if r.Variable("BACKOFF_THROTTLED_BASE") == "" {
		r.BackoffThrottledBase = atMost(max(r.BackoffThrottledBase, r.BackoffBase), r.BackoffMax)
	}
	if r.Variable("QUEUE_TIMEOUT") == "" {
		switch {
		case r.QueueTimeout > 0: // the profile's
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
	if r.Variable("RESPONSE_BUFFER_BYTES") == "" {
		r.ResponseBufferBytes = min(r.ResponseBufferBytes, s.RetryBufferTotalBytes)
	}
}

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
	add(s.TLSCert)
	add(s.TLSKey)
	add(s.TLSClientCA)
	for _, r := range s.All() {
		add(r.UpstreamCA)
		add(r.UpstreamCert)
		add(r.UpstreamKey)
		add(r.RequestHeadersFile)
	}
	return files
}

// Listeners returns the addresses to accept clients on, without duplicates: the main one
// first, then those of routes.
func (s *Settings) Listeners() []Address {
	list := []Address{s.Listen}
	seen := map[Address]bool{{}: true, s.Listen: true}
	for i := range s.Routes {
		if a := s.Routes[i].Matcher.Listen; !seen[a] {
			seen[a] = true
			list = append(list, a)
		}
	}
	return list
}

// ListenVariable returns the variable that sets the address of a listener.
func (s *Settings) ListenVariable(address string) string {
	switch address {
	case s.Listen.String():
		return Prefix + "LISTEN"
	case s.AdminListen.String():
		return Prefix + "ADMIN_LISTEN"
	}
	for i := range s.Routes {
		if r := &s.Routes[i]; r.Matcher.Listen.String() == address {
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
