package peers

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// FallbackServer is a fallback upstream in memory.
type FallbackServer struct {
	*Upstream
	Bodies []string
	Mu     sync.Mutex
}

// Fallback is a fallback upstream of that name, whose requests s counts.
func (s *FallbackServer) Fallback(t *testing.T, name string, handle func(c *Conn)) settings.Fallback {
	return settings.Fallback{
		Forward: forward.Settings{Host: forward.HostRule{Mode: forward.HostUpstream}, UpstreamHost: name},
		Upstream: upstream.Target{Network: "tcp", Address: name + ":80", Host: name, Resolve: Resolve,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				s.Serve(t, theirs, handle)
				return ours, nil
			}},
	}
}

// FallbackOK is what a fallback upstream answers.
const FallbackOK = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nspare"

// StaticFallback gives the fallback of our own.
func StaticFallback(status int, body string) func(c *settings.Config) {
	return func(c *settings.Config) {
		c.Default.Policy.MaxRetries = 0
		c.Default.Fallbacks = []settings.Fallback{{Status: status, Body: []byte(body)}}
	}
}
