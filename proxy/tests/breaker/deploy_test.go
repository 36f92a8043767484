package breaker

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// deployed are two endpoints that are restarted one after the other.
type deployed struct {
	mu   sync.Mutex
	each map[string]*deployedEndpoint // by address
}

type deployedEndpoint struct {
	down  bool
	cold  int // requests that take longer, from now on
	conns map[net.Conn]struct{}
}

func newDeployed(addrs ...string) *deployed {
	d := &deployed{each: map[string]*deployedEndpoint{}}
	for _, a := range addrs {
		d.each[a] = &deployedEndpoint{conns: map[net.Conn]struct{}{}}
	}
	return d
}

// kill ends the connections to an endpoint and refuses new ones.
func (d *deployed) kill(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.each[addr]
	e.down = true
	for c := range e.conns {
		c.Close()
	}
	clear(e.conns)
}

// start starts an endpoint again, cold.
func (d *deployed) start(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.each[addr].down, d.each[addr].cold = false, 100
}

// accept reports whether the endpoint takes the connection.
func (d *deployed) accept(addr string, c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.each[addr]
	if !e.down {
		e.conns[c] = struct{}{}
	}
	return !e.down
}

// takes returns how long the next request takes.
func (d *deployed) takes(addr string, longer time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.each[addr]; e.cold > 0 {
		e.cold--
		return 20*time.Millisecond + longer
	}
	return 20 * time.Millisecond
}

// lostInADeploy plays a deploy and returns how many clients, which wait for 2.5 s, got no response. With quiet
// no request is in flight to an endpoint when it is killed.
func lostInADeploy(t *testing.T, longer time.Duration, quiet bool, change func(*proxy.Config)) (lost int) {
	const a, b = "192.0.2.1:80", "192.0.2.2:80"
	d := newDeployed(a, b)
	handle := func(c *peers.Conn) {
		for c.Head() != "" {
			time.Sleep(d.takes(c.LocalAddr().String(), longer))
			c.Say(peers.OK200)
		}
	}
	proxytest.InMemory(t, handle, func(c *proxy.Config) {
		dial := c.Default.Upstream.Dial
		c.Default.Upstream.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			up, err := dial(ctx, network, addr)
			if !d.accept(addr, up) {
				up.Close()
				return nil, syscall.ECONNREFUSED
			}
			return up, err
		}
		c.Default.Upstream.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}, nil
		}
		change(c)
	}, func(t *testing.T, m *proxytest.Memory) {
		var failed atomic.Int64
		var asking sync.WaitGroup
		users := func(seconds int) {
			for i := range 100 * seconds {
				asking.Go(func() {
					c := m.Client()
					defer c.Close()
					_ = c.SetDeadline(time.Now().Add(2500 * time.Millisecond))
					if res, _, err := c.Send(peers.Get(fmt.Sprint("/", i%20))).Response("GET"); err != nil || res.StatusCode != 200 {
						failed.Add(1)
					}
				})
				time.Sleep(10 * time.Millisecond)
			}
		}
		users(6)
		for _, addr := range []string{a, b} {
			if quiet {
				time.Sleep(100 * time.Millisecond)
			}
			d.kill(addr)
			users(2)
			d.start(addr)
			users(4)
		}
		users(6)
		asking.Wait()
		lost = int(failed.Load())
		time.Sleep(2 * longer) // the endpoints answer what nobody waits for
	})
	return lost
}

// Two endpoints are restarted one after the other, and their first requests take longer than usual, or
// than clients wait. The first one stays cold, since requests go to the quicker one, until the second is
// killed. Then all wait for the first: that is no outage.
func TestADeployLosesNoMoreThanWithoutBreaker(t *testing.T) {
	for _, tc := range []struct {
		longer time.Duration
		quiet  bool
	}{{time.Second, false}, {2 * time.Second, false}, {4 * time.Second, false}, {4 * time.Second, true}} {
		t.Run(fmt.Sprintf("%v longer, quiet %v", tc.longer, tc.quiet), func(t *testing.T) {
			off := lostInADeploy(t, tc.longer, tc.quiet, func(*proxy.Config) {})
			on := lostInADeploy(t, tc.longer, tc.quiet, peers.WithBreaker)
			if chance := 26; on > off+chance { // a hundredth of the requests
				t.Errorf("%d lost, %d without breaker", on, off)
			}
		})
	}
}
