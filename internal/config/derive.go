package config

import (
	"cmp"
	"path"
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/proxy/certs"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// derive sets the defaults that depend on other settings. A default never contradicts a
// setting.
func derive(s *Settings) {
	if s.Position == "auto" {
		s.Position = "outbound"
		if s.Default.Upstream.Loopback() {
			s.Position = "inbound"
		}
	}
	if s.Default.Listen == "" {
		s.Default.Listen = Address(positionDefault("LISTEN", s.Position))
	}
	for _, r := range s.All() {
		r.derive(s)
	}
}

func (r *Route) derive(s *Settings) {
	if r.Listen == "" {
		r.Listen = s.Default.Listen
	}
	r.fillBackoff()
	if r.Variable("BACKOFF_THROTTLED_BASE") == "" {
		r.BackoffThrottledBase = atMost(max(r.BackoffThrottledBase, r.BackoffBase), r.BackoffMax)
	}
	if r.Variable("QUEUE_TIMEOUT") == "" {
		if r.QueueTimeout == 0 { // it has none from the profile
			// An application that restarts beside its sidecar is worth waiting for. A remote service that is
			// down must not block all workers of the application for longer than necessary: long enough for
			// the last pod to leave a Service and the next one to appear.
			r.QueueTimeout = mustDuration(positionDefault("QUEUE_TIMEOUT", s.Position))
		}
		r.QueueTimeout = atMost(r.QueueTimeout, r.RequestTimeout)
	}
	if r.Variable("RETRY_BUFFER_BYTES") == "" {
		r.RetryBufferBytes = min(r.RetryBufferBytes, s.RetryBufferTotalBytes)
	}
}

// positionDefault returns the default of a shared setting by position, from its tag.
func positionDefault(key, position string) string {
	i := slices.IndexFunc(sharedSettings, func(s Setting) bool { return s.Key == key })
	return sharedSettings[i].positions[position]
}

func mustDuration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic("settings: " + err.Error()) // an error in a tag
	}
	return d
}

// dialTimeout returns the time to connect. A dial never outlasts its attempt.
func (r *Route) dialTimeout() time.Duration {
	return atMost(upstream.DefaultDialTimeout, cmp.Or(r.AttemptTimeout.Value(), r.RequestTimeout/dialShare))
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
	addCert := func(cert, key string) {
		add(cert)
		if key == "" && cert != "" {
			key = certs.KeyFile(cert)
		}
		add(key)
	}
	addCert(s.TLSCert, s.TLSKey)
	add(s.TLSClientCA)
	for _, r := range s.All() {
		add(r.UpstreamCA)
		addCert(r.UpstreamCert, r.UpstreamKey)
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
	if address == string(s.AdminListen) {
		return Prefix + "ADMIN_LISTEN"
	}
	for _, r := range s.All() {
		if string(r.Listen) == address {
			return r.Blame("LISTEN")
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
