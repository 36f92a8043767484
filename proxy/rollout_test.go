package proxy

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
func (s *service) before(n int) func(c *Config) {
	s.pods, s.random = make([]podState, n), rand.New(rand.NewPCG(1, uint64(n)))
	return func(c *Config) {
		withBreaker(c)
		c.Default.QueueTimeout, c.Default.QueueMax = 10*time.Second, 10_000
		s.dial, c.Default.Upstream.Dial = c.Default.Upstream.Dial, s.Dial
	}
}

// answersOnce answers one request on each connection, after 10 ms.
func answersOnce(c *upConn) {
	headers := c.head()
	if headers == "" {
		return
	}
	discardBody(c, headers)
	time.Sleep(10 * time.Millisecond)
	c.say("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
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
			inMemory(t, answersOnce, s.before(tc.pods), func(t *testing.T, m *memory) {
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
						g := m.guard()
						if opened := g.Opened[breaker.OpenedByRefused] + g.Opened[breaker.OpenedByDial]; !tc.opens && opened > 3 {
							t.Errorf("opened %d times", opened)
						}
						return
					default:
					}
					request := get(fmt.Sprint("/", n))
					if n%2 == 1 {
						request = post("hello")
					}
					asking.Go(func() {
						c := m.client()
						c.send(request).want(200, "ok")
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
	slow := func(c *upConn) {
		for c.head() != "" {
			time.Sleep(12 * time.Second)
			c.say(ok200)
		}
	}
	set := s.before(1)
	inMemory(t, slow, func(c *Config) {
		set(c)
		c.Default.QueueTimeout = time.Second
		c.Default.AttemptTimeout, c.Default.RequestTimeout = 0, 0
	}, func(t *testing.T, m *memory) {
		s.set(0, podRefuses)
		var asking sync.WaitGroup
		for range 20 {
			asking.Go(func() { m.client().send(get("/")).want(200, "ok") })
		}
		time.Sleep(500 * time.Millisecond)
		s.set(0, podUp)
		asking.Wait()
		if g := m.guard(); g.Opened[breaker.OpenedByRefused] != 1 {
			t.Errorf("%+v", g)
		}
	})
}
