package proxy

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// fallbackServer is a fallback upstream in memory.
type fallbackServer struct {
	*fakeUpstream
	bodies []string
	mu     sync.Mutex
}

// inMemoryWithFallback is inMemory with a fallback upstream.
func inMemoryWithFallback(t *testing.T, handle, spare func(c *upConn), change func(c *Config), test func(t *testing.T, m *memory, s *fallbackServer)) {
	t.Helper()
	s := &fallbackServer{}
	inMemory(t, handle, func(c *Config) {
		s.fakeUpstream = inMemoryUpstream()
		c.Default.Policy.MaxRetries = 0
		c.Default.Fallbacks = []Fallback{s.fallback(t, "spare.test", spare)}
		if change != nil {
			change(c)
		}
	}, func(t *testing.T, m *memory) {
		test(t, m, s)
		m.stop()
		synctest.Wait()
		s.closeConns()
	})
}

// fallback is a fallback upstream of that name, whose requests s counts.
func (s *fallbackServer) fallback(t *testing.T, name string, handle func(c *upConn)) Fallback {
	return Fallback{
		Forward: forward.Settings{Host: forward.HostRule{Mode: forward.HostUpstream}, UpstreamHost: name},
		Upstream: upstream.Target{Network: "tcp", Address: name + ":80", Host: name, Resolve: resolveTest,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				s.serve(t, theirs, handle)
				return ours, nil
			}},
	}
}

// keepingBodies answers 200 and remembers the bodies that came.
func (s *fallbackServer) keepingBodies(c *upConn) {
	for headers := c.head(); headers != ""; headers = c.head() {
		body := discardBody(c, headers)
		s.mu.Lock()
		s.bodies = append(s.bodies, string(body))
		s.mu.Unlock()
		c.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nspare")
	}
}

const fallbackOK = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nspare"

// chunked is a POST whose body comes in pieces of unknown length.
const chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"

func TestTheFallbackUpstreamServesWhatFailed(t *testing.T) {
	refused := "refused"
	for _, tc := range []struct {
		name, request, first string
		reason               string
		change               func(c *Config)
		asked                bool
	}{
		{name: "a failing response", request: get("/"), first: bad503, reason: "retries_off", asked: true},
		{name: "after retries", request: get("/"), first: bad503, reason: "retries_exhausted", asked: true,
			change: func(c *Config) { c.Default.Policy.MaxRetries = 2 }},
		{name: "no response", request: get("/"), first: "", reason: "retries_off", asked: true},
		{name: "never sent, unsafe", request: post("abc"), first: refused, reason: "retries_off", asked: true},
		{name: "never sent, unsafe, chunked", request: chunked, first: refused, reason: "retries_off", asked: true},
		{name: "sent, unsafe", request: post("abc"), first: bad503},
		{name: "sent, unsafe, reset", request: post("abc"), first: ""},
		{name: "sent, with a key", request: strings.Replace(post("abc"), "\r\n\r\n", "\r\nIdempotency-Key: 1\r\n\r\n", 1), first: bad503, reason: "retries_off", asked: true},
		{name: "sent, chunked, may run twice", request: chunked, first: bad503, reason: "retries_off", asked: true,
			change: func(c *Config) { c.Default.Policy.Unsafe = true }},
		{name: "body too large to keep", request: post(strings.Repeat("x", 300)), first: refused,
			change: func(c *Config) { c.Default.RetryBufferBytes = 100 }},
		{name: "answer too large to hold", request: get("/"), first: "HTTP/1.1 503 X\r\nContent-Length: 100\r\n\r\n" + strings.Repeat("y", 100),
			change: func(c *Config) { c.Default.ResponseBufferBytes = 99 }},
		{name: "a response that is no failure", request: get("/"), first: "HTTP/1.1 404 X\r\nContent-Length: 4\r\n\r\nnone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inMemoryWithFallback(t, script(tc.first), script(fallbackOK), func(c *Config) {
				if tc.first == refused {
					c.Default.Upstream.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrClosedPipe }
				}
				if tc.change != nil {
					tc.change(c)
				}
			}, func(t *testing.T, m *memory, s *fallbackServer) {
				res, body, err := m.client().send(tc.request).response("GET")
				if err != nil {
					t.Fatal(err)
				}
				if s.sends() > 1 || (s.sends() == 1) != tc.asked || (body == "spare") != tc.asked {
					t.Fatalf("%d %q, %d sends to the fallback", res.StatusCode, body, s.sends())
				}
				o := m.seen.outcome(t, 0)
				h := res.Header
				if !tc.asked {
					if o == policy.OutcomeFallback || h.Get("X-Retryproxy-Fallback") != "" {
						t.Errorf("outcome %v, %v", o, h)
					}
					return
				}
				if o != policy.OutcomeFallback || h.Get("X-Retryproxy-Fallback") != "upstream" || h.Get("X-Retryproxy-Reason") != tc.reason {
					t.Errorf("outcome %v, %v", o, h)
				}
				if headers := s.head(0); !strings.Contains(headers, "\r\nHost: spare.test\r\n") {
					t.Errorf("head %q", headers)
				}
			})
		})
	}
}

func TestTheFallbackUpstreamGetsTheWholeBody(t *testing.T) {
	for name, request := range map[string]string{"length": post("abc"), "chunked": chunked} {
		t.Run(name, func(t *testing.T) {
			var s *fallbackServer
			inMemoryWithFallback(t, script(bad503), func(c *upConn) { s.keepingBodies(c) }, func(c *Config) { c.Default.Policy.Unsafe = true }, func(t *testing.T, m *memory, spare *fallbackServer) {
				s = spare
				m.client().send(request).want(200, "spare")
				if !slices.Equal(s.bodies, []string{"abc"}) {
					t.Errorf("bodies %q", s.bodies)
				}
			})
		})
	}
}

// If the fallback has nothing better, the client gets the upstream's last response, and the
// fallback gets only one attempt.
func TestAFailingFallbackLeavesTheLastRealResponse(t *testing.T) {
	for name, spare := range map[string]string{"503": bad429, "reset": "", "nonsense": "no HTTP\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			inMemoryWithFallback(t, script(bad503), script(spare), nil, func(t *testing.T, m *memory, s *fallbackServer) {
				c := m.client()
				for i := range 2 { // the connection can go on
					res := c.send(get("/")).want(503, "busy")
					if h := res.Header; h.Get("X-Retryproxy-Fallback") != "" || h.Get("X-Retryproxy-Reason") != "retries_off" || h.Get("X-Retryproxy-Attempts") != "1" {
						t.Errorf("%v", h)
					}
					if o := m.seen.outcome(t, i); o != policy.GaveUp(policy.ReasonRetriesOff) {
						t.Errorf("outcome %v", o)
					}
				}
				if s.sends() != 2 || m.seen.fallbackFailures != 2 || len(m.seen.retries) != 0 || len(m.seen.classes) != 2 {
					t.Errorf("%d sends, %d failures, %d retries, %d attempts counted", s.sends(), m.seen.fallbackFailures, len(m.seen.retries), len(m.seen.classes))
				}
			})
		})
	}
}

func TestAnUpstreamThatNeverRespondsLeavesTimeForItsFallback(t *testing.T) {
	inMemoryWithFallback(t, slow(time.Hour, ok200), slow(2*time.Second, fallbackOK), nil, func(t *testing.T, m *memory, s *fallbackServer) {
		began := time.Now()
		m.client().send(get("/")).want(200, "spare")
		if d := time.Since(began); d != 29*time.Second {
			t.Errorf("answered after %v, want 2 s after nine tenths of 30 s", d)
		}
		time.Sleep(2 * time.Hour)
	})
}

func TestAFallbackThatNeverRespondsEndsWithTheRequest(t *testing.T) {
	inMemoryWithFallback(t, slow(time.Hour, ok200), slow(time.Hour, fallbackOK), nil, func(t *testing.T, m *memory, s *fallbackServer) {
		began := time.Now()
		m.client().send(get("/")).want(504, "*")
		if d := time.Since(began); d != 30*time.Second {
			t.Errorf("answered after %v", d)
		}
		time.Sleep(2 * time.Hour)
	})
}

// Fallbacks get the request in turn. If the request may have been processed, the next one gets it
// only if it may run twice.
func TestFallbacksAreTriedInTurn(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"
	for name, tc := range map[string]struct {
		request       string
		first, second string // their answers, "" for a reset
		own           bool   // a response of ours is the last
		status        int
		body          string
		sends         int // of both
		failures      int
	}{
		"the first serves":             {request: get("/"), first: fallbackOK, second: bad503, status: 200, body: "spare", sends: 1},
		"the second serves":            {request: get("/"), first: bad503, second: fallbackOK, status: 200, body: "spare", sends: 2, failures: 1},
		"the second, behind a reset":   {request: get("/"), first: "", second: fallbackOK, status: 200, body: "spare", sends: 2, failures: 1},
		"a POST that was rejected":     {request: post, first: bad429, second: fallbackOK, status: 200, body: "spare", sends: 2, failures: 1},
		"a POST that may have worked":  {request: post, first: "", second: fallbackOK, status: 429, body: "slow", sends: 1, failures: 1},
		"none serves":                  {request: get("/"), first: bad503, second: "", status: 429, body: "slow", sends: 2, failures: 2},
		"none serves, ours does":       {request: get("/"), first: bad503, second: "", own: true, status: 203, body: "sorry", sends: 2, failures: 2},
		"ours, for what may have been": {request: post, first: "", second: fallbackOK, own: true, status: 203, body: "sorry", sends: 1, failures: 1},
	} {
		t.Run(name, func(t *testing.T) {
			second := &fallbackServer{fakeUpstream: inMemoryUpstream()}
			inMemoryWithFallback(t, script(bad429), script(tc.first), func(c *Config) {
				c.Default.Fallbacks = append(c.Default.Fallbacks, second.fallback(t, "second.test", script(tc.second)))
				if tc.own {
					c.Default.Fallbacks = append(c.Default.Fallbacks, Fallback{Status: 203, Body: []byte("sorry")})
				}
			}, func(t *testing.T, m *memory, s *fallbackServer) {
				c := m.client()
				for range 2 { // the connection can go on
					c.send(tc.request).want(tc.status, tc.body)
				}
				if n := s.sends() + second.sends(); n != 2*tc.sends || m.seen.fallbackFailures != 2*tc.failures {
					t.Errorf("%d requests at fallbacks, %d failures, want %d and %d", n, m.seen.fallbackFailures, 2*tc.sends, 2*tc.failures)
				}
				m.stop()
				synctest.Wait()
				second.closeConns()
			})
		})
	}
}

// A tenth of the time is reserved for each fallback, also of the client's time.
func TestEachOfTwoFallbacksHasSomeTime(t *testing.T) {
	for name, tc := range map[string]struct {
		request string
		takes   time.Duration // at the second
		want    time.Duration
	}{
		"of the route's time":  {get("/"), 2 * time.Second, 29 * time.Second},
		"of the client's time": {"GET / HTTP/1.1\r\nHost: a\r\nX-Request-Timeout: 10\r\n\r\n", time.Second / 2, 9500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			second := &fallbackServer{fakeUpstream: inMemoryUpstream()}
			inMemoryWithFallback(t, slow(time.Hour, ok200), slow(time.Hour, fallbackOK), func(c *Config) {
				c.Default.Fallbacks = append(c.Default.Fallbacks, second.fallback(t, "second.test", slow(tc.takes, fallbackOK)))
			}, func(t *testing.T, m *memory, s *fallbackServer) {
				began := time.Now()
				m.client().send(tc.request).want(200, "spare")
				if d := time.Since(began); d != tc.want {
					t.Errorf("answered after %v, want %v", d, tc.want)
				}
				m.stop()
				time.Sleep(2 * time.Hour)
				second.closeConns()
			})
		})
	}
}

func TestClientLeavingEndsTheFallback(t *testing.T) {
	inMemoryWithFallback(t, script(bad503), slow(time.Hour, fallbackOK), nil, func(t *testing.T, m *memory, s *fallbackServer) {
		c := m.client().send(get("/"))
		time.Sleep(time.Second)
		c.Close()
		synctest.Wait()
		if !slices.Equal(m.seen.outcomes, []policy.Outcome{policy.OutcomeClientGone}) || s.sends() != 1 {
			t.Errorf("outcomes %v, %d sends", m.seen.outcomes, s.sends())
		}
		abandoned := map[string]int{}
		for _, u := range m.Stats().Upstreams {
			abandoned[u.Name] = u.Guard.Abandoned
			if g := u.Guard; g.InFlight-g.Abandoned != 0 {
				t.Errorf("%s: %d places taken", u.Name, g.InFlight)
			}
		}
		if abandoned["http://spare.test:80"] != 1 { // it works on it still
			t.Errorf("abandoned: %v", abandoned)
		}
		time.Sleep(2 * time.Hour)
	})
}

// staticFallback gives the fallback of our own.
func staticFallback(status int, body string) func(c *Config) {
	return func(c *Config) {
		c.Default.Policy.MaxRetries = 0
		c.Default.Fallbacks = []Fallback{{Status: status, Body: []byte(body)}}
	}
}

func TestAStaticResponseIsAFallbackForAll(t *testing.T) {
	for name, tc := range map[string]struct{ request, first, body, contentType string }{
		"GET":         {get("/"), bad503, "later", "text/plain; charset=utf-8"},
		"POST":        {post("abc"), bad503, "later", "text/plain; charset=utf-8"},
		"reset":       {post("abc"), "", `{"sorry":1}`, "application/json"},
		"endless":     {get("/"), "HTTP/1.1 503 X\r\n\r\nabc", "<p>", "text/html; charset=utf-8"},
		"empty":       {get("/"), bad503, "", "text/plain; charset=utf-8"},
		"large error": {get("/"), "HTTP/1.1 503 X\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("y", 100000), "later", "text/plain; charset=utf-8"},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, startUpstream(t, script(tc.first)), staticFallback(203, tc.body))
			c := p.dial()
			for i := range 2 { // the connection can go on
				res := c.send(tc.request).want(203, tc.body)
				if h := res.Header; h.Get("X-Retryproxy-Fallback") != "answer" || h.Get("X-Retryproxy-Reason") == "" || h.Get("Content-Type") != tc.contentType {
					t.Errorf("%v", h)
				}
				if o := p.seen.outcome(t, i); o != policy.OutcomeFallback {
					t.Errorf("outcome %v", o)
				}
			}
		})
	}
}

func TestAFallbackToHEADHasNoBody(t *testing.T) {
	p := startProxy(t, startUpstream(t, script("HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\n")), staticFallback(503, "later"))
	res, body, err := p.dial().send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").response("HEAD")
	if err != nil || res.StatusCode != 503 || body != "" || res.ContentLength != 5 {
		t.Errorf("%v %q %v", res, body, err)
	}
}

// Whatever keeps a request from being sent counts as a failure too.
func TestAFallbackServesWhatWasNotSent(t *testing.T) {
	t.Run("breaker opened", func(t *testing.T) {
		p := startProxyTo(t, "http://"+reservePort(t).addr, func(c *Config) {
			staticFallback(200, "spare")(c)
			withBreaker(c)
			c.Default.FailFast = true
		})
		c := p.dial()
		c.send(get("/")).want(200, "spare") // opens the breaker
		res := c.send(post("x")).want(200, "spare")
		if got := res.Header.Get("X-Retryproxy-Reason"); got != "fail_fast" {
			t.Errorf("reason %q", got)
		}
	})
	t.Run("breaker opened, upstream", func(t *testing.T) {
		spare := startUpstream(t, script(fallbackOK))
		p := startProxyTo(t, "http://"+reservePort(t).addr, func(c *Config) {
			withBreaker(c)
			c.Default.FailFast = true
			target, _ := upstream.ParseTarget("http://" + spare.Addr().String())
			c.Default.Fallbacks = []Fallback{{Upstream: target}}
		})
		c := p.dial()
		c.send(get("/")).want(200, "spare")
		for range 3 { // bodies that nobody has read yet
			c.send(post("abc")).want(200, "spare")
			c.send(chunked).want(200, "spare")
		}
		if n := len(p.Stats().Upstreams); n != 2 {
			t.Errorf("%d upstreams in the statistics", n)
		}
	})
	t.Run("overloaded", func(t *testing.T) {
		inMemory(t, slow(5*time.Second, ok200), func(c *Config) {
			staticFallback(200, "spare")(c)
			c.Default.Guard = breaker.Options{ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1}
		}, func(t *testing.T, m *memory) {
			first := m.client().send(get("/")).later()
			time.Sleep(time.Second)
			res := m.client().send(get("/")).want(200, "spare")
			if got := res.Header.Get("X-Retryproxy-Reason"); got != "overloaded" {
				t.Errorf("reason %q", got)
			}
			first()
		})
	})
	t.Run("cool-down", func(t *testing.T) {
		routeKey := routePauseKey(t)
		inMemory(t, script(ok200), func(c *Config) { staticFallback(200, "spare")(c); sharedPause("route")(c) }, func(t *testing.T, m *memory) {
			m.ApplyRateLimitPause(routeKey, time.Minute)
			res := m.client().send(get("/")).want(200, "spare")
			if got := res.Header.Get("X-Retryproxy-Reason"); got != "rate_limit_pause" {
				t.Errorf("reason %q", got)
			}
		})
	})
}

func TestNoFallbackForClientErrors(t *testing.T) {
	p := startProxy(t, startUpstream(t, script(ok200)), staticFallback(200, "spare"))
	p.dial().send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").want(400, "*")
	if o := p.seen.outcome(t, 0); o != policy.OutcomeRefused {
		t.Errorf("outcome %v", o)
	}
}

func TestWithoutResponseHeadersAFallbackIsNotReported(t *testing.T) {
	p := startProxy(t, startUpstream(t, script(bad503)), func(c *Config) {
		staticFallback(200, "spare")(c)
		bare(c)
	})
	res := p.dial().send(get("/")).want(200, "spare")
	for name := range res.Header {
		if strings.HasPrefix(name, "X-Retryproxy") {
			t.Errorf("%s: %s", name, res.Header.Get(name))
		}
	}
}
