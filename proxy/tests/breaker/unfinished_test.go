package breaker

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// readsWhole answers each request when it has come whole, after 10 ms.
func readsWhole(c *peers.Conn) {
	for headers := c.Head(); headers != ""; headers = c.Head() {
		if announced := strings.Contains(headers, "Content-Length: 1000\r\n"); announced && len(c.Body(1000)) < 1000 {
			return
		}
		time.Sleep(10 * time.Millisecond)
		c.Say(peers.OK200)
	}
}

const cutUpload = "POST /cutUpload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nbody"

// Ten connections send the beginning of a body and leave, again and again, or send it slowly, as
// honest clients do. The upstream is healthy, so the breaker stays closed, no limit applies, and
// other requests are served.
func TestUnfinishedBodiesAreNoEvidence(t *testing.T) {
	for name, each := range map[string]func(m *proxytest.Memory, i int){
		"left after 1.5 s": func(m *proxytest.Memory, _ int) {
			c := m.Client().Send(cutUpload)
			time.Sleep(1500 * time.Millisecond)
			c.Close()
		},
		"sent slowly": func(m *proxytest.Memory, i int) {
			c := m.Client().Send(cutUpload)
			for range 4 {
				time.Sleep(time.Duration(500+75*i) * time.Millisecond)
				c.Send(strings.Repeat("x", 249))
			}
			c.Want(200, "ok")
			c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemory(t, readsWhole, func(c *proxy.Config) { peers.WithBreaker(c); c.Default.QueueTimeout = 10 * time.Second }, func(t *testing.T, m *proxytest.Memory) {
				ask := func() {
					c := m.Client()
					c.Send(peers.Get("/")).Want(200, "ok")
					c.Close()
				}
				for range 30 {
					ask()
					time.Sleep(2 * time.Second)
				}
				over := time.Now().Add(2 * time.Minute)
				var sending sync.WaitGroup
				for i := range 10 {
					sending.Go(func() {
						time.Sleep(time.Duration(i) * 130 * time.Millisecond)
						for time.Now().Before(over) {
							each(m, i)
						}
					})
				}
				for time.Now().Before(over) {
					began := time.Now()
					ask()
					if took := time.Since(began); took > 20*time.Millisecond {
						t.Errorf("a request beside unfinished ones took %v", took)
					}
					time.Sleep(2 * time.Second)
				}
				sending.Wait()
				g := m.Guard()
				for why, n := range g.Opened {
					if n > 0 {
						t.Errorf("opened %d times by %v", n, breaker.OpenedBy(why))
					}
				}
				if g.LimitBound > 0 || g.MedianLatency > 20*time.Millisecond {
					t.Errorf("a limit bound %d times, %v is taken for usual", g.LimitBound, g.MedianLatency)
				}
			})
		})
	}
}

// While the breaker is half open, a request whose body is not here yet is not the probe: others do
// not wait for it.
func TestAnUnfinishedBodyIsNeverTheProbe(t *testing.T) {
	t.Run("before a probe is due", func(t *testing.T) { unfinishedProbe(t, true) })
	t.Run("when one is due", func(t *testing.T) { unfinishedProbe(t, false) })
}

func unfinishedProbe(t *testing.T, late bool) {
	failing := make(chan bool, 1)
	failing <- true
	handle := func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			if strings.Contains(headers, "Content-Length: 1000\r\n") && len(c.Body(1000)) < 1000 {
				return
			}
			bad := <-failing
			failing <- bad
			if bad {
				c.Say(peers.Bad503)
			} else {
				c.Say(peers.OK200)
			}
		}
	}
	proxytest.InMemory(t, handle, func(c *proxy.Config) { peers.WithBreaker(c); c.Default.Policy.MaxRetries = 0 }, func(t *testing.T, m *proxytest.Memory) {
		for m.Guard().Breaker == breaker.Closed {
			m.Client().Send(peers.Get("/"))
			time.Sleep(10 * time.Millisecond)
		}
		<-failing
		failing <- false
		uploads := func() {
			for range 10 {
				m.Client().Send(cutUpload) // and no more
			}
		}
		uploads()
		if !late {
			time.Sleep(time.Second) // a probe is due, and none of these is one
		}
		began := time.Now()
		c := m.Client().Send(peers.Get("/"))
		uploads()
		c.Want(200, "ok")
		if took := time.Since(began); took > 600*time.Millisecond {
			t.Errorf("served after %v", took)
		}
		if g := m.Guard(); g.Breaker != breaker.SlowStart && g.Breaker != breaker.Closed {
			t.Errorf("the breaker is %v", g.Breaker)
		}
	})
}

// If only uploads arrive, one of them is admitted now and then, and its response closes the
// breaker.
func TestUploadsAloneFindTheUpstreamBack(t *testing.T) {
	var mu sync.Mutex
	bad := true
	handle := func(c *peers.Conn) {
		for c.Head() != "" {
			if len(c.Body(1000)) < 1000 {
				return
			}
			mu.Lock()
			say := peers.OK200
			if bad {
				say = peers.Bad503
			}
			mu.Unlock()
			c.Say("%s", say)
		}
	}
	proxytest.InMemory(t, handle, func(c *proxy.Config) { peers.WithBreaker(c); c.Default.Policy.MaxRetries = 0 }, func(t *testing.T, m *proxytest.Memory) {
		whole := cutUpload + strings.Repeat("x", 996)
		for m.Guard().Breaker == breaker.Closed {
			m.Client().Send(whole)
			time.Sleep(10 * time.Millisecond)
		}
		mu.Lock()
		bad = false
		mu.Unlock()
		var sending sync.WaitGroup
		for range 5 {
			sending.Go(func() {
				c := m.Client().Send(cutUpload)
				time.Sleep(300 * time.Millisecond)
				c.Send(strings.Repeat("x", 996)).Want(200, "ok")
			})
			time.Sleep(20 * time.Millisecond)
		}
		sending.Wait()
	})
}
