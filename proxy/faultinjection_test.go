package proxy

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/route"
)

// faults makes the default route inject what s says.
func faults(t testing.TB, s string) func(c *Config) {
	return func(c *Config) { c.Default.FaultInjection = parseFaults(t, s) }
}

func parseFaults(t testing.TB, s string) *policy.FaultInjector {
	t.Helper()
	f, err := policy.ParseFaultInjection(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// dice draws what it is told, then the highest number for ever.
type dice struct {
	backoff.Rand
	mu    sync.Mutex
	throw []int64
}

func (d *dice) Int64N(n int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.throw) == 0 {
		return n - 1
	}
	first := d.throw[0]
	d.throw = d.throw[1:]
	return first
}

func TestAMadeStatusIsTheUpstreamsToAllButTheUpstream(t *testing.T) {
	inMemory(t, script(ok200), faults(t, "503:100%"), func(t *testing.T, m *memory) {
		c := m.client()
		for range 2 { // on one connection of the client
			res, body, err := c.send(get("/")).response("GET")
			if err != nil || res.StatusCode != 503 || !strings.Contains(body, "RETRYPROXY_FAULT_INJECTION") ||
				res.Header.Get("X-Retryproxy-Reason") != "retries_exhausted" || res.Header.Get("X-Retryproxy-Attempts") != "4" {
				t.Errorf("%v %v %q", err, res, body)
			}
		}
		synctest.Wait()
		if n := m.up.sends(); n != 0 {
			t.Errorf("%d requests were sent", n)
		}
		if !slices.Equal(m.seen.classes, slices.Repeat([]policy.Class{policy.Unknown}, 8)) ||
			!slices.Equal(m.seen.retries, slices.Repeat([]policy.Reason{policy.ReasonStatus503}, 6)) ||
			!slices.Equal(m.seen.faults, slices.Repeat([]policy.FaultKind{policy.FaultStatus}, 8)) ||
			!slices.Equal(m.seen.outcomes, slices.Repeat([]policy.Outcome{policy.GaveUp(policy.ReasonRetriesExhausted)}, 2)) {
			t.Errorf("%v %v %v %v", m.seen.classes, m.seen.retries, m.seen.faults, m.seen.outcomes)
		}
		if s := m.Stats().Upstreams[0].Pool; s.Active != 0 || s.Idle != 0 || s.Dials != 0 {
			t.Errorf("pool %+v", s)
		}
	})
}

func TestEachAttemptDrawsForItself(t *testing.T) {
	inMemory(t, script(ok200), func(c *Config) {
		faults(t, "503:10%,reset:1%,delay:200ms:5%")(c)
		// Per attempt one throw for what ends it and one for the delay, in millionths.
		c.Rand = &dice{throw: []int64{99_999, 50_000, 100_000, 49_999, 110_000, 50_000}}
	}, func(t *testing.T, m *memory) {
		began := time.Now()
		m.client().send(get("/")).want(200, "ok")
		if d := time.Since(began); d != 202*time.Millisecond { // a delay and two waits of 1 ms
			t.Errorf("took %v", d)
		}
		synctest.Wait()
		if m.up.sends() != 1 || m.seen.outcomes[0] != policy.OutcomeRecovered ||
			!slices.Equal(m.seen.retries, []policy.Reason{policy.ReasonStatus503, policy.ReasonReset}) ||
			!slices.Equal(m.seen.classes, []policy.Class{policy.Unknown, policy.Unknown, policy.ClassNone}) ||
			!slices.Equal(m.seen.faults, []policy.FaultKind{policy.FaultStatus, policy.FaultReset, policy.FaultDelay}) {
			t.Errorf("%d sends, %v %v %v %v", m.up.sends(), m.seen.outcomes, m.seen.retries, m.seen.classes, m.seen.faults)
		}
	})
}

// A lost connection may mean that the work was done: a POST is not retried.
func TestAMadeResetIsOfUnknownEffect(t *testing.T) {
	inMemory(t, script(ok200), faults(t, "reset:100%"), func(t *testing.T, m *memory) {
		c := m.client()
		if got := c.send(post("x")).want(502, "*").Header.Get("X-Retryproxy-Reason"); got != "not_idempotent" {
			t.Errorf("reason %q", got)
		}
		c.send(get("/")).want(502, "*")
		synctest.Wait()
		if m.up.sends() != 0 || !slices.Equal(m.seen.classes, slices.Repeat([]policy.Class{policy.Unknown}, 5)) {
			t.Errorf("%d sends, %v", m.up.sends(), m.seen.classes)
		}
	})
}

func TestADelayIsPartOfTheAttemptsTime(t *testing.T) {
	for _, tc := range []struct {
		name            string
		delay           string
		attempt         time.Duration // timeout
		request         time.Duration // timeout
		answers         time.Duration // of the upstream, after it was asked
		retries         int
		status          int
		takes           time.Duration
		sends           int
		took            []time.Duration
		outcome         policy.Outcome
		retriedAsTimeup bool
	}{
		{name: "short", delay: "200ms", attempt: time.Second, request: time.Minute, retries: 3, status: 200,
			takes: 200 * time.Millisecond, sends: 1, took: []time.Duration{200 * time.Millisecond}},
		{name: "longer than the attempt", delay: "3s", attempt: time.Second, request: time.Minute, retries: 1, status: 200,
			takes: 4*time.Second + time.Millisecond, sends: 1, took: []time.Duration{time.Second, 3 * time.Second}, outcome: policy.OutcomeRecovered, retriedAsTimeup: true},
		{name: "with the response longer than the attempt", delay: "400ms", attempt: time.Second, request: time.Minute, answers: 700 * time.Millisecond, retries: 1, status: 200,
			takes: 2100*time.Millisecond + time.Millisecond, sends: 2, took: []time.Duration{time.Second, 1100 * time.Millisecond}, outcome: policy.OutcomeRecovered, retriedAsTimeup: true},
		{name: "longer than the request", delay: "5s", request: 2 * time.Second, retries: 3, status: 504,
			takes: 2 * time.Second, took: []time.Duration{2 * time.Second}, outcome: policy.GaveUp(policy.ReasonDeadline)},
		{name: "longer than all", delay: "5s", attempt: time.Second, request: 2 * time.Second, retries: 1, status: 504,
			takes: 2 * time.Second, took: []time.Duration{time.Second, 999 * time.Millisecond}, outcome: policy.GaveUp(policy.ReasonRetriesExhausted), retriedAsTimeup: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inMemory(t, slow(tc.answers, ok200), func(c *Config) {
				faults(t, "delay:"+tc.delay+":100%")(c)
				c.Default.AttemptTimeout, c.Default.RequestTimeout, c.Default.Policy.MaxRetries = tc.attempt, tc.request, tc.retries
			}, func(t *testing.T, m *memory) {
				began := time.Now()
				m.client().send(get("/")).want(tc.status, "*")
				if d := time.Since(began); d != tc.takes {
					t.Errorf("took %v, want %v", d, tc.takes)
				}
				synctest.Wait()
				retried := slices.Equal(m.seen.retries, []policy.Reason{policy.ReasonAttemptTimeout})
				if m.up.sends() != tc.sends || !slices.Equal(m.seen.took, tc.took) || m.seen.outcomes[0] != tc.outcome || retried != tc.retriedAsTimeup {
					t.Errorf("%d sends, attempts %v, outcome %v, retries %v", m.up.sends(), m.seen.took, m.seen.outcomes, m.seen.retries)
				}
				time.Sleep(time.Hour) // the handlers' sleeps end
			})
		})
	}
}

func TestAClientWhoLeavesEndsTheDelay(t *testing.T) {
	inMemory(t, script(ok200), func(c *Config) { withBreaker(c); faults(t, "delay:1h:100%")(c); c.Default.AttemptTimeout = 0 }, func(t *testing.T, m *memory) {
		c := m.client().send(get("/"))
		time.Sleep(5 * time.Second)
		c.Close()
		synctest.Wait()
		if !slices.Equal(m.seen.outcomes, []policy.Outcome{policy.OutcomeClientGone}) || !slices.Equal(m.seen.took, []time.Duration{5 * time.Second}) ||
			!slices.Equal(m.seen.classes, []policy.Class{policy.Unknown}) || m.up.sends() != 0 {
			t.Errorf("%v %v %v, %d sends", m.seen.outcomes, m.seen.took, m.seen.classes, m.up.sends())
		}
		// To the breaker the upstream has the request and is silent.
		if g := m.guard(); g.Abandoned != 1 || g.InFlight != 1 {
			t.Errorf("%+v", g)
		}
	})
}

func TestADrainEndsTheDelay(t *testing.T) {
	inMemory(t, script(ok200), func(c *Config) { faults(t, "delay:10s:100%")(c); c.Default.AttemptTimeout = 0 }, func(t *testing.T, m *memory) {
		ended := m.client().send(get("/")).later()
		time.Sleep(time.Second)
		began := time.Now()
		drained := make(chan error, 1)
		go func() { drained <- m.Drain(context.Background()) }()
		if res, at := ended(); res == nil || res.StatusCode != 200 || at.Sub(began) > time.Second {
			t.Errorf("%v after %v", res, at.Sub(began))
		}
		if err := <-drained; err != nil {
			t.Error(err)
		}
	})
}

// Faults injected into one route open that route's breaker as real ones would, and no other
// breaker.
func TestMadeFaultsReachTheBreakerOfTheirRouteOnly(t *testing.T) {
	for _, tc := range []struct {
		name, faults string
		closes       breaker.OpenedBy
	}{
		{"all fail", "503:100%", breaker.OpenedByFailing},
		{"all are lost", "reset:100%", breaker.OpenedByFailing},
		{"all are late", "delay:1m:100%", breaker.OpenedByFailing},
		{"a tenth fails", "503:10%,reset:1%,delay:20ms:5%", breaker.OpenedByNothing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inMemory(t, script(ok200), func(c *Config) {
				withBreaker(c)
				c.Default.Policy.MaxRetries, c.Default.AttemptTimeout, c.Default.RequestTimeout = 0, 2*time.Second, 2*time.Second
				c.Default.Breaker = BreakerFailFast
				tried := c.Default
				tried.Name, tried.Match, tried.FaultInjection = "tried", route.Match{Path: "/tried/*"}, parseFaults(t, tc.faults)
				c.Routes = []Route{tried}
			}, func(t *testing.T, m *memory) {
				tried, other := m.client(), m.client()
				for i := range 200 {
					path := "/tried/" + string(rune('a'+i%26)) // one failing URL would close nothing
					if _, _, err := tried.send(get(path)).response("GET"); err != nil {
						t.Fatal(err)
					}
					other.send(get("/")).want(200, "ok")
				}
				set := m.settings.Load()
				if set.All[0].UpstreamState == set.All[1].UpstreamState {
					t.Fatal("both routes share an upstream's state")
				}
				got, untouched := set.All[0].UpstreamState.Admission.Guard.State(), set.All[1].UpstreamState.Admission.Guard.State()
				if (got.Opened[breaker.OpenedByFailing]+got.Opened[breaker.OpenedByStall] > 0) != (tc.closes != breaker.OpenedByNothing) {
					t.Errorf("the route's own breaker: %+v", got)
				}
				if untouched.Opened != [breaker.NumOpenedBy]uint64{} || untouched.Breaker != breaker.Closed {
					t.Errorf("the other route's breaker: %+v", untouched)
				}
			})
		})
	}
}

func TestNoFaultIsInjectedIntoTheFallback(t *testing.T) {
	inMemoryWithFallback(t, script(ok200), script(fallbackOK), faults(t, "500:100%"), func(t *testing.T, m *memory, _ *fallbackServer) {
		if got := m.client().send(get("/")).want(200, "spare").Header.Get("X-Retryproxy-Fallback"); got != "upstream" {
			t.Errorf("fallback %q", got)
		}
		synctest.Wait()
		if len(m.seen.faults) != 1 || m.up.sends() != 0 {
			t.Errorf("faults %v, %d sends", m.seen.faults, m.up.sends())
		}
	})
}

// Bodies that arrive slowly, in chunks, or only after 100 Continue meet faults like any other
// request, and are complete at the upstream afterwards.
func TestUploadsMeetFaults(t *testing.T) {
	for _, fault := range []string{"503:50%", "reset:50%"} {
		for name, request := range map[string]string{
			"length":   "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("x", 300_000),
			"chunked":  "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("2710\r\n"+strings.Repeat("x", 10_000)+"\r\n", 30) + "0\r\n\r\n",
			"expected": "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("x", 300_000),
		} {
			t.Run(fault+" "+name, func(t *testing.T) {
				whole := make(chan int, 8)
				u := startUpstream(t, func(c *upConn) {
					for headers := c.head(); headers != ""; headers = c.head() {
						whole <- len(discardBody(c, headers))
						c.say(ok200)
					}
				})
				p := startProxy(t, u, func(c *Config) {
					faults(t, fault)(c)
					c.Rand = &dice{throw: []int64{0}} // the first attempt only
				})
				c := p.dial()
				go func() { _, _ = c.Write([]byte(request)) }()
				res, body, err := c.response("PUT")
				for err == nil && res.StatusCode == 100 {
					res, body, err = c.response("PUT")
				}
				if err != nil || res.StatusCode != 200 || body != "ok" {
					t.Fatalf("%v %v %q", err, res, body)
				}
				if n := <-whole; n != 300_000 {
					t.Errorf("%d bytes of the body arrived", n)
				}
				if o := p.seen.outcome(t, 0); o != policy.OutcomeRecovered {
					t.Errorf("outcome %v", o)
				}
			})
		}
	}
}

func TestHTTP2OnBothSidesMeetsFaults(t *testing.T) {
	addr := http2Server(t, nil, false, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	for name, fault := range map[string]string{"status": "503:50%", "reset": "reset:50%", "delay": "delay:1ms:50%"} {
		t.Run(name, func(t *testing.T) {
			p := startProxyTo(t, "h2c://"+addr, func(c *Config) {
				speakHTTP2(c)
				faults(t, fault)(c)
				c.Rand = &dice{throw: []int64{0}}
			})
			res, body := p.fetch(http2Client(t, nil), "PUT", "/", strings.NewReader("some"))
			want := policy.OutcomeRecovered
			if name == "delay" {
				want = policy.OutcomeSuccess
			}
			if o := p.seen.outcome(t, 0); res.StatusCode != 200 || body != "ok" || res.ProtoMajor != 2 || o != want {
				t.Errorf("%d %q %v, outcome %v", res.StatusCode, body, res.Proto, o)
			}
		})
	}
}

func TestAnHTTP2ClientWhoLeavesEndsTheDelay(t *testing.T) {
	u := startUpstream(t, script(ok200))
	p := startProxy(t, u, func(c *Config) {
		speakHTTP2(c)
		faults(t, "delay:1h:100%")(c)
		c.Default.AttemptTimeout, c.Default.RequestTimeout = 0, 0
	})
	client := http2Client(t, nil)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+p.addr+"/", nil)
		res, err := client.Do(req)
		if err == nil {
			res.Body.Close()
		}
		left <- err
	}()
	soon(t, "the fault", func() bool { defer p.seen.lock()(); return len(p.seen.faults) == 1 })
	leave()
	if err := <-left; err == nil {
		t.Error("it was answered")
	}
	if o := p.seen.outcome(t, 0); o != policy.OutcomeClientGone || u.sends() != 0 {
		t.Errorf("outcome %v, %d sends", o, u.sends())
	}
}
