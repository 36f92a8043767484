package exchange

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// twoAddresses gives the upstream two, neither of which is ejected, and makes no retry.
func twoAddresses(_ *served, c *settings.Config) {
	c.Default.Policy.MaxRetries = 0
	c.Default.Eject = upstream.Eject{After: -1}
	c.Default.Upstream.Resolve = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}, nil
	}
}

// What counts as a failure of the endpoint: what an endpoint alone is responsible for, and no client.
func TestWhatAnEndpointIsReportedFor(t *testing.T) {
	const s = time.Second
	upload := message("PUT", "Content-Length: 8") + "\r\nbody"
	for _, c := range []struct {
		name     string
		change   func(s *served, c *settings.Config)
		request  string
		step     step
		failures uint64
	}{
		{"a good response", nil, get(), step{ok200}, 0},
		{"a 404", nil, get(), step{answer(404, "")}, 0},
		{"a 429", nil, get(), step{answer(429, "")}, 0},
		{"a 500", nil, get(), step{answer(500, "")}, 0},
		{"a 502", nil, get(), step{answer(502, "")}, 1},
		{"a 503", nil, get(), step{answer(503, "")}, 1},
		{"a lost connection", nil, get(), step{closes}, 1},
		{"a lost connection during an upload", then(s, "body"), upload, step{breaks}, 0},
		{"not HTTP", nil, get(), step{"nonsense\r\n\r\n"}, 1},
		{"a timeout", nil, get(), step{time.Minute}, 1},
		{"the client's own deadline", nil, get("X-Request-Timeout: 0.2"), step{time.Minute}, 0},
		{"a client that left", then(s, closes), get(), step{time.Minute}, 0},
		{"a call that failed", grpc, with("PUT", "body"), step{call + callEnds("14")}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			change := all(twoAddresses, c.change)
			if c.change == nil {
				change = twoAddresses
			}
			inMemory(t, []step{c.step}, change, func(s *served) {
				s.serve(c.request)
				pool, failures, attempts := s.settings.DefaultRoute.UpstreamState.Pool, uint64(0), uint64(0)
				for _, e := range pool.Endpoints().Each {
					failures, attempts = failures+e.Failures, attempts+e.Attempts
				}
				if failures != c.failures || attempts != 1 {
					s.Errorf("%d failures, %d attempts", failures, attempts)
				}
			})
		})
	}
}

// A retry goes to another address than the attempt that failed.
func TestARetryAvoidsTheAddressThatFailed(t *testing.T) {
	for range 5 {
		inMemory(t, []step{{answer(503, "")}, {ok200}}, all(twoAddresses, func(_ *served, c *settings.Config) { c.Default.Policy.MaxRetries = 1 }), func(s *served) {
			s.serve(get())
			for _, e := range s.settings.DefaultRoute.UpstreamState.Pool.Endpoints().Each {
				if e.Attempts != 1 {
					s.Errorf("%d attempts at %s", e.Attempts, e.Addr)
				}
			}
		})
	}
}
