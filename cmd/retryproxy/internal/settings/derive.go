package settings

import (
	"cmp"
	"path"
	"strings"
	"time"
)

// derive sets the defaults that depend on other settings. A default never
// contradicts what the user did set: it gives way.
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

// How long clients wait for an upstream that is down. An application that
// restarts beside its sidecar is worth waiting for; a dependency that is down must
// not park all workers of the application that calls it for longer than its last
// pod takes to leave a Service and the next one to be found there.
const (
	holdInbound  = 20 * time.Second
	holdOutbound = 10 * time.Second
)

// dialShare is how many dials that time out fit the request timeout by default.
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
		r.QueueTimeout = holdOutbound
		if s.Position == "inbound" {
			r.QueueTimeout = holdInbound
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

// atMost is min where a bound of 0 means none.
func atMost(d, bound time.Duration) time.Duration {
	if bound > 0 {
		return min(d, bound)
	}
	return d
}

// Files are the files that the settings name, whose change calls for a
// reload: the file of settings and the certificates. No name is there twice.
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
	add(s.EnvFile)
	add(s.TLSCert)
	add(s.TLSKey)
	add(s.TLSClientCA)
	for _, r := range s.All() {
		add(r.UpstreamCA)
		add(r.UpstreamCert)
		add(r.UpstreamKey)
	}
	return files
}

// Listeners are the addresses to accept clients on, the main one first, then
// those that routes ask for. No address is there twice.
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

// ListenVariable is the variable that names the address of a listener.
func (s *Settings) ListenVariable(address string) string {
	switch address {
	case s.Listen.String():
		return Prefix + "LISTEN"
	case s.AdminListen.String():
		return Prefix + "ADMIN_LISTEN"
	}
	for i := range s.Routes {
		if r := &s.Routes[i]; r.Matcher.Listen.String() == address {
			return Prefix + "ROUTE_" + strings.ToUpper(r.Name) + "_LISTEN"
		}
	}
	return Prefix + "LISTEN"
}
