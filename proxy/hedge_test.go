package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/hedge"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

func hedgeAfter(t testing.TB, s string) hedge.After {
	t.Helper()
	h, err := hedge.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// hedged is a route whose requests get a hedge after 20 ms.
func hedged(t testing.TB) func(c *Config) {
	return func(c *Config) { c.Default.HedgeAfter = hedgeAfter(t, "20ms") }
}

// byConn lets each connection be handled by its own function, in order of
// arrival; the last one handles all that follow.
func byConn(handlers ...func(c *upConn)) func(c *upConn) {
	return func(c *upConn) { handlers[min(c.n, len(handlers))-1](c) }
}

// neverResponds reads requests and answers none; it ends when the connection does.
func neverResponds(c *upConn) {
	headers := c.head()
	discardBody(c, headers)
	_, _ = io.Copy(io.Discard, c.Reader)
}

// respondsAfter is slow without a wait of its own handler's: it answers after d,
// unless the connection ends before.
func respondsAfter(d time.Duration, response string) func(c *upConn) {
	return func(c *upConn) {
		for headers := c.head(); headers != ""; headers = c.head() {
			discardBody(c, headers)
			if !c.stays(d) {
				return
			}
			if response == "" {
				c.reset()
				return
			}
			c.say("%s", response)
		}
	}
}

// stays waits and says whether the other side is still there.
func (c *upConn) stays(d time.Duration) bool {
	if d == 0 {
		return true
	}
	_ = c.SetReadDeadline(time.Now().Add(d))
	defer c.SetReadDeadline(time.Time{})
	_, err := c.Peek(1)
	return rawsocket.IsTimeout(err)
}

// lastly503 is bad503 by a server that closes the connection.
const lastly503 = "HTTP/1.1 503 X\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbusy"

func reply(status int, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

// What comes of a race, in virtual time: the hedge is sent after 20 ms.
func TestHedgeRaces(t *testing.T) {
	const ms = time.Millisecond
	ok, none := policy.ClassNone, ""
	for _, tc := range []struct {
		name          string
		first, second func(c *upConn)
		third         func(c *upConn)
		retries       int
		status        int
		body          string
		after         time.Duration
		attempts      string
		outcome       policy.Outcome
		classes       []policy.Class
		hedged, won   int
	}{
		{name: "answered in time", first: respondsAfter(19*ms, ok200), status: 200, body: "ok", after: 19 * ms, attempts: "1",
			outcome: policy.OutcomeSuccess, classes: []policy.Class{ok}},
		{name: "the hedge wins", first: neverResponds, second: respondsAfter(5*ms, reply(200, "second")), status: 200, body: "second", after: 25 * ms, attempts: "2",
			outcome: policy.OutcomeSuccess, classes: []policy.Class{policy.Overtaken, ok}, hedged: 1, won: 1},
		{name: "the first wins", first: respondsAfter(30*ms, reply(200, "first")), second: neverResponds, status: 200, body: "first", after: 30 * ms, attempts: "2",
			outcome: policy.OutcomeSuccess, classes: []policy.Class{policy.Overtaken, ok}, hedged: 1},
		{name: "the first fails, the hedge is waited for", first: respondsAfter(30*ms, bad503), second: respondsAfter(30*ms, reply(200, "second")), status: 200, body: "second", after: 50 * ms, attempts: "2",
			outcome: policy.OutcomeRecovered, classes: []policy.Class{policy.Unknown, ok}, hedged: 1, won: 1},
		{name: "the first is reset, the hedge is waited for", first: respondsAfter(30*ms, none), second: respondsAfter(30*ms, reply(200, "second")), status: 200, body: "second", after: 50 * ms, attempts: "2",
			outcome: policy.OutcomeRecovered, classes: []policy.Class{policy.Unknown, ok}, hedged: 1, won: 1},
		{name: "the hedge fails, the first is waited for", first: respondsAfter(50*ms, reply(200, "first")), second: respondsAfter(0, bad503), status: 200, body: "first", after: 50 * ms, attempts: "2",
			outcome: policy.OutcomeSuccess, classes: []policy.Class{policy.Unknown, ok}, hedged: 1},
		{name: "the hedge is reset, the first is waited for", first: respondsAfter(50*ms, reply(200, "first")), second: respondsAfter(0, none), status: 200, body: "first", after: 50 * ms, attempts: "2",
			outcome: policy.OutcomeSuccess, classes: []policy.Class{policy.Unknown, ok}, hedged: 1},
		{name: "both fail, a retry", first: respondsAfter(30*ms, lastly503), second: respondsAfter(30*ms, lastly503), third: respondsAfter(0, reply(200, "third")), status: 200, body: "third", after: 51 * ms, attempts: "3",
			outcome: policy.OutcomeRecovered, classes: []policy.Class{policy.Unknown, policy.Unknown, ok}, hedged: 1},
		{name: "both are reset, a retry", first: respondsAfter(40*ms, none), second: respondsAfter(10*ms, none), third: respondsAfter(0, reply(200, "third")), status: 200, body: "third", after: 41 * ms, attempts: "3",
			outcome: policy.OutcomeRecovered, classes: []policy.Class{policy.Unknown, policy.Unknown, ok}, hedged: 1},
		{name: "both fail, no retry left: the later answer", first: respondsAfter(30*ms, reply(503, "first")), second: respondsAfter(30*ms, reply(502, "second")), retries: 1, status: 502, body: "second", after: 50 * ms, attempts: "2",
			outcome: policy.GaveUp(policy.ReasonRetriesExhausted), classes: []policy.Class{policy.Unknown, policy.Unknown}, hedged: 1},
		{name: "only the first has a response", first: respondsAfter(30*ms, reply(503, "first")), second: respondsAfter(30*ms, none), retries: 1, status: 503, body: "first", after: 50 * ms, attempts: "2",
			outcome: policy.GaveUp(policy.ReasonRetriesExhausted), classes: []policy.Class{policy.Unknown, policy.Unknown}, hedged: 1},
		{name: "only the hedge has a response, early", first: respondsAfter(50*ms, none), second: respondsAfter(0, reply(503, "second")), retries: 1, status: 503, body: "second", after: 50 * ms, attempts: "2",
			outcome: policy.GaveUp(policy.ReasonRetriesExhausted), classes: []policy.Class{policy.Unknown, policy.Unknown}, hedged: 1},
		{name: "neither answers in time", first: neverResponds, second: neverResponds, third: respondsAfter(0, reply(200, "third")), status: 200, body: "third", after: 10*time.Second + 21*ms, attempts: "3",
			outcome: policy.OutcomeRecovered, classes: []policy.Class{policy.Unknown, policy.Unknown, ok}, hedged: 1},
		{name: "a retry has no hedge of its own", first: respondsAfter(30*ms, lastly503), second: respondsAfter(30*ms, lastly503), third: respondsAfter(100*ms, reply(200, "third")), status: 200, body: "third", after: 151 * ms, attempts: "3",
			outcome: policy.OutcomeRecovered, classes: []policy.Class{policy.Unknown, policy.Unknown, ok}, hedged: 1},
		{name: "the hedge fails early, the first is too late", first: neverResponds, second: respondsAfter(0, reply(503, "second")), retries: 1, status: 503, body: "second", after: 10*time.Second + 20*ms, attempts: "2",
			outcome: policy.GaveUp(policy.ReasonRetriesExhausted), classes: []policy.Class{policy.Unknown, policy.Unknown}, hedged: 1},
		{name: "no retry left: the first has all the time", first: respondsAfter(20*time.Second, reply(200, "first")), second: neverResponds, retries: 1, status: 200, body: "first", after: 20 * time.Second, attempts: "2",
			outcome: policy.OutcomeSuccess, classes: []policy.Class{policy.Unknown, ok}, hedged: 1},
		{name: "no retry left: the hedge has all the time", first: respondsAfter(50*ms, none), second: respondsAfter(20*time.Second, reply(200, "second")), retries: 1, status: 200, body: "second", after: 20*time.Second + 20*ms, attempts: "2",
			outcome: policy.OutcomeRecovered, classes: []policy.Class{policy.Unknown, ok}, hedged: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			handlers := []func(c *upConn){tc.first, tc.second, tc.third}
			handle := func(c *upConn) {
				if h := handlers[min(c.n, 3)-1]; h != nil {
					h(c)
				}
			}
			inMemory(t, handle, func(c *Config) {
				hedged(t)(c)
				if tc.retries > 0 {
					c.Default.Policy.MaxRetries = tc.retries
				}
			}, func(t *testing.T, m *memory) {
				began := time.Now()
				c := m.client()
				res := c.send(get("/")).want(tc.status, tc.body)
				if d := time.Since(began); d != tc.after {
					t.Errorf("answered after %v, want %v", d, tc.after)
				}
				if got := res.Header.Get("X-Retryproxy-Attempts"); got != tc.attempts || fmt.Sprint(m.up.sends()) != tc.attempts {
					t.Errorf("attempts %q, %d sends, want %s", got, m.up.sends(), tc.attempts)
				}
				if o := m.seen.outcome(t, 0); o != tc.outcome {
					t.Errorf("outcome %v, want %v", o, tc.outcome)
				}
				if !slices.Equal(m.seen.classes, tc.classes) || m.seen.hedged != tc.hedged || m.seen.hedgesWon != tc.won {
					t.Errorf("classes %v, %d hedges, %d won", m.seen.classes, m.seen.hedged, m.seen.hedgesWon)
				}
				synctest.Wait()
				if g := m.guard(); g.InFlight-g.Abandoned != 0 {
					t.Errorf("places were not given back: %+v", g)
				}
				for i := range m.up.sends() {
					if got := fieldOf(m.up.head(i), "X-Retryproxy-Attempt"); got != fmt.Sprint(i+1) {
						t.Errorf("send %d says attempt %q", i+1, got)
					}
				}
				_ = c.SetReadDeadline(time.Now().Add(time.Second))
				if _, err := c.r.ReadByte(); !rawsocket.IsTimeout(err) {
					t.Errorf("the client's connection: %v", err)
				}
			})
		})
	}
}

// Whatever speaks against a retry speaks against a hedge, and some more.
func TestNoHedge(t *testing.T) {
	keyed := strings.Replace(post("abc"), "\r\n\r\n", "\r\nIdempotency-Key: 1\r\n\r\n", 1)
	const soon = 10 * time.Millisecond // before the hedge is due
	routeKey := routePauseKey(t)
	for _, tc := range []struct {
		name    string
		request string
		change  func(c *Config)
		then    func(m *memory) // while the request is in flight
		sends   int
	}{
		{name: "a hedge", sends: 2},
		{name: "PUT", request: strings.Replace(post("abc"), "POST", "PUT", 1), sends: 2},
		{name: "with a key", request: keyed, sends: 2},
		{name: "chunked, may run twice", request: chunked, change: func(c *Config) { c.Default.Policy.Unsafe = true }, sends: 2},
		{name: "POST", request: post("abc"), sends: 1},
		{name: "POST, key of our own", request: post("abc"), change: func(c *Config) { c.Default.GenerateKey = true }, sends: 2},
		{name: "off", change: func(c *Config) { c.Default.HedgeAfter = hedge.After{} }, sends: 1},
		{name: "nothing learnt yet", change: func(c *Config) { c.Default.HedgeAfter = hedgeAfter(t, "p95") }, sends: 1},
		{name: "retries off", change: func(c *Config) { c.Default.Policy.MaxRetries = 0 }, sends: 1},
		{name: "a retry of somebody's", request: strings.Replace(get("/"), "\r\n\r\n", "\r\nX-Retryproxy-Attempt: 2\r\n\r\n", 1),
			change: func(c *Config) { c.Default.LayeredRetries = policy.LayeredDeny }, sends: 1},
		{name: "a body that is not kept", request: keyed, change: func(c *Config) { c.Default.RetryBufferBytes = 2 }, sends: 1},
		{name: "no retry buffer", request: strings.Replace(chunked, "POST", "PUT", 1), change: func(c *Config) { c.RetryBufferTotalBytes = 1 }, sends: 1},
		{name: "budget empty", change: func(c *Config) { c.Default.NoBudget = false }, sends: 1},
		{name: "budget", change: func(c *Config) { c.Default.NoBudget, c.Default.Budget.Burst = false, 1 }, sends: 2},
		{name: "an upgrade", request: strings.Replace(get("/"), "\r\n\r\n", "\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", 1), sends: 1},
		{name: "a stream of events", request: strings.Replace(get("/"), "\r\n\r\n", "\r\nAccept: text/event-stream\r\n\r\n", 1), sends: 1},
		{name: "observing", change: func(c *Config) { c.Default.DryRun = true }, sends: 1},
		{name: "switched off", then: func(m *memory) { m.SetRetryPercent(0) }, sends: 1},
		{name: "draining", then: func(m *memory) { go func() { _ = m.Drain(context.Background()) }() }, sends: 1},
		{name: "breaker opened", change: func(c *Config) {
			withBreaker(c)
			c.Default.HedgeAfter = hedgeAfter(t, "500ms")
			refuseDials(c, 495*time.Millisecond)
		}, then: func(m *memory) {
			other := m.client().send(get("/other"))
			for m.guard().Breaker == breaker.Closed {
				time.Sleep(time.Millisecond)
			}
			other.Close()
		}, sends: 1},
		{name: "breaker open", change: withBreaker, sends: 2},
		{name: "limit reached", change: func(c *Config) {
			c.Default.Guard = breaker.Options{ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1}
		}, sends: 1},
		{name: "below the limit", change: func(c *Config) {
			c.Default.Guard = breaker.Options{ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 2}
		}, sends: 2},
		{name: "cool-down", change: func(c *Config) {
			c.Default.RateLimitPause = RateLimitPause{SharedBy: admission.Sharing{Route: true}, Max: time.Minute}
		}, then: func(m *memory) {
			m.ApplyRateLimitPause(routeKey, time.Minute)
		}, sends: 1},
		{name: "the head has begun to come", then: func(m *memory) { m.up.each(func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200") }) }, sends: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inMemory(t, neverResponds, func(c *Config) {
				hedged(t)(c)
				c.Default.AttemptTimeout = 0
				if tc.change != nil {
					tc.change(c)
				}
			}, func(t *testing.T, m *memory) {
				if tc.request == "" {
					tc.request = get("/")
				}
				c := m.client().send(tc.request)
				time.Sleep(soon)
				if tc.then != nil {
					tc.then(m)
				}
				time.Sleep(time.Second)
				if m.up.sends() != tc.sends {
					t.Errorf("%d sends, want %d", m.up.sends(), tc.sends)
				}
				if u := m.Stats().Upstreams[0]; u.HasBudget && u.BudgetTokens != 0 {
					t.Errorf("%v tokens left", u.BudgetTokens)
				}
				c.Close()
				m.seen.outcome(t, 0)
				time.Sleep(time.Second) // the drain of a case ends
			})
		})
	}
}

// refuseDials makes the default route's upstream refuse all connections but the first for that long.
func refuseDials(c *Config, long time.Duration) {
	dial, began, dials := c.Default.Upstream.Dial, time.Now(), 0
	c.Default.Upstream.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials++; dials > 1 && time.Since(began) < long {
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		return dial(ctx, network, address)
	}
}

// Both attempts carry the same request.
func TestTheHedgeCarriesTheWholeRequest(t *testing.T) {
	for name, request := range map[string]string{
		"none":    get("/a?b=c"),
		"length":  "PUT /a HTTP/1.1\r\nHost: a\r\nX-Request-Timeout: 9\r\nContent-Length: 3\r\n\r\nabc",
		"chunked": "PUT /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nX-T: 1\r\n\r\n",
		"large":   "PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("0123456789", 30_000),
	} {
		t.Run(name, func(t *testing.T) {
			bodies := make(chan string, 2)
			keep := func(then func(c *upConn)) func(c *upConn) {
				return func(c *upConn) {
					bodies <- string(discardBody(c, c.head()))
					then(c)
				}
			}
			u := startUpstream(t, byConn(keep(neverResponds), keep(func(c *upConn) { c.say(ok200) })))
			p := startProxy(t, u, hedged(t))
			p.dial().send(request).want(200, "ok")
			if a, b := <-bodies, <-bodies; a != b || name != "none" && a == "" {
				t.Errorf("%d bytes and %d bytes", len(a), len(b))
			}
			cut := func(s string) string {
				var kept []string
				for line := range strings.SplitSeq(s, "\r\n") {
					if !strings.HasPrefix(line, "X-Retryproxy-Attempt:") && !strings.HasPrefix(line, "X-Request-Timeout:") {
						kept = append(kept, line)
					}
				}
				return strings.Join(kept, "\r\n")
			}
			if a, b := u.head(0), u.head(1); cut(a) != cut(b) || (fieldOf(a, "X-Request-Timeout") == "") != (fieldOf(b, "X-Request-Timeout") == "") {
				t.Errorf("%q and %q", a, b)
			}
		})
	}
}

// A hedge that is not sent does not count: its token is returned.
func TestAHedgeThatIsNeverSentCostsNothing(t *testing.T) {
	for name, end := range map[string]error{"refused": errors.New("refused"), "still dialling": nil} {
		t.Run(name, func(t *testing.T) {
			var dials atomic.Int32
			inMemory(t, nil, func(c *Config) {
				hedged(t)(c)
				c.Default.NoBudget, c.Default.Budget = false, budget.Config{Burst: 5}
			}, func(t *testing.T, m *memory) {
				dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
					switch n := dials.Add(1); {
					case n > 1 && end == nil:
						<-ctx.Done()
						return nil, ctx.Err()
					case n > 1:
						return nil, end
					}
					ours, theirs := net.Pipe()
					m.up.serve(t, theirs, respondsAfter(time.Second, ok200))
					return ours, nil
				}
				n := *m.config
				n.Default.Upstream.Dial = dial
				n.Default.Upstream.Host = "other.test"
				n.Default.Upstream.Address = "other.test:80"
				if err := m.Reload(&n); err != nil {
					t.Fatal(err)
				}
				res := m.client().send(get("/")).want(200, "ok")
				m.seen.outcome(t, 0)
				tokens := m.Stats().Upstreams[0].BudgetTokens
				if dials.Load() != 2 || m.seen.hedged != 0 || tokens != 5 {
					t.Errorf("%d dials, %d hedges, %v tokens", dials.Load(), m.seen.hedged, tokens)
				}
				want, classes := "1", []policy.Class{policy.ClassNone}
				if end != nil { // it was tried
					want, classes = "2", []policy.Class{policy.NotSent, policy.ClassNone}
				}
				if got := res.Header.Get("X-Retryproxy-Attempts"); got != want || !slices.Equal(m.seen.classes, classes) {
					t.Errorf("attempts %s, classes %v", got, m.seen.classes)
				}
			})
		})
	}
}

// Clients who leave end both attempts, whatever state these are in.
func TestTheClientLeavesDuringAHedge(t *testing.T) {
	for name, first := range map[string]func(c *upConn){
		"both are out":           neverResponds,
		"the first has failed":   respondsAfter(30*time.Millisecond, bad503),
		"the first was reset":    respondsAfter(30*time.Millisecond, ""),
		"only the hedge is left": func(c *upConn) { c.head(); time.Sleep(30 * time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, byConn(first, neverResponds), hedged(t), func(t *testing.T, m *memory) {
				c := m.client().send(get("/"))
				time.Sleep(time.Second)
				if m.up.sends() != 2 {
					t.Fatalf("%d sends", m.up.sends())
				}
				c.Close()
				synctest.Wait()
				if len(m.seen.outcomes) != 1 || m.seen.outcomes[0] != policy.OutcomeClientGone || m.seen.attempts[0] != 2 || len(m.seen.classes) != 2 || m.seen.hedgesWon != 0 || m.seen.hedged != 1 {
					t.Errorf("outcomes %v, classes %v, attempts %v, %d hedges", m.seen.outcomes, m.seen.classes, m.seen.attempts, m.seen.hedged)
				}
				if slices.Contains(m.seen.classes, policy.ClassNone) || slices.Contains(m.seen.classes, policy.Overtaken) || slices.Contains(m.seen.classes, policy.NotSent) {
					t.Errorf("classes %v", m.seen.classes)
				}
				m.up.each(func(net.Conn) { t.Error("a connection to the upstream is still open") })
				if g := m.guard(); g.InFlight-g.Abandoned != 0 {
					t.Errorf("places were not given back: %+v", g)
				}
			})
		})
	}
}

// A hedge that is still being dialled when the client leaves does not count. The first attempt,
// which has failed, counts with its own result.
func TestTheClientLeavesWhileTheHedgeIsDialled(t *testing.T) {
	var dials atomic.Int32
	inMemory(t, nil, hedged(t), func(t *testing.T, m *memory) {
		n := *m.config
		n.Default.Upstream.Host, n.Default.Upstream.Address = "other.test", "other.test:80"
		n.Default.Upstream.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			if dials.Add(1) > 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			ours, theirs := net.Pipe()
			m.up.serve(t, theirs, respondsAfter(30*time.Millisecond, bad503))
			return ours, nil
		}
		if err := m.Reload(&n); err != nil {
			t.Fatal(err)
		}
		c := m.client().send(get("/"))
		time.Sleep(time.Second)
		c.Close()
		synctest.Wait()
		if dials.Load() != 2 || m.seen.hedged != 0 || !slices.Equal(m.seen.attempts, []int{1}) || !slices.Equal(m.seen.classes, []policy.Class{policy.Unknown}) {
			t.Errorf("%d dials, %d hedges, attempts %v, classes %v", dials.Load(), m.seen.hedged, m.seen.attempts, m.seen.classes)
		}
	})
}

// The percentile is learnt from the route's own responses, and a reload keeps it.
func TestHedgeAfterWhatIsUsual(t *testing.T) {
	var seen atomic.Bool
	handle := func(c *upConn) {
		for headers := c.head(); headers != ""; headers = c.head() {
			d := 10 * time.Millisecond
			if strings.HasPrefix(headers, "GET /slow ") && !seen.Swap(true) {
				d = time.Minute
			} else if strings.HasPrefix(headers, "POST") {
				d = time.Second
			}
			if !c.stays(d) {
				return
			}
			c.say(ok200)
		}
	}
	inMemory(t, handle, func(c *Config) { c.Default.HedgeAfter = hedgeAfter(t, "p95") }, func(t *testing.T, m *memory) {
		c := m.client()
		for i := range 250 {
			if c.send(get("/")).want(200, "ok"); i%10 == 0 {
				c.send(post("")).want(200, "ok") // which is never hedged and teaches nothing
			}
		}
		n := *m.config
		if err := m.Reload(&n); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		c.send(get("/slow")).want(200, "ok")
		if d := time.Since(began); d < 20*time.Millisecond || d > 22*time.Millisecond {
			t.Errorf("answered after %v, want 10 ms after a hedge at 10 to 12 ms", d)
		}
		if m.seen.hedgesWon != 1 || m.seen.hedged != 1 {
			t.Errorf("%d hedges, %d won", m.seen.hedged, m.seen.hedgesWon)
		}
	})
}

// An overtaken attempt counts as a slow one; otherwise hedges would be sent earlier and earlier.
func TestAnOvertakenAttemptIsLearntFrom(t *testing.T) {
	handle := func(c *upConn) {
		for headers := c.head(); headers != ""; headers = c.head() {
			d := 10 * time.Millisecond
			if strings.HasPrefix(headers, "GET /slow ") && fieldOf(headers, "X-Retryproxy-Attempt") == "1" {
				d = time.Minute
			}
			if !c.stays(d) {
				return
			}
			c.say(ok200)
		}
	}
	inMemory(t, handle, func(c *Config) { c.Default.HedgeAfter = hedgeAfter(t, "p95") }, func(t *testing.T, m *memory) {
		c := m.client()
		for range 250 {
			c.send(get("/")).want(200, "ok")
		}
		for range 40 {
			c.send(get("/slow")).want(200, "ok")
		}
		time.Sleep(time.Second)
		began := time.Now()
		c.send(get("/slow")).want(200, "ok")
		if d := time.Since(began) - 10*time.Millisecond; d < 20*time.Millisecond {
			t.Errorf("one in seven was waited for 20 ms at least, and the 95th percentile is %v", d)
		}
	})
}

// The fallback upstream gets one attempt and no hedge.
func TestTheFallbackIsNotHedged(t *testing.T) {
	inMemoryWithFallback(t, script(bad503), respondsAfter(time.Second, fallbackOK), hedged(t), func(t *testing.T, m *memory, s *fallbackServer) {
		m.client().send(get("/")).want(200, "spare")
		if s.sends() != 1 || m.seen.hedged != 0 {
			t.Errorf("%d sends to the fallback, %d hedges", s.sends(), m.seen.hedged)
		}
	})
}

// Informational answers are the first attempt's.
func TestAHedgesInformationalResponsesAreDropped(t *testing.T) {
	early := "HTTP/1.1 103 Early Hints\r\nLink: <%s>\r\n\r\n"
	inMemory(t, byConn(
		func(c *upConn) { c.head(); c.say(early, "first"); c.stays(time.Minute) },
		func(c *upConn) { c.head(); c.say(early, "second"); c.say(early, "second"); c.say(ok200) },
	), hedged(t), func(t *testing.T, m *memory) {
		c := m.client().send(get("/"))
		res := c.want(103, "*")
		if got := res.Header.Get("Link"); got != "<first>" {
			t.Errorf("link %q", got)
		}
		c.want(200, "ok")
	})
}

// A malformed response to the hedge does not affect the first attempt.
func TestAHedgesMalformedResponse(t *testing.T) {
	for name, nonsense := range map[string]string{
		"malformed": "nonsense\r\n\r\n", "switching": "HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
		"cut": "HTTP/1.1 200 OK\r\nContent-", "endless": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n\r\n",
		"interim": strings.Repeat("HTTP/1.1 102 X\r\n\r\n", 65),
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, byConn(respondsAfter(100*time.Millisecond, ok200), func(c *upConn) { c.head(); c.say("%s", nonsense) }), hedged(t), func(t *testing.T, m *memory) {
				m.client().send(get("/")).want(200, "ok")
				m.seen.outcome(t, 0)
				if !slices.Equal(m.seen.classes, []policy.Class{policy.Unknown, policy.ClassNone}) {
					t.Errorf("classes %v", m.seen.classes)
				}
			})
		})
	}
}

// A large head of the hedge's answer comes in many pieces.
func TestAHedgesLargeHeaders(t *testing.T) {
	long := strings.Repeat("y", 40<<10)
	inMemory(t, byConn(neverResponds, func(c *upConn) {
		c.head()
		for _, part := range []string{"HTTP/1.1 200 OK\r\nX-Long: ", long, "\r\nContent-Length: 40960\r\n\r\n", long} {
			c.say("%s", part)
		}
	}), hedged(t), func(t *testing.T, m *memory) {
		if res := m.client().send(get("/")).want(200, long); res.Header.Get("X-Long") != long {
			t.Error("the field is not whole")
		}
	})
}

// A slow response shows that the upstream responds, whichever attempt gets it: the other attempt is no evidence.
func TestARaceIsNoSilence(t *testing.T) {
	for name, slowest := range map[string]string{"the first wins": "2", "the hedge wins": "1"} {
		t.Run(name, func(t *testing.T) {
			handle := func(c *upConn) {
				for headers := c.head(); headers != ""; headers = c.head() {
					d := 5 * time.Millisecond
					if strings.HasPrefix(headers, "GET /slow ") {
						d = 3 * time.Second
						if fieldOf(headers, "X-Retryproxy-Attempt") == slowest {
							d = time.Minute
						}
					}
					if !c.stays(d) {
						return
					}
					c.say(ok200)
				}
			}
			inMemory(t, handle, func(c *Config) {
				withBreaker(c)
				c.Default.HedgeAfter = hedgeAfter(t, "300ms")
			}, func(t *testing.T, m *memory) {
				c := m.client()
				for range 600 {
					c.send(get("/")).want(200, "ok")
				}
				time.Sleep(time.Second) // all other responses are seen before the race begins
				c.send(get("/slow")).want(200, "ok")
				if g := m.guard(); m.seen.hedged != 1 || g.Breaker != breaker.Closed || g.Opened != [breaker.NumOpenedBy]uint64{} {
					t.Errorf("%d hedges, breaker %v, opened %v", m.seen.hedged, g.Breaker, g.Opened)
				}
			})
		})
	}
}
