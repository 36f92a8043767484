package retry

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/hedge"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// slowAttempts is a route without an attempt timeout, as by default.
func slowAttempts(c *proxy.Config) {
	c.Default.HedgeAfter, c.Default.AttemptTimeout, c.Default.RequestTimeout = hedge.SlowAttempt(), 0, 30*time.Second
}

func TestASlowResponseOfTheOnlyEndpointIsWaitedFor(t *testing.T) {
	proxytest.InMemory(t, peers.RespondsAfter(15*time.Second, peers.Response(200, "slow")), slowAttempts, func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		m.Client().Send(peers.Get("/")).Want(200, "slow")
		if d := time.Since(began); d != 15*time.Second || m.Up.Sends() != 1 {
			t.Errorf("answered after %v and %d sends, want 15s and one", d, m.Up.Sends())
		}
	})
}

// A hard attempt timeout ends the last attempt too, and the client's connection goes on.
func TestAHardAttemptTimeoutEndsTheLastAttempt(t *testing.T) {
	for name, tc := range map[string]struct {
		hard    bool
		request string
		status  int
		sends   int
	}{
		"not hard":              {false, peers.Post("x"), 200, 1},
		"it may not run twice":  {true, peers.Post("x"), 504, 1},
		"no retry is left":      {true, peers.Get("/"), 504, 3},
		"a body of some length": {true, "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 504, 3},
	} {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemory(t, peers.RespondsAfter(3*time.Second, peers.Response(200, "late")), func(c *proxy.Config) {
				c.Default.AttemptTimeout, c.Default.AttemptTimeoutHard, c.Default.RequestTimeout = time.Second, tc.hard, 30*time.Second
				c.Default.Policy.MaxRetries = 2
			}, func(t *testing.T, m *proxytest.Memory) {
				c := m.Client()
				for range 2 {
					before := m.Up.Sends()
					c.Send(tc.request)
					if r, _, err := c.Response("GET"); err != nil || r.StatusCode != tc.status || r.Close {
						t.Fatalf("%+v, %v", r, err)
					}
					if n := m.Up.Sends() - before; n != tc.sends {
						t.Errorf("%d sends, want %d", n, tc.sends)
					}
					synctest.Wait()
					if g := m.Guard(); g.InFlight-g.Abandoned != 0 {
						t.Errorf("%d permits taken", g.InFlight-g.Abandoned)
					}
				}
			})
		})
	}
}

func TestASlowAttemptGetsAnotherEndpointBesideIt(t *testing.T) {
	for _, tc := range []struct {
		name          string
		request       string
		first, second func(c *peers.Conn)
		body          string
		after         time.Duration
		sends, failed int
	}{
		{"the first is silent", peers.Get("/"), peers.NeverResponds, peers.RespondsAfter(time.Second, peers.Response(200, "second")), "second", 11 * time.Second, 2, 1},
		{"the first is slow", peers.Get("/"), peers.RespondsAfter(15*time.Second, peers.Response(200, "first")), peers.RespondsAfter(15*time.Second, peers.Response(200, "second")), "first", 15 * time.Second, 2, 0},
		{"the first is not slow", peers.Get("/"), peers.RespondsAfter(9*time.Second, peers.Response(200, "first")), peers.NeverResponds, "first", 9 * time.Second, 1, 0},
		{"it may not run twice", peers.Post("x"), peers.RespondsAfter(15*time.Second, peers.Response(200, "first")), peers.NeverResponds, "first", 15 * time.Second, 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			proxytest.InMemory(t, peers.ByConn(tc.first, tc.second), func(c *proxy.Config) {
				slowAttempts(c)
				peers.ResolveTo(c, "192.0.2.1", "192.0.2.2")
			}, func(t *testing.T, m *proxytest.Memory) {
				began := time.Now()
				m.Client().Send(tc.request).Want(200, tc.body)
				if d := time.Since(began); d != tc.after || m.Up.Sends() != tc.sends {
					t.Errorf("answered after %v and %d sends, want %v and %d", d, m.Up.Sends(), tc.after, tc.sends)
				}
				synctest.Wait()
				failed := 0
				for _, a := range m.Addresses().Each {
					failed += int(a.Failures)
				}
				if failed != tc.failed {
					t.Errorf("%d failures of addresses, want %d", failed, tc.failed)
				}
			})
		})
	}
}

// Two addresses without any response get no more attempts than the budget allows.
func TestASlowAttemptGetsNoOtherOneBeyondTheBudget(t *testing.T) {
	proxytest.InMemory(t, peers.RespondsAfter(15*time.Second, peers.Response(200, "slow")), func(c *proxy.Config) {
		slowAttempts(c)
		peers.ResolveTo(c, "192.0.2.1", "192.0.2.2")
		c.Default.NoBudget, c.Default.Budget = false, budget.Config{Ratio: 0.001, MinPerSecond: 0.0001, Burst: 1}
	}, func(t *testing.T, m *proxytest.Memory) {
		for range 3 {
			m.Client().Send(peers.Get("/")).Want(200, "slow")
		}
		if m.Up.Sends() != 4 {
			t.Errorf("%d sends of 3 requests, want one more", m.Up.Sends())
		}
	})
}
