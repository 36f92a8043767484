package retry

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// keepingBodies answers 200 and remembers the bodies that came.
func keepingBodies(s *peers.FallbackServer, c *peers.Conn) {
	for headers := c.Head(); headers != ""; headers = c.Head() {
		body := peers.DiscardBody(c, headers)
		s.Mu.Lock()
		s.Bodies = append(s.Bodies, string(body))
		s.Mu.Unlock()
		c.Say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nspare")
	}
}

func TestTheFallbackUpstreamServesWhatFailed(t *testing.T) {
	refused := "refused"
	for _, tc := range []struct {
		name, request, first string
		reason               string
		change               func(c *proxy.Config)
		asked                bool
	}{
		{name: "a failing response", request: peers.Get("/"), first: peers.Bad503, reason: "retries_off", asked: true},
		{name: "after retries", request: peers.Get("/"), first: peers.Bad503, reason: "retries_exhausted", asked: true,
			change: func(c *proxy.Config) { c.Default.Policy.MaxRetries = 2 }},
		{name: "no response", request: peers.Get("/"), first: "", reason: "retries_off", asked: true},
		{name: "never sent, unsafe", request: peers.Post("abc"), first: refused, reason: "retries_off", asked: true},
		{name: "never sent, unsafe, chunked", request: peers.PostChunked, first: refused, reason: "retries_off", asked: true},
		{name: "sent, unsafe", request: peers.Post("abc"), first: peers.Bad503},
		{name: "sent, unsafe, reset", request: peers.Post("abc"), first: ""},
		{name: "sent, with a key", request: strings.Replace(peers.Post("abc"), "\r\n\r\n", "\r\nIdempotency-Key: 1\r\n\r\n", 1), first: peers.Bad503, reason: "retries_off", asked: true},
		{name: "sent, chunked, may run twice", request: peers.PostChunked, first: peers.Bad503, reason: "retries_off", asked: true,
			change: func(c *proxy.Config) { c.Default.Policy.Unsafe = true }},
		{name: "body too large to keep", request: peers.Post(strings.Repeat("x", 300)), first: refused,
			change: func(c *proxy.Config) { c.Default.RetryBufferBytes = 100 }},
		{name: "answer too large to hold", request: peers.Get("/"), first: "HTTP/1.1 503 X\r\nContent-Length: 100\r\n\r\n" + strings.Repeat("y", 100),
			change: func(c *proxy.Config) { c.Default.ResponseBufferBytes = 99 }},
		{name: "a response that is no failure", request: peers.Get("/"), first: "HTTP/1.1 404 X\r\nContent-Length: 4\r\n\r\nnone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			proxytest.InMemoryWithFallback(t, peers.Script(tc.first), peers.Script(peers.FallbackOK), func(c *proxy.Config) {
				if tc.first == refused {
					c.Default.Upstream.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrClosedPipe }
				}
				if tc.change != nil {
					tc.change(c)
				}
			}, func(t *testing.T, m *proxytest.Memory, s *peers.FallbackServer) {
				res, body, err := m.Client().Send(tc.request).Response("GET")
				if err != nil {
					t.Fatal(err)
				}
				if s.Sends() > 1 || (s.Sends() == 1) != tc.asked || (body == "spare") != tc.asked {
					t.Fatalf("%d %q, %d sends to the fallback", res.StatusCode, body, s.Sends())
				}
				o := m.Seen.Outcome(t, 0)
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
				if headers := s.Head(0); !strings.Contains(headers, "\r\nHost: spare.test\r\n") {
					t.Errorf("head %q", headers)
				}
			})
		})
	}
}

func TestTheFallbackUpstreamGetsTheWholeBody(t *testing.T) {
	for name, request := range map[string]string{"length": peers.Post("abc"), "chunked": peers.PostChunked} {
		t.Run(name, func(t *testing.T) {
			var s *peers.FallbackServer
			proxytest.InMemoryWithFallback(t, peers.Script(peers.Bad503), func(c *peers.Conn) { keepingBodies(s, c) }, func(c *proxy.Config) { c.Default.Policy.Unsafe = true }, func(t *testing.T, m *proxytest.Memory, spare *peers.FallbackServer) {
				s = spare
				m.Client().Send(request).Want(200, "spare")
				if !slices.Equal(s.Bodies, []string{"abc"}) {
					t.Errorf("bodies %q", s.Bodies)
				}
			})
		})
	}
}

// If the fallback has nothing better, the client gets the upstream's last response, and the
// fallback gets only one attempt.
func TestAFailingFallbackLeavesTheLastRealResponse(t *testing.T) {
	for name, spare := range map[string]string{"503": peers.Bad429, "reset": "", "nonsense": "no HTTP\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemoryWithFallback(t, peers.Script(peers.Bad503), peers.Script(spare), nil, func(t *testing.T, m *proxytest.Memory, s *peers.FallbackServer) {
				c := m.Client()
				for i := range 2 { // the connection can go on
					res := c.Send(peers.Get("/")).Want(503, "busy")
					if h := res.Header; h.Get("X-Retryproxy-Fallback") != "" || h.Get("X-Retryproxy-Reason") != "retries_off" || h.Get("X-Retryproxy-Attempts") != "1" {
						t.Errorf("%v", h)
					}
					if o := m.Seen.Outcome(t, i); o != policy.GaveUp(policy.ReasonRetriesOff) {
						t.Errorf("outcome %v", o)
					}
				}
				if s.Sends() != 2 || m.Seen.FallbackFailures != 2 || len(m.Seen.Retries) != 0 || len(m.Seen.Classes) != 2 {
					t.Errorf("%d sends, %d failures, %d retries, %d attempts counted", s.Sends(), m.Seen.FallbackFailures, len(m.Seen.Retries), len(m.Seen.Classes))
				}
			})
		})
	}
}

func TestAnUpstreamThatNeverRespondsLeavesTimeForItsFallback(t *testing.T) {
	proxytest.InMemoryWithFallback(t, peers.AnswersAfter(time.Hour, peers.OK200), peers.AnswersAfter(2*time.Second, peers.FallbackOK), nil, func(t *testing.T, m *proxytest.Memory, s *peers.FallbackServer) {
		began := time.Now()
		m.Client().Send(peers.Get("/")).Want(200, "spare")
		if d := time.Since(began); d != 29*time.Second {
			t.Errorf("answered after %v, want 2 s after nine tenths of 30 s", d)
		}
		time.Sleep(2 * time.Hour)
	})
}

func TestAFallbackThatNeverRespondsEndsWithTheRequest(t *testing.T) {
	proxytest.InMemoryWithFallback(t, peers.AnswersAfter(time.Hour, peers.OK200), peers.AnswersAfter(time.Hour, peers.FallbackOK), nil, func(t *testing.T, m *proxytest.Memory, s *peers.FallbackServer) {
		began := time.Now()
		m.Client().Send(peers.Get("/")).Want(504, "*")
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
		"the first serves":             {request: peers.Get("/"), first: peers.FallbackOK, second: peers.Bad503, status: 200, body: "spare", sends: 1},
		"the second serves":            {request: peers.Get("/"), first: peers.Bad503, second: peers.FallbackOK, status: 200, body: "spare", sends: 2, failures: 1},
		"the second, behind a reset":   {request: peers.Get("/"), first: "", second: peers.FallbackOK, status: 200, body: "spare", sends: 2, failures: 1},
		"a POST that was rejected":     {request: post, first: peers.Bad429, second: peers.FallbackOK, status: 200, body: "spare", sends: 2, failures: 1},
		"a POST that may have worked":  {request: post, first: "", second: peers.FallbackOK, status: 429, body: "slow", sends: 1, failures: 1},
		"none serves":                  {request: peers.Get("/"), first: peers.Bad503, second: "", status: 429, body: "slow", sends: 2, failures: 2},
		"none serves, ours does":       {request: peers.Get("/"), first: peers.Bad503, second: "", own: true, status: 203, body: "sorry", sends: 2, failures: 2},
		"ours, for what may have been": {request: post, first: "", second: peers.FallbackOK, own: true, status: 203, body: "sorry", sends: 1, failures: 1},
	} {
		t.Run(name, func(t *testing.T) {
			second := &peers.FallbackServer{Upstream: peers.NewUpstreamInMemory()}
			proxytest.InMemoryWithFallback(t, peers.Script(peers.Bad429), peers.Script(tc.first), func(c *proxy.Config) {
				c.Default.Fallbacks = append(c.Default.Fallbacks, second.Fallback(t, "second.test", peers.Script(tc.second)))
				if tc.own {
					c.Default.Fallbacks = append(c.Default.Fallbacks, proxy.Fallback{Status: 203, Body: []byte("sorry")})
				}
			}, func(t *testing.T, m *proxytest.Memory, s *peers.FallbackServer) {
				c := m.Client()
				for range 2 { // the connection can go on
					c.Send(tc.request).Want(tc.status, tc.body)
				}
				if n := s.Sends() + second.Sends(); n != 2*tc.sends || m.Seen.FallbackFailures != 2*tc.failures {
					t.Errorf("%d requests at fallbacks, %d failures, want %d and %d", n, m.Seen.FallbackFailures, 2*tc.sends, 2*tc.failures)
				}
				m.Stop()
				synctest.Wait()
				second.CloseConns()
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
		"of the route's time":  {peers.Get("/"), 2 * time.Second, 29 * time.Second},
		"of the client's time": {"GET / HTTP/1.1\r\nHost: a\r\nX-Request-Timeout: 10\r\n\r\n", time.Second / 2, 9500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			second := &peers.FallbackServer{Upstream: peers.NewUpstreamInMemory()}
			proxytest.InMemoryWithFallback(t, peers.AnswersAfter(time.Hour, peers.OK200), peers.AnswersAfter(time.Hour, peers.FallbackOK), func(c *proxy.Config) {
				c.Default.Fallbacks = append(c.Default.Fallbacks, second.Fallback(t, "second.test", peers.AnswersAfter(tc.takes, peers.FallbackOK)))
			}, func(t *testing.T, m *proxytest.Memory, s *peers.FallbackServer) {
				began := time.Now()
				m.Client().Send(tc.request).Want(200, "spare")
				if d := time.Since(began); d != tc.want {
					t.Errorf("answered after %v, want %v", d, tc.want)
				}
				m.Stop()
				time.Sleep(2 * time.Hour)
				second.CloseConns()
			})
		})
	}
}

func TestClientLeavingEndsTheFallback(t *testing.T) {
	proxytest.InMemoryWithFallback(t, peers.Script(peers.Bad503), peers.AnswersAfter(time.Hour, peers.FallbackOK), nil, func(t *testing.T, m *proxytest.Memory, s *peers.FallbackServer) {
		c := m.Client().Send(peers.Get("/"))
		time.Sleep(time.Second)
		c.Close()
		synctest.Wait()
		if !slices.Equal(m.Seen.Outcomes, []policy.Outcome{policy.OutcomeClientGone}) || s.Sends() != 1 {
			t.Errorf("outcomes %v, %d sends", m.Seen.Outcomes, s.Sends())
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

func TestAStaticResponseIsAFallbackForAll(t *testing.T) {
	for name, tc := range map[string]struct{ request, first, body, contentType string }{
		"GET":         {peers.Get("/"), peers.Bad503, "later", "text/plain; charset=utf-8"},
		"POST":        {peers.Post("abc"), peers.Bad503, "later", "text/plain; charset=utf-8"},
		"reset":       {peers.Post("abc"), "", `{"sorry":1}`, "application/json"},
		"endless":     {peers.Get("/"), "HTTP/1.1 503 X\r\n\r\nabc", "<p>", "text/html; charset=utf-8"},
		"empty":       {peers.Get("/"), peers.Bad503, "", "text/plain; charset=utf-8"},
		"large error": {peers.Get("/"), "HTTP/1.1 503 X\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("y", 100000), "later", "text/plain; charset=utf-8"},
	} {
		t.Run(name, func(t *testing.T) {
			p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(tc.first)), peers.StaticFallback(203, tc.body))
			c := p.Dial()
			for i := range 2 { // the connection can go on
				res := c.Send(tc.request).Want(203, tc.body)
				if h := res.Header; h.Get("X-Retryproxy-Fallback") != "answer" || h.Get("X-Retryproxy-Reason") == "" || h.Get("Content-Type") != tc.contentType {
					t.Errorf("%v", h)
				}
				if o := p.Seen.Outcome(t, i); o != policy.OutcomeFallback {
					t.Errorf("outcome %v", o)
				}
			}
		})
	}
}

func TestAFallbackToHEADHasNoBody(t *testing.T) {
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script("HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\n")), peers.StaticFallback(503, "later"))
	res, body, err := p.Dial().Send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").Response("HEAD")
	if err != nil || res.StatusCode != 503 || body != "" || res.ContentLength != 5 {
		t.Errorf("%v %q %v", res, body, err)
	}
}

// Whatever keeps a request from being sent counts as a failure too.
func TestAFallbackServesWhatWasNotSent(t *testing.T) {
	t.Run("breaker opened", func(t *testing.T) {
		p := proxytest.StartTo(t, "http://"+peers.ReservePort(t).Addr, func(c *proxy.Config) {
			peers.StaticFallback(200, "spare")(c)
			peers.WithBreaker(c)
			c.Default.FailFast = true
		})
		c := p.Dial()
		c.Send(peers.Get("/")).Want(200, "spare") // opens the breaker
		res := c.Send(peers.Post("x")).Want(200, "spare")
		if got := res.Header.Get("X-Retryproxy-Reason"); got != "fail_fast" {
			t.Errorf("reason %q", got)
		}
	})
	t.Run("breaker opened, upstream", func(t *testing.T) {
		spare := peers.StartUpstream(t, peers.Script(peers.FallbackOK))
		p := proxytest.StartTo(t, "http://"+peers.ReservePort(t).Addr, func(c *proxy.Config) {
			peers.WithBreaker(c)
			c.Default.FailFast = true
			target, _ := upstream.ParseTarget("http://" + spare.Addr().String())
			c.Default.Fallbacks = []proxy.Fallback{{Upstream: target}}
		})
		c := p.Dial()
		c.Send(peers.Get("/")).Want(200, "spare")
		for range 3 { // bodies that nobody has read yet
			c.Send(peers.Post("abc")).Want(200, "spare")
			c.Send(peers.PostChunked).Want(200, "spare")
		}
		if n := len(p.Stats().Upstreams); n != 2 {
			t.Errorf("%d upstreams in the statistics", n)
		}
	})
	t.Run("overloaded", func(t *testing.T) {
		proxytest.InMemory(t, peers.AnswersAfter(5*time.Second, peers.OK200), func(c *proxy.Config) {
			peers.StaticFallback(200, "spare")(c)
			c.Default.Guard = breaker.Options{ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1}
		}, func(t *testing.T, m *proxytest.Memory) {
			first := m.Client().Send(peers.Get("/")).Later()
			time.Sleep(time.Second)
			res := m.Client().Send(peers.Get("/")).Want(200, "spare")
			if got := res.Header.Get("X-Retryproxy-Reason"); got != "overloaded" {
				t.Errorf("reason %q", got)
			}
			first()
		})
	})
	t.Run("cool-down", func(t *testing.T) {
		routeKey := proxytest.RoutePauseKey(t)
		proxytest.InMemory(t, peers.Script(peers.OK200), func(c *proxy.Config) { peers.StaticFallback(200, "spare")(c); peers.SharedPause("route")(c) }, func(t *testing.T, m *proxytest.Memory) {
			m.ApplyRateLimitPause(routeKey, time.Minute)
			res := m.Client().Send(peers.Get("/")).Want(200, "spare")
			if got := res.Header.Get("X-Retryproxy-Reason"); got != "rate_limit_pause" {
				t.Errorf("reason %q", got)
			}
		})
	})
}

func TestNoFallbackForClientErrors(t *testing.T) {
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), peers.StaticFallback(200, "spare"))
	p.Dial().Send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").Want(400, "*")
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeRefused {
		t.Errorf("outcome %v", o)
	}
}

func TestWithoutResponseHeadersAFallbackIsNotReported(t *testing.T) {
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.Bad503)), func(c *proxy.Config) {
		peers.StaticFallback(200, "spare")(c)
		peers.AddNothingToResponses(c)
	})
	res := p.Dial().Send(peers.Get("/")).Want(200, "spare")
	for name := range res.Header {
		if strings.HasPrefix(name, "X-Retryproxy") {
			t.Errorf("%s: %s", name, res.Header.Get(name))
		}
	}
}
