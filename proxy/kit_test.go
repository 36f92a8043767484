package proxy

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testProxy is a proxy on loopback whose inside the tests of this package look into. All other tests use
// proxytest.Proxy.
type testProxy struct {
	*Server
	*peers.Front
}

// startProxy runs a proxy in front of u; change may alter the configuration.
func startProxy(t testing.TB, u *peers.Upstream, change func(c *Config)) *testProxy {
	t.Helper()
	return startProxyTo(t, "http://"+u.Addr().String(), change)
}

// startProxyTo runs a proxy in front of the upstream at a URL.
func startProxyTo(t testing.TB, upstreamURL string, change func(c *Config)) *testProxy {
	t.Helper()
	seen := &peers.Recorder{}
	c := peers.NewConfig(t, upstreamURL, seen)
	if change != nil {
		change(c)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after it has ended
		if st := s.Stats(); st.RetryBufferUsed != 0 || st.Faults != 0 || st.InFlight != 0 {
			t.Errorf("%d bytes of retry buffer, %d faults, %d requests in flight are left", st.RetryBufferUsed, st.Faults, st.InFlight)
		}
		peers.Soon(t, "all places given back", func() bool {
			g := s.Stats().Upstreams[0].Guard
			return g.InFlight-g.Abandoned == 0 && g.Queued == 0
		})
	})
	front, _ := peers.Serve(t, s, seen)
	return &testProxy{Server: s, Front: front}
}
