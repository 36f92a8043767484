package breaker

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// A dial that a client's own short deadline ended shows nothing about the upstream: others are not
// refused. A dial that lasted for long shows that the upstream does not accept connections.
func TestDialsCutByShortDeadlinesDoNotStopOthers(t *testing.T) {
	silent := func(ctx context.Context, up chan struct{}) error {
		select {
		case <-up:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	refused := func(context.Context, chan struct{}) error {
		return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	for _, tc := range []struct {
		name          string
		deadline      string
		lookup, dials func(context.Context, chan struct{}) error // until the last client comes
		status        int                                        // for the clients with the deadline
		want          breaker.OpenedBy
	}{
		{name: "silent", deadline: "X-Request-Timeout: 50ms", dials: silent, status: 504},
		{name: "silent, as gRPC says it", deadline: "Grpc-Timeout: 50m", dials: silent, status: 504},
		{name: "the resolver is silent", deadline: "X-Request-Timeout: 50ms", lookup: silent, status: 504},
		{name: "refused by one of several servers", deadline: "X-Request-Timeout: 10ms", dials: refused, status: 502},
		{name: "silent for long", deadline: "X-Request-Timeout: 1500ms", dials: silent, status: 504, want: breaker.OpenedByDial},
		{name: "refused for long", deadline: "X-Request-Timeout: 500ms", dials: refused, status: 502, want: breaker.OpenedByRefused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var up chan struct{} // closed when the upstream is up
			fails := func(ctx context.Context, fail func(context.Context, chan struct{}) error) error {
				select {
				case <-up:
					return nil
				default:
				}
				if fail == nil {
					return nil
				}
				return fail(ctx, up)
			}
			proxytest.InMemory(t, peers.Script(peers.OK200), func(c *proxy.Config) {
				up = make(chan struct{})
				peers.WithBreaker(c)
				c.Default.FailFast = true
				c.Default.Policy.MaxRetries = 0
				dial := c.Default.Upstream.Dial
				c.Default.Upstream.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					if err := fails(ctx, tc.dials); err != nil {
						return nil, err
					}
					return dial(ctx, network, address)
				}
				c.Default.Upstream.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
					if err := fails(ctx, tc.lookup); err != nil {
						return nil, err
					}
					return peers.Resolve(ctx, host)
				}
			}, func(t *testing.T, m *proxytest.Memory) {
				hurry := func() {
					m.Client().Send(peers.RequestText("GET / HTTP/1.1", "Host: a", tc.deadline)).Want(tc.status, "*")
				}
				hurry()
				if got := m.Guard().OpenedBy; got != tc.want {
					t.Fatalf("opened by %v, want %v", got, tc.want)
				}
				if tc.want != breaker.OpenedByNothing {
					return
				}
				for range 9 {
					hurry()
				}
				close(up)
				m.Client().Send(peers.Get("/")).Want(200, "ok")
				if s := m.Stats().Upstreams[0]; s.Guard.InFlight != 0 {
					t.Errorf("%d in flight", s.Guard.InFlight)
				}
			})
		})
	}
}
