package ratelimit

import (
	"slices"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// leasedRateLimit is rationed in a fleet; wanted is told of every wish for slots.
func leasedRateLimit(rate string, wait time.Duration, wanted func()) func(c *proxy.Config) {
	return func(c *proxy.Config) {
		peers.Rationed(rate, wait)(c)
		c.RateLimitWanted = wanted
	}
}

func TestARateLimitSpacesRequestsEvenly(t *testing.T) {
	up := &peers.Timed{}
	proxytest.InMemory(t, up.Handle, peers.Rationed("10/s", 30*time.Second), func(t *testing.T, m *proxytest.Memory) {
		var ends []func() bool
		for range 20 {
			c := m.Client().Send(peers.Get("/")).Later()
			ends = append(ends, func() bool { res, _ := c(); return res.StatusCode == 200 })
		}
		time.Sleep(50 * time.Millisecond)
		if q := m.Stats().RateLimits; len(q) != 1 || q[0].Waiting != 19 || q[0].Longest != 50*time.Millisecond {
			t.Errorf("%+v, want 19 that wait for 50ms", q)
		}
		for _, ok := range ends {
			if !ok() {
				t.Error("not answered 200")
			}
		}
		gap := ratelimit.Rate{Count: 10, Per: time.Second}.Gap()
		for i := 1; i < len(up.At); i++ {
			if d := up.At[i].Sub(up.At[i-1]); d < gap-50*time.Millisecond || d > gap+time.Millisecond {
				t.Errorf("%v between two requests, want %v", d, gap)
			}
		}
		if len(up.At) != 20 || len(m.Seen.Held) != 19 {
			t.Errorf("%d sent, %d waited", len(up.At), len(m.Seen.Held))
		}
		if q := m.Stats().RateLimits; len(q) != 1 || q[0].State.Own != 20 || q[0].Waiting != 0 {
			t.Errorf("%+v", q)
		}
	})
}

// A request that would have to wait longer than allowed is rejected at once and not sent.
func TestARequestBeyondTheRateLimitGets429(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(c *proxy.Config)
		fields []string
		sent   int // of five at once
		after  string
	}{
		"longer than the wait": {change: peers.Rationed("1/s", 2*time.Second), sent: 2, after: "3"},
		"no wait":              {change: peers.Rationed("1/m", 0), sent: 1, after: "61"},
		"longer than the request": {change: func(c *proxy.Config) {
			peers.Rationed("1/s", time.Minute)(c)
			c.Default.RequestTimeout = 3 * time.Second
		}, sent: 3, after: "4"},
		"longer than for the hold": {change: func(c *proxy.Config) { peers.Rationed("1/s", time.Minute)(c); c.Default.QueueMax = 2 }, sent: 3, after: "4"},
	} {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemory(t, peers.Script(peers.OK200), tc.change, func(t *testing.T, m *proxytest.Memory) {
				began := time.Now()
				var all []func() (int, string)
				for range 5 {
					end := m.Client().Send(peers.Get("/")).Later()
					all = append(all, func() (int, string) {
						res, at := end()
						if res.StatusCode == 429 && at != began {
							t.Errorf("429 after %v", at.Sub(began))
						}
						if res.StatusCode == 429 && res.Header.Get("X-Retryproxy-Reason") != "rate_limited" {
							t.Errorf("%v", res.Header)
						}
						return res.StatusCode, res.Header.Get("Retry-After")
					})
					time.Sleep(0)
				}
				sent := 0
				for _, end := range all {
					switch code, after := end(); {
					case code == 200:
						sent++
					case code != 429 || after != tc.after:
						t.Errorf("%d, Retry-After %s, want 429 and %s", code, after, tc.after)
					}
				}
				if sent != tc.sent || m.Up.Sends() != sent {
					t.Errorf("%d answered 200 and %d sent, want %d", sent, m.Up.Sends(), tc.sent)
				}
				m.Seen.Outcome(t, 4)
				n := 0
				for _, o := range m.Seen.Outcomes {
					if o == policy.OutcomeRateLimited {
						n++
					}
				}
				if n != 5-tc.sent {
					t.Errorf("outcomes %v", m.Seen.Outcomes)
				}
			})
		})
	}
}

// A retry needs a slot like any attempt. If it gets none, the client gets the upstream's response.
func TestRetriesCountAgainstTheRateLimit(t *testing.T) {
	up := &peers.Timed{First: []string{peers.RawResponse(503), peers.RawResponse(503), peers.RawResponse(503)}}
	proxytest.InMemory(t, up.Handle, peers.Rationed("1/s", 10*time.Second), func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		for i := 1; i < len(up.At); i++ {
			if d := up.At[i].Sub(up.At[i-1]); d < 900*time.Millisecond {
				t.Errorf("attempts %v apart", d)
			}
		}
	})
	proxytest.InMemory(t, peers.Script(peers.Bad503), peers.Rationed("1/m", time.Second), func(t *testing.T, m *proxytest.Memory) {
		res := m.Client().Send(peers.Get("/")).Want(503, "busy")
		if res.Header.Get("X-Retryproxy-Reason") != "rate_limited" {
			t.Errorf("%v", res.Header)
		}
		m.Seen.Outcome(t, 0)
		if !slices.Equal(m.Seen.Outcomes, []policy.Outcome{policy.GaveUp(policy.ReasonRateLimited)}) || m.Up.Sends() != 1 || len(m.Seen.Retries) != 0 {
			t.Errorf("%v, %d sends, %d retries", m.Seen.Outcomes, m.Up.Sends(), len(m.Seen.Retries))
		}
	})
}

// A client that leaves during its wait uses no slot.
func TestAClientThatLeavesTheRateLimitQueue(t *testing.T) {
	up := &peers.Timed{}
	proxytest.InMemory(t, up.Handle, peers.Rationed("1/s", 10*time.Second), func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		leaver := m.Client().Send(peers.Get("/"))
		time.Sleep(100 * time.Millisecond)
		stays := m.Client().Send(peers.Get("/")).Later()
		time.Sleep(100 * time.Millisecond)
		leaver.Close()
		if res, at := stays(); res.StatusCode != 200 || at.Sub(began) > 1100*time.Millisecond {
			t.Errorf("%d after %v", res.StatusCode, at.Sub(began))
		}
		m.Seen.Outcome(t, 2)
		if !slices.Contains(m.Seen.Outcomes, policy.OutcomeClientGone) || len(up.At) != 2 {
			t.Errorf("%v, %d sent", m.Seen.Outcomes, len(up.At))
		}
	})
}

// A slot taken for a request that the breaker then rejects goes to another request.
func TestASlotThatWasNotUsedIsGivenBack(t *testing.T) {
	permit := peers.ReservePort(t)
	p := proxytest.StartTo(t, "http://"+permit.Addr, func(c *proxy.Config) {
		peers.WithBreaker(c)
		c.Default.FailFast, c.Default.Policy.MaxRetries = true, 0
		free := c.Default
		free.Name, free.Match.Path = "free", "/free"
		c.Routes = []proxy.Route{free}
		peers.Rationed("1/m", 0)(c)
	})
	p.Dial().Send(peers.Get("/free")) // opens the breaker
	peers.Soon(t, "breaker opened", func() bool { return p.Guard().Breaker != breaker.Closed })
	before := p.Stats().RateLimits[0].State.Own
	for range 30 {
		if res, _, err := p.Dial().Send(peers.Get("/")).Response("GET"); err != nil || res.StatusCode == 429 {
			t.Fatalf("no slot left, though none was used: %v %v", res, err)
		}
	}
	if used := p.Stats().RateLimits[0].State.Own - before; used < 30 {
		t.Errorf("%d slots taken", used)
	}
}

// Routes to one upstream with one rate limit share it; others do not.
func TestRoutesThatShareARateLimit(t *testing.T) {
	proxytest.InMemory(t, peers.Script(peers.OK200), func(c *proxy.Config) {
		peers.Rationed("1/m", 0)(c)
		same, other, none := c.Default, c.Default, c.Default
		same.Name, same.Match.Path = "same", "/same"
		other.Name, other.Match.Path = "other", "/other"
		other.RateLimit.Rate.Count = 2
		none.Name, none.Match.Path, none.RateLimit = "none", "/none", admission.RateLimit{}
		c.Routes = []proxy.Route{same, other, none}
	}, func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		m.Client().Send(peers.Get("/same")).Want(429, "*")
		m.Client().Send(peers.Get("/other")).Want(200, "ok")
		m.Client().Send(peers.Get("/none")).Want(200, "ok")
		if err := m.Reload(m.Config); err != nil {
			t.Fatal(err)
		}
		m.Client().Send(peers.Get("/")).Want(429, "*") // a reload makes no slots
	})
}

// In a fleet a request waits for its lease and not for its share.
func TestASlotIsLeased(t *testing.T) {
	wishes := 0
	proxytest.InMemory(t, peers.Script(peers.OK200), leasedRateLimit("1/m", 0, func() { wishes++ }), func(t *testing.T, m *proxytest.Memory) {
		m.ShareRateLimits(10)
		ended := m.Client().Send(peers.Get("/")).Later()
		time.Sleep(10 * time.Millisecond)
		asks, _ := m.RateLimitLeaseRequests(nil)
		if wishes == 0 || len(asks) != 1 || asks[0].Want != 1 || m.Up.Sends() != 0 {
			t.Fatalf("%d wishes, %+v, %d sent", wishes, asks, m.Up.Sends())
		}
		began := time.Now()
		m.ApplyRateLimitLease(asks[0].Key, ratelimit.LeaseGrant{Slots: 1, Ahead: 30 * time.Millisecond})
		if res, at := ended(); res.StatusCode != 200 || at.Sub(began) != 30*time.Millisecond {
			t.Errorf("%d, %v after the grant", res.StatusCode, at.Sub(began))
		}
		m.Client().Send(peers.Get("/")).Want(429, "*") // nothing was left, and nobody answers
		if s := m.Stats().RateLimits[0].State; s.Leased != 1 || s.Own != 0 {
			t.Errorf("%+v", s)
		}
		m.ApplyRateLimitLease(12345, ratelimit.LeaseGrant{Slots: 1}) // of a rate limit that is gone
		m.FailRateLimitLease(12345)
	})
}

// An engine that does not respond delays nothing: each process uses its share.
func TestAShareIsUsedWithoutAnEngine(t *testing.T) {
	up := &peers.Timed{}
	proxytest.InMemory(t, up.Handle, leasedRateLimit("100/s", time.Second, func() {}), func(t *testing.T, m *proxytest.Memory) {
		m.ShareRateLimits(10)
		asks, _ := m.RateLimitLeaseRequests(nil)
		began := time.Now()
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		if d := time.Since(began); len(asks) != 0 || d > 250*time.Millisecond { // 100 ms for the response, and a share's turn within 102
			t.Errorf("answered after %v; asked %+v before", d, asks)
		}
		asks, _ = m.RateLimitLeaseRequests(nil)
		m.FailRateLimitLease(asks[0].Key)
		began = time.Now()
		for range 20 {
			m.Client().Send(peers.Get("/")).Want(200, "ok")
		}
		if d := time.Since(began); d < 1800*time.Millisecond || d > 2200*time.Millisecond {
			t.Errorf("20 at a tenth of 100/s took %v", d)
		}
	})
}
