package proxy

import (
	"slices"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy/admission"
)

// rationed gives the default route a rate limit.
func rationed(rate string, wait time.Duration) func(c *Config) {
	return func(c *Config) {
		r, err := ratelimit.ParseRate(rate)
		if err != nil {
			panic(err)
		}
		c.Default.RateLimit = admission.RateLimit{Rate: r, Wait: wait}
	}
}

// leasedRateLimit is rationed in a fleet; wanted is told of every wish for slots.
func leasedRateLimit(rate string, wait time.Duration, wanted func()) func(c *Config) {
	return func(c *Config) {
		rationed(rate, wait)(c)
		c.RateLimitWanted = wanted
	}
}

func TestARateLimitSpacesRequestsEvenly(t *testing.T) {
	up := &timed{}
	inMemory(t, up.handle, rationed("10/s", 30*time.Second), func(t *testing.T, m *memory) {
		var ends []func() bool
		for range 20 {
			c := m.client().send(get("/")).later()
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
		for i := 1; i < len(up.at); i++ {
			if d := up.at[i].Sub(up.at[i-1]); d < gap-50*time.Millisecond || d > gap+time.Millisecond {
				t.Errorf("%v between two requests, want %v", d, gap)
			}
		}
		if len(up.at) != 20 || len(m.seen.held) != 19 {
			t.Errorf("%d sent, %d waited", len(up.at), len(m.seen.held))
		}
		if q := m.Stats().RateLimits; len(q) != 1 || q[0].State.Own != 20 || q[0].Waiting != 0 {
			t.Errorf("%+v", q)
		}
	})
}

// A request that would have to wait longer than allowed is rejected at once and not sent.
func TestARequestBeyondTheRateLimitGets429(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(c *Config)
		fields []string
		sent   int // of five at once
		after  string
	}{
		"longer than the wait":     {change: rationed("1/s", 2*time.Second), sent: 2, after: "3"},
		"no wait":                  {change: rationed("1/m", 0), sent: 1, after: "61"},
		"longer than the request":  {change: func(c *Config) { rationed("1/s", time.Minute)(c); c.Default.RequestTimeout = 3 * time.Second }, sent: 3, after: "4"},
		"longer than for the hold": {change: func(c *Config) { rationed("1/s", time.Minute)(c); c.Default.QueueMax = 2 }, sent: 3, after: "4"},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, script(ok200), tc.change, func(t *testing.T, m *memory) {
				began := time.Now()
				var all []func() (int, string)
				for range 5 {
					end := m.client().send(get("/")).later()
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
				if sent != tc.sent || m.up.sends() != sent {
					t.Errorf("%d answered 200 and %d sent, want %d", sent, m.up.sends(), tc.sent)
				}
				m.seen.outcome(t, 4)
				n := 0
				for _, o := range m.seen.outcomes {
					if o == policy.OutcomeRateLimited {
						n++
					}
				}
				if n != 5-tc.sent {
					t.Errorf("outcomes %v", m.seen.outcomes)
				}
			})
		})
	}
}

// A retry needs a slot like any attempt. If it gets none, the client gets the upstream's response.
func TestRetriesCountAgainstTheRateLimit(t *testing.T) {
	up := &timed{first: []string{rawResponse(503), rawResponse(503), rawResponse(503)}}
	inMemory(t, up.handle, rationed("1/s", 10*time.Second), func(t *testing.T, m *memory) {
		m.client().send(get("/")).want(200, "ok")
		for i := 1; i < len(up.at); i++ {
			if d := up.at[i].Sub(up.at[i-1]); d < 900*time.Millisecond {
				t.Errorf("attempts %v apart", d)
			}
		}
	})
	inMemory(t, script(bad503), rationed("1/m", time.Second), func(t *testing.T, m *memory) {
		res := m.client().send(get("/")).want(503, "busy")
		if res.Header.Get("X-Retryproxy-Reason") != "rate_limited" {
			t.Errorf("%v", res.Header)
		}
		m.seen.outcome(t, 0)
		if !slices.Equal(m.seen.outcomes, []policy.Outcome{policy.GaveUp(policy.ReasonRateLimited)}) || m.up.sends() != 1 || len(m.seen.retries) != 0 {
			t.Errorf("%v, %d sends, %d retries", m.seen.outcomes, m.up.sends(), len(m.seen.retries))
		}
	})
}

// A client that leaves during its wait uses no slot.
func TestAClientThatLeavesTheRateLimitQueue(t *testing.T) {
	up := &timed{}
	inMemory(t, up.handle, rationed("1/s", 10*time.Second), func(t *testing.T, m *memory) {
		began := time.Now()
		m.client().send(get("/")).want(200, "ok")
		leaver := m.client().send(get("/"))
		time.Sleep(100 * time.Millisecond)
		stays := m.client().send(get("/")).later()
		time.Sleep(100 * time.Millisecond)
		leaver.Close()
		if res, at := stays(); res.StatusCode != 200 || at.Sub(began) > 1100*time.Millisecond {
			t.Errorf("%d after %v", res.StatusCode, at.Sub(began))
		}
		m.seen.outcome(t, 2)
		if !slices.Contains(m.seen.outcomes, policy.OutcomeClientGone) || len(up.at) != 2 {
			t.Errorf("%v, %d sent", m.seen.outcomes, len(up.at))
		}
	})
}

// A slot taken for a request that the breaker then rejects goes to another request.
func TestASlotThatWasNotUsedIsGivenBack(t *testing.T) {
	permit := reservePort(t)
	p := startProxyTo(t, "http://"+permit.addr, func(c *Config) {
		withBreaker(c)
		c.Default.FailFast, c.Default.Policy.MaxRetries = true, 0
		free := c.Default
		free.Name, free.Match.Path = "free", "/free"
		c.Routes = []Route{free}
		rationed("1/m", 0)(c)
	})
	p.dial().send(get("/free")) // opens the breaker
	soon(t, "breaker opened", func() bool { return p.guard().Breaker != breaker.Closed })
	before := p.Stats().RateLimits[0].State.Own
	for range 30 {
		if res, _, err := p.dial().send(get("/")).response("GET"); err != nil || res.StatusCode == 429 {
			t.Fatalf("no slot left, though none was used: %v %v", res, err)
		}
	}
	if used := p.Stats().RateLimits[0].State.Own - before; used < 30 {
		t.Errorf("%d slots taken", used)
	}
}

// Routes to one upstream with one rate limit share it; others do not.
func TestRoutesThatShareARateLimit(t *testing.T) {
	inMemory(t, script(ok200), func(c *Config) {
		rationed("1/m", 0)(c)
		same, other, none := c.Default, c.Default, c.Default
		same.Name, same.Match.Path = "same", "/same"
		other.Name, other.Match.Path = "other", "/other"
		other.RateLimit.Rate.Count = 2
		none.Name, none.Match.Path, none.RateLimit = "none", "/none", admission.RateLimit{}
		c.Routes = []Route{same, other, none}
	}, func(t *testing.T, m *memory) {
		m.client().send(get("/")).want(200, "ok")
		m.client().send(get("/same")).want(429, "*")
		m.client().send(get("/other")).want(200, "ok")
		m.client().send(get("/none")).want(200, "ok")
		if err := m.Reload(m.config); err != nil {
			t.Fatal(err)
		}
		m.client().send(get("/")).want(429, "*") // a reload makes no slots
	})
}

// In a fleet a request waits for its lease and not for its share.
func TestASlotIsLeased(t *testing.T) {
	wishes := 0
	inMemory(t, script(ok200), leasedRateLimit("1/m", 0, func() { wishes++ }), func(t *testing.T, m *memory) {
		m.ShareRateLimits(10)
		ended := m.client().send(get("/")).later()
		time.Sleep(10 * time.Millisecond)
		asks, _ := m.RateLimitLeaseRequests(nil)
		if wishes == 0 || len(asks) != 1 || asks[0].Want != 1 || m.up.sends() != 0 {
			t.Fatalf("%d wishes, %+v, %d sent", wishes, asks, m.up.sends())
		}
		began := time.Now()
		m.ApplyRateLimitLease(asks[0].Key, ratelimit.LeaseGrant{Slots: 1, Ahead: 30 * time.Millisecond})
		if res, at := ended(); res.StatusCode != 200 || at.Sub(began) != 30*time.Millisecond {
			t.Errorf("%d, %v after the grant", res.StatusCode, at.Sub(began))
		}
		m.client().send(get("/")).want(429, "*") // nothing was left, and nobody answers
		if s := m.Stats().RateLimits[0].State; s.Leased != 1 || s.Own != 0 {
			t.Errorf("%+v", s)
		}
		m.ApplyRateLimitLease(12345, ratelimit.LeaseGrant{Slots: 1}) // of a rate limit that is gone
		m.FailRateLimitLease(12345)
	})
}

// An engine that does not respond delays nothing: each process uses its share.
func TestAShareIsUsedWithoutAnEngine(t *testing.T) {
	up := &timed{}
	inMemory(t, up.handle, leasedRateLimit("100/s", time.Second, func() {}), func(t *testing.T, m *memory) {
		m.ShareRateLimits(10)
		asks, _ := m.RateLimitLeaseRequests(nil)
		began := time.Now()
		m.client().send(get("/")).want(200, "ok")
		if d := time.Since(began); len(asks) != 0 || d > 250*time.Millisecond { // 100 ms for the response, and a share's turn within 102
			t.Errorf("answered after %v; asked %+v before", d, asks)
		}
		asks, _ = m.RateLimitLeaseRequests(nil)
		m.FailRateLimitLease(asks[0].Key)
		began = time.Now()
		for range 20 {
			m.client().send(get("/")).want(200, "ok")
		}
		if d := time.Since(began); d < 1800*time.Millisecond || d > 2200*time.Millisecond {
			t.Errorf("20 at a tenth of 100/s took %v", d)
		}
	})
}
