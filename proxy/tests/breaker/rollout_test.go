package breaker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// service is one address that stands for several pods, like that of a Kubernetes Service: each
// connection goes to one of the listed pods, at random. The list lags behind reality.
type service struct {
	mu     sync.Mutex
	random *rand.Rand
	dial   func(context.Context, string, string) (net.Conn, error)
	pods   []podState
}

type podState int

const (
	podUp      podState = iota
	podRefuses          // it has ended, and the address takes no connections
	podGone             // there is no route to it
	podSilent           // what is sent there is lost
)

// Dial connects to one of the pods.
func (s *service) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	s.mu.Lock()
	pod := s.pods[s.random.IntN(len(s.pods))]
	s.mu.Unlock()
	switch pod {
	case podRefuses:
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	case podGone:
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}
	case podSilent:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.dial(ctx, network, addr)
}

func (s *service) set(pod int, state podState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[pod] = state
}

// before makes the upstream a service of n pods.
func (s *service) before(n int) func(c *proxy.Config) {
	s.pods, s.random = make([]podState, n), rand.New(rand.NewPCG(1, uint64(n)))
	return func(c *proxy.Config) {
		peers.WithBreaker(c)
		c.Default.QueueTimeout, c.Default.QueueMax = 10*time.Second, 10_000
		s.dial, c.Default.Upstream.Dial = c.Default.Upstream.Dial, s.Dial
	}
}

// answersOnce answers one request on each connection, after 10 ms.
func answersOnce(c *peers.Conn) {
	headers := c.Head()
	if headers == "" {
		return
	}
	peers.DiscardBody(c, headers)
	time.Sleep(10 * time.Millisecond)
	c.Say("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
}

// A rolling restart behind one address: each pod ends, stays listed for five more seconds, and is
// replaced. A hundred requests a second arrive, each on its own connection, half of them POST.
// None fails, and the breaker stays closed while others are served.
func TestARolloutBehindOneAddressFailsNoRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		pods  int
		ended podState
		opens bool // the only pod is gone: the breaker opens
	}{
		"three pods, refused":    {3, podRefuses, false},
		"three pods, no route":   {3, podGone, false},
		"two pods, refused":      {2, podRefuses, false},
		"the only pod, refused":  {1, podRefuses, true},
		"the only pod, no route": {1, podGone, true},
		"the only pod, no word":  {1, podSilent, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &service{}
			proxytest.InMemory(t, answersOnce, s.before(tc.pods), func(t *testing.T, m *proxytest.Memory) {
				var asking sync.WaitGroup
				over := make(chan struct{})
				go func() {
					defer close(over)
					for i := range tc.pods {
						time.Sleep(2 * time.Second)
						s.set(i, tc.ended)
						time.Sleep(5 * time.Second)
						s.set(i, podUp)
					}
					time.Sleep(2 * time.Second)
				}()
				for n := 0; ; n++ {
					select {
					case <-over:
						asking.Wait()
						g := m.Guard()
						if opened := g.Opened[breaker.OpenedByRefused] + g.Opened[breaker.OpenedByDial]; !tc.opens && opened > 3 {
							t.Errorf("opened %d times", opened)
						}
						return
					default:
					}
					request := peers.Get(fmt.Sprint("/", n))
					if n%2 == 1 {
						request = peers.Post("hello")
					}
					asking.Go(func() {
						c := m.Client()
						c.Send(request).Want(200, "ok")
						c.Close()
					})
					time.Sleep(10 * time.Millisecond)
				}
			})
		})
	}
}

// After half a second of refused connections, an upstream whose responses take 12 s serves twenty
// clients that are queued for a second at most.
func TestTheBreakerClosesBeforeTheFirstResponse(t *testing.T) {
	s := &service{}
	slow := func(c *peers.Conn) {
		for c.Head() != "" {
			time.Sleep(12 * time.Second)
			c.Say(peers.OK200)
		}
	}
	set := s.before(1)
	proxytest.InMemory(t, slow, func(c *proxy.Config) {
		set(c)
		c.Default.QueueTimeout = time.Second
		c.Default.AttemptTimeout, c.Default.RequestTimeout = 0, 0
	}, func(t *testing.T, m *proxytest.Memory) {
		s.set(0, podRefuses)
		var asking sync.WaitGroup
		for range 20 {
			asking.Go(func() { m.Client().Send(peers.Get("/")).Want(200, "ok") })
		}
		time.Sleep(500 * time.Millisecond)
		s.set(0, podUp)
		asking.Wait()
		if g := m.Guard(); g.Opened[breaker.OpenedByRefused] != 1 {
			t.Errorf("%+v", g)
		}
	})
}
