package hedging

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
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// What comes of a race, in virtual time: the hedge is sent after 20 ms.
func TestHedgeRaces(t *testing.T) {
	const ms = time.Millisecond
	ok, none := policy.ClassNone, ""
	for _, tc := range []struct {
		name          string
		first, second func(c *peers.Conn)
		third         func(c *peers.Conn)
		retries       int
		status        int
		body          string
		after         time.Duration
		attempts      string
		outcome       policy.Outcome
		classes       []policy.Class
		hedged, won   int
	}{
		{name: "answered in time", first: peers.RespondsAfter(19*ms, peers.OK200), status: 200, body: "ok", after: 19 * ms, attempts: "1",
			outcome: policy.OutcomeSuccess, classes: []policy.Class{ok}},
		{name: "the hedge wins", first: peers.NeverResponds, second: peers.RespondsAfter(5*ms, peers.Response(200, "second")), status: 200, body: "second", after: 25 * ms, attempts: "2",
			outcome: policy.OutcomeSuccess, classes: []policy.Class{policy.Overtaken, ok}, hedged: 1, won: 1},
		{name: "the first wins", first: peers.RespondsAfter(30*ms, peers.Response(200, "first")), second: peers.NeverResponds, status: 200, body: "first", after: 30 * ms, attempts: "2",
			outcome: policy.OutcomeSuccess, classes: []policy.Class{policy.Overtaken, ok}, hedged: 1},
		{name: "the first fails, the hedge is waited for", first: peers.RespondsAfter(30*ms, peers.Bad503), second: peers.RespondsAfter(30*ms, peers.Response(200, "second")), status: 200, body: "second", after: 50 * ms, attempts: "2",
			outcome: policy.OutcomeRecovered, classes: []policy.Class{policy.Unknown, ok}, hedged: 1, won: 1},
		{name: "the first is reset, the hedge is waited for", first: peers.RespondsAfter(30*ms, none), second: peers.RespondsAfter(30*ms, peers.Response(200, "second")), status: 200, body: "second", after: 50 * ms, attempts: "2",
			outcome: policy.OutcomeRecovered, classes: []policy.Class{policy.Unknown, ok}, hedged: 1, won: 1},
		{name: "the hedge fails, the first is waited for", first: peers.RespondsAfter(50*ms, peers.Response(200, "first")), second: peers.RespondsAfter(0, peers.Bad503), status: 200, body: "first", after: 50 * ms, attempts: "2",
			outcome: policy.OutcomeSuccess, classes: []policy.Class{policy.Unknown, ok}, hedged: 1},
		{name: "the hedge is reset, the first is waited for", first: peers.RespondsAfter(50*ms, peers.Response(200, "first")), second: peers.RespondsAfter(0, none), status: 200, body: "first", after: 50 * ms, attempts: "2",
			outcome: policy.OutcomeSuccess, classes: []policy.Class{policy.Unknown, ok}, hedged: 1},
		{name: "both fail, a retry", first: peers.RespondsAfter(30*ms, peers.Bad503Closing), second: peers.RespondsAfter(30*ms, peers.Bad503Closing), third: peers.RespondsAfter(0, peers.Response(200, "third")), status: 200, body: "third", after: 51 * ms, attempts: "3",
			outcome: policy.OutcomeRecovered, classes: []policy.Class{policy.Unknown, policy.Unknown, ok}, hedged: 1},
		{name: "both are reset, a retry", first: peers.RespondsAfter(40*ms, none), second: peers.RespondsAfter(10*ms, none), third: peers.RespondsAfter(0, peers.Response(200, "third")), status: 200, body: "third", after: 41 * ms, attempts: "3",
			outcome: policy.OutcomeRecovered, classes: []policy.Class{policy.Unknown, policy.Unknown, ok}, hedged: 1},
		{name: "both fail, no retry left: the later answer", first: peers.RespondsAfter(30*ms, peers.Response(503, "first")), second: peers.RespondsAfter(30*ms, peers.Response(502, "second")), retries: 1, status: 502, body: "second", after: 50 * ms, attempts: "2",
			outcome: policy.GaveUp(policy.ReasonRetriesExhausted), classes: []policy.Class{policy.Unknown, policy.Unknown}, hedged: 1},
		{name: "only the first has a response", first: peers.RespondsAfter(30*ms, peers.Response(503, "first")), second: peers.RespondsAfter(30*ms, none), retries: 1, status: 503, body: "first", after: 50 * ms, attempts: "2",
			outcome: policy.GaveUp(policy.ReasonRetriesExhausted), classes: []policy.Class{policy.Unknown, policy.Unknown}, hedged: 1},
		{name: "only the hedge has a response, early", first: peers.RespondsAfter(50*ms, none), second: peers.RespondsAfter(0, peers.Response(503, "second")), retries: 1, status: 503, body: "second", after: 50 * ms, attempts: "2",
			outcome: policy.GaveUp(policy.ReasonRetriesExhausted), classes: []policy.Class{policy.Unknown, policy.Unknown}, hedged: 1},
		{name: "neither answers in time", first: peers.NeverResponds, second: peers.NeverResponds, third: peers.RespondsAfter(0, peers.Response(200, "third")), status: 200, body: "third", after: 10*time.Second + 21*ms, attempts: "3",
			outcome: policy.OutcomeRecovered, classes: []policy.Class{policy.Unknown, policy.Unknown, ok}, hedged: 1},
		{name: "a retry has no hedge of its own", first: peers.RespondsAfter(30*ms, peers.Bad503Closing), second: peers.RespondsAfter(30*ms, peers.Bad503Closing), third: peers.RespondsAfter(100*ms, peers.Response(200, "third")), status: 200, body: "third", after: 151 * ms, attempts: "3",
			outcome: policy.OutcomeRecovered, classes: []policy.Class{policy.Unknown, policy.Unknown, ok}, hedged: 1},
		{name: "the hedge fails early, the first is too late", first: peers.NeverResponds, second: peers.RespondsAfter(0, peers.Response(503, "second")), retries: 1, status: 503, body: "second", after: 10*time.Second + 20*ms, attempts: "2",
			outcome: policy.GaveUp(policy.ReasonRetriesExhausted), classes: []policy.Class{policy.Unknown, policy.Unknown}, hedged: 1},
		{name: "no retry left: the first has all the time", first: peers.RespondsAfter(20*time.Second, peers.Response(200, "first")), second: peers.NeverResponds, retries: 1, status: 200, body: "first", after: 20 * time.Second, attempts: "2",
			outcome: policy.OutcomeSuccess, classes: []policy.Class{policy.Unknown, ok}, hedged: 1},
		{name: "no retry left: the hedge has all the time", first: peers.RespondsAfter(50*ms, none), second: peers.RespondsAfter(20*time.Second, peers.Response(200, "second")), retries: 1, status: 200, body: "second", after: 20*time.Second + 20*ms, attempts: "2",
			outcome: policy.OutcomeRecovered, classes: []policy.Class{policy.Unknown, ok}, hedged: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			handlers := []func(c *peers.Conn){tc.first, tc.second, tc.third}
			handle := func(c *peers.Conn) {
				if h := handlers[min(c.N, 3)-1]; h != nil {
					h(c)
				}
			}
			proxytest.InMemory(t, handle, func(c *proxy.Config) {
				peers.Hedged(t)(c)
				if tc.retries > 0 {
					c.Default.Policy.MaxRetries = tc.retries
				}
			}, func(t *testing.T, m *proxytest.Memory) {
				began := time.Now()
				c := m.Client()
				res := c.Send(peers.Get("/")).Want(tc.status, tc.body)
				if d := time.Since(began); d != tc.after {
					t.Errorf("answered after %v, want %v", d, tc.after)
				}
				if got := res.Header.Get("X-Retryproxy-Attempts"); got != tc.attempts || fmt.Sprint(m.Up.Sends()) != tc.attempts {
					t.Errorf("attempts %q, %d sends, want %s", got, m.Up.Sends(), tc.attempts)
				}
				if o := m.Seen.Outcome(t, 0); o != tc.outcome {
					t.Errorf("outcome %v, want %v", o, tc.outcome)
				}
				if !slices.Equal(m.Seen.Classes, tc.classes) || m.Seen.HedgesSent != tc.hedged || m.Seen.HedgesWon != tc.won {
					t.Errorf("classes %v, %d hedges, %d won", m.Seen.Classes, m.Seen.HedgesSent, m.Seen.HedgesWon)
				}
				synctest.Wait()
				if g := m.Guard(); g.InFlight-g.Abandoned != 0 {
					t.Errorf("places were not given back: %+v", g)
				}
				for i := range m.Up.Sends() {
					if got := peers.FieldOf(m.Up.Head(i), "X-Retryproxy-Attempt"); got != fmt.Sprint(i+1) {
						t.Errorf("send %d says attempt %q", i+1, got)
					}
				}
				_ = c.SetReadDeadline(time.Now().Add(time.Second))
				if _, err := c.Reader.ReadByte(); !rawsocket.IsTimeout(err) {
					t.Errorf("the client's connection: %v", err)
				}
			})
		})
	}
}

// Whatever speaks against a retry speaks against a hedge, and some more.
func TestNoHedge(t *testing.T) {
	keyed := strings.Replace(peers.Post("abc"), "\r\n\r\n", "\r\nIdempotency-Key: 1\r\n\r\n", 1)
	const soon = 10 * time.Millisecond // before the hedge is due
	routeKey := proxytest.RoutePauseKey(t)
	for _, tc := range []struct {
		name    string
		request string
		change  func(c *proxy.Config)
		then    func(m *proxytest.Memory) // while the request is in flight
		sends   int
	}{
		{name: "a hedge", sends: 2},
		{name: "PUT", request: strings.Replace(peers.Post("abc"), "POST", "PUT", 1), sends: 2},
		{name: "with a key", request: keyed, sends: 2},
		{name: "chunked, may run twice", request: peers.PostChunked, change: func(c *proxy.Config) { c.Default.Policy.Unsafe = true }, sends: 2},
		{name: "POST", request: peers.Post("abc"), sends: 1},
		{name: "POST, key of our own", request: peers.Post("abc"), change: func(c *proxy.Config) { c.Default.GenerateKey = true }, sends: 2},
		{name: "off", change: func(c *proxy.Config) { c.Default.HedgeAfter = hedge.After{} }, sends: 1},
		{name: "nothing learnt yet", change: func(c *proxy.Config) { c.Default.HedgeAfter = peers.HedgeAfter(t, "p95") }, sends: 1},
		{name: "retries off", change: func(c *proxy.Config) { c.Default.Policy.MaxRetries = 0 }, sends: 1},
		{name: "a retry of somebody's", request: strings.Replace(peers.Get("/"), "\r\n\r\n", "\r\nX-Retryproxy-Attempt: 2\r\n\r\n", 1),
			change: func(c *proxy.Config) { c.Default.LayeredRetries = policy.LayeredDeny }, sends: 1},
		{name: "a body that is not kept", request: keyed, change: func(c *proxy.Config) { c.Default.RetryBufferBytes = 2 }, sends: 1},
		{name: "no retry buffer", request: strings.Replace(peers.PostChunked, "POST", "PUT", 1), change: func(c *proxy.Config) { c.RetryBufferTotalBytes = 1 }, sends: 1},
		{name: "budget empty", change: func(c *proxy.Config) { c.Default.NoBudget = false }, sends: 1},
		{name: "budget", change: func(c *proxy.Config) { c.Default.NoBudget, c.Default.Budget.Burst = false, 1 }, sends: 2},
		{name: "an upgrade", request: strings.Replace(peers.Get("/"), "\r\n\r\n", "\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", 1), sends: 1},
		{name: "a stream of events", request: strings.Replace(peers.Get("/"), "\r\n\r\n", "\r\nAccept: text/event-stream\r\n\r\n", 1), sends: 1},
		{name: "observing", change: func(c *proxy.Config) { c.Default.DryRun = true }, sends: 1},
		{name: "switched off", then: func(m *proxytest.Memory) { m.SetRetryPercent(0) }, sends: 1},
		{name: "draining", then: func(m *proxytest.Memory) { go func() { _ = m.Drain(context.Background()) }() }, sends: 1},
		{name: "breaker opened", change: func(c *proxy.Config) {
			peers.WithBreaker(c)
			c.Default.HedgeAfter = peers.HedgeAfter(t, "500ms")
			refuseDials(c, 495*time.Millisecond)
		}, then: func(m *proxytest.Memory) {
			other := m.Client().Send(peers.Get("/other"))
			for m.Guard().Breaker == breaker.Closed {
				time.Sleep(time.Millisecond)
			}
			other.Close()
		}, sends: 1},
		{name: "breaker open", change: peers.WithBreaker, sends: 2},
		{name: "limit reached", change: func(c *proxy.Config) {
			c.Default.Guard = breaker.Options{ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1}
		}, sends: 1},
		{name: "below the limit", change: func(c *proxy.Config) {
			c.Default.Guard = breaker.Options{ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 2}
		}, sends: 2},
		{name: "cool-down", change: func(c *proxy.Config) {
			c.Default.RateLimitPause = proxy.RateLimitPause{SharedBy: admission.Sharing{Route: true}, Max: time.Minute}
		}, then: func(m *proxytest.Memory) {
			m.ApplyRateLimitPause(routeKey, time.Minute)
		}, sends: 1},
		{name: "the head has begun to come", then: func(m *proxytest.Memory) { m.Up.Each(func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200") }) }, sends: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			proxytest.InMemory(t, peers.NeverResponds, func(c *proxy.Config) {
				peers.Hedged(t)(c)
				c.Default.AttemptTimeout = 0
				if tc.change != nil {
					tc.change(c)
				}
			}, func(t *testing.T, m *proxytest.Memory) {
				if tc.request == "" {
					tc.request = peers.Get("/")
				}
				c := m.Client().Send(tc.request)
				time.Sleep(soon)
				if tc.then != nil {
					tc.then(m)
				}
				time.Sleep(time.Second)
				if m.Up.Sends() != tc.sends {
					t.Errorf("%d sends, want %d", m.Up.Sends(), tc.sends)
				}
				if u := m.Stats().Upstreams[0]; u.HasBudget && u.BudgetTokens != 0 {
					t.Errorf("%v tokens left", u.BudgetTokens)
				}
				c.Close()
				m.Seen.Outcome(t, 0)
				time.Sleep(time.Second) // the drain of a case ends
			})
		})
	}
}

// refuseDials makes the default route's upstream refuse all connections but the first for that long.
func refuseDials(c *proxy.Config, long time.Duration) {
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
		"none":    peers.Get("/a?b=c"),
		"length":  "PUT /a HTTP/1.1\r\nHost: a\r\nX-Request-Timeout: 9\r\nContent-Length: 3\r\n\r\nabc",
		"chunked": "PUT /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nX-T: 1\r\n\r\n",
		"large":   "PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("0123456789", 30_000),
	} {
		t.Run(name, func(t *testing.T) {
			bodies := make(chan string, 2)
			keep := func(then func(c *peers.Conn)) func(c *peers.Conn) {
				return func(c *peers.Conn) {
					bodies <- string(peers.DiscardBody(c, c.Head()))
					then(c)
				}
			}
			u := peers.StartUpstream(t, peers.ByConn(keep(peers.NeverResponds), keep(func(c *peers.Conn) { c.Say(peers.OK200) })))
			p := proxytest.Start(t, u, peers.Hedged(t))
			p.Dial().Send(request).Want(200, "ok")
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
			if a, b := u.Head(0), u.Head(1); cut(a) != cut(b) || (peers.FieldOf(a, "X-Request-Timeout") == "") != (peers.FieldOf(b, "X-Request-Timeout") == "") {
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
			proxytest.InMemory(t, nil, func(c *proxy.Config) {
				peers.Hedged(t)(c)
				c.Default.NoBudget, c.Default.Budget = false, budget.Config{Burst: 5}
			}, func(t *testing.T, m *proxytest.Memory) {
				dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
					switch n := dials.Add(1); {
					case n > 1 && end == nil:
						<-ctx.Done()
						return nil, ctx.Err()
					case n > 1:
						return nil, end
					}
					ours, theirs := net.Pipe()
					m.Up.Serve(t, theirs, peers.RespondsAfter(time.Second, peers.OK200))
					return ours, nil
				}
				n := *m.Config
				n.Default.Upstream.Dial = dial
				n.Default.Upstream.Host = "other.test"
				n.Default.Upstream.Address = "other.test:80"
				if err := m.Reload(&n); err != nil {
					t.Fatal(err)
				}
				res := m.Client().Send(peers.Get("/")).Want(200, "ok")
				m.Seen.Outcome(t, 0)
				tokens := m.Stats().Upstreams[0].BudgetTokens
				if dials.Load() != 2 || m.Seen.HedgesSent != 0 || tokens != 5 {
					t.Errorf("%d dials, %d hedges, %v tokens", dials.Load(), m.Seen.HedgesSent, tokens)
				}
				want, classes := "1", []policy.Class{policy.ClassNone}
				if end != nil { // it was tried
					want, classes = "2", []policy.Class{policy.NotSent, policy.ClassNone}
				}
				if got := res.Header.Get("X-Retryproxy-Attempts"); got != want || !slices.Equal(m.Seen.Classes, classes) {
					t.Errorf("attempts %s, classes %v", got, m.Seen.Classes)
				}
			})
		})
	}
}

// Clients who leave end both attempts, whatever state these are in.
func TestTheClientLeavesDuringAHedge(t *testing.T) {
	for name, first := range map[string]func(c *peers.Conn){
		"both are out":           peers.NeverResponds,
		"the first has failed":   peers.RespondsAfter(30*time.Millisecond, peers.Bad503),
		"the first was reset":    peers.RespondsAfter(30*time.Millisecond, ""),
		"only the hedge is left": func(c *peers.Conn) { c.Head(); time.Sleep(30 * time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemory(t, peers.ByConn(first, peers.NeverResponds), peers.Hedged(t), func(t *testing.T, m *proxytest.Memory) {
				c := m.Client().Send(peers.Get("/"))
				time.Sleep(time.Second)
				if m.Up.Sends() != 2 {
					t.Fatalf("%d sends", m.Up.Sends())
				}
				c.Close()
				synctest.Wait()
				if len(m.Seen.Outcomes) != 1 || m.Seen.Outcomes[0] != policy.OutcomeClientGone || m.Seen.Attempts[0] != 2 || len(m.Seen.Classes) != 2 || m.Seen.HedgesWon != 0 || m.Seen.HedgesSent != 1 {
					t.Errorf("outcomes %v, classes %v, attempts %v, %d hedges", m.Seen.Outcomes, m.Seen.Classes, m.Seen.Attempts, m.Seen.HedgesSent)
				}
				if slices.Contains(m.Seen.Classes, policy.ClassNone) || slices.Contains(m.Seen.Classes, policy.Overtaken) || slices.Contains(m.Seen.Classes, policy.NotSent) {
					t.Errorf("classes %v", m.Seen.Classes)
				}
				m.Up.Each(func(net.Conn) { t.Error("a connection to the upstream is still open") })
				if g := m.Guard(); g.InFlight-g.Abandoned != 0 {
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
	proxytest.InMemory(t, nil, peers.Hedged(t), func(t *testing.T, m *proxytest.Memory) {
		n := *m.Config
		n.Default.Upstream.Host, n.Default.Upstream.Address = "other.test", "other.test:80"
		n.Default.Upstream.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			if dials.Add(1) > 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			ours, theirs := net.Pipe()
			m.Up.Serve(t, theirs, peers.RespondsAfter(30*time.Millisecond, peers.Bad503))
			return ours, nil
		}
		if err := m.Reload(&n); err != nil {
			t.Fatal(err)
		}
		c := m.Client().Send(peers.Get("/"))
		time.Sleep(time.Second)
		c.Close()
		synctest.Wait()
		if dials.Load() != 2 || m.Seen.HedgesSent != 0 || !slices.Equal(m.Seen.Attempts, []int{1}) || !slices.Equal(m.Seen.Classes, []policy.Class{policy.Unknown}) {
			t.Errorf("%d dials, %d hedges, attempts %v, classes %v", dials.Load(), m.Seen.HedgesSent, m.Seen.Attempts, m.Seen.Classes)
		}
	})
}

// The percentile is learnt from the route's own responses, and a reload keeps it.
func TestHedgeAfterWhatIsUsual(t *testing.T) {
	var seen atomic.Bool
	handle := func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			d := 10 * time.Millisecond
			if strings.HasPrefix(headers, "GET /slow ") && !seen.Swap(true) {
				d = time.Minute
			} else if strings.HasPrefix(headers, "POST") {
				d = time.Second
			}
			if !c.Stays(d) {
				return
			}
			c.Say(peers.OK200)
		}
	}
	proxytest.InMemory(t, handle, func(c *proxy.Config) { c.Default.HedgeAfter = peers.HedgeAfter(t, "p95") }, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		for i := range 250 {
			if c.Send(peers.Get("/")).Want(200, "ok"); i%10 == 0 {
				c.Send(peers.Post("")).Want(200, "ok") // which is never hedged and teaches nothing
			}
		}
		n := *m.Config
		if err := m.Reload(&n); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		c.Send(peers.Get("/slow")).Want(200, "ok")
		if d := time.Since(began); d < 20*time.Millisecond || d > 22*time.Millisecond {
			t.Errorf("answered after %v, want 10 ms after a hedge at 10 to 12 ms", d)
		}
		if m.Seen.HedgesWon != 1 || m.Seen.HedgesSent != 1 {
			t.Errorf("%d hedges, %d won", m.Seen.HedgesSent, m.Seen.HedgesWon)
		}
	})
}

// An overtaken attempt counts as a slow one; otherwise hedges would be sent earlier and earlier.
func TestAnOvertakenAttemptIsLearntFrom(t *testing.T) {
	handle := func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			d := 10 * time.Millisecond
			if strings.HasPrefix(headers, "GET /slow ") && peers.FieldOf(headers, "X-Retryproxy-Attempt") == "1" {
				d = time.Minute
			}
			if !c.Stays(d) {
				return
			}
			c.Say(peers.OK200)
		}
	}
	proxytest.InMemory(t, handle, func(c *proxy.Config) { c.Default.HedgeAfter = peers.HedgeAfter(t, "p95") }, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		for range 250 {
			c.Send(peers.Get("/")).Want(200, "ok")
		}
		for range 40 {
			c.Send(peers.Get("/slow")).Want(200, "ok")
		}
		time.Sleep(time.Second)
		began := time.Now()
		c.Send(peers.Get("/slow")).Want(200, "ok")
		if d := time.Since(began) - 10*time.Millisecond; d < 20*time.Millisecond {
			t.Errorf("one in seven was waited for 20 ms at least, and the 95th percentile is %v", d)
		}
	})
}

// The fallback upstream gets one attempt and no hedge.
func TestTheFallbackIsNotHedged(t *testing.T) {
	proxytest.InMemoryWithFallback(t, peers.Script(peers.Bad503), peers.RespondsAfter(time.Second, peers.FallbackOK), peers.Hedged(t), func(t *testing.T, m *proxytest.Memory, s *peers.FallbackServer) {
		m.Client().Send(peers.Get("/")).Want(200, "spare")
		if s.Sends() != 1 || m.Seen.HedgesSent != 0 {
			t.Errorf("%d sends to the fallback, %d hedges", s.Sends(), m.Seen.HedgesSent)
		}
	})
}

// Informational answers are the first attempt's.
func TestAHedgesInformationalResponsesAreDropped(t *testing.T) {
	early := "HTTP/1.1 103 Early Hints\r\nLink: <%s>\r\n\r\n"
	proxytest.InMemory(t, peers.ByConn(
		func(c *peers.Conn) { c.Head(); c.Say(early, "first"); c.Stays(time.Minute) },
		func(c *peers.Conn) { c.Head(); c.Say(early, "second"); c.Say(early, "second"); c.Say(peers.OK200) },
	), peers.Hedged(t), func(t *testing.T, m *proxytest.Memory) {
		c := m.Client().Send(peers.Get("/"))
		res := c.Want(103, "*")
		if got := res.Header.Get("Link"); got != "<first>" {
			t.Errorf("link %q", got)
		}
		c.Want(200, "ok")
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
			proxytest.InMemory(t, peers.ByConn(peers.RespondsAfter(100*time.Millisecond, peers.OK200), func(c *peers.Conn) { c.Head(); c.Say("%s", nonsense) }), peers.Hedged(t), func(t *testing.T, m *proxytest.Memory) {
				m.Client().Send(peers.Get("/")).Want(200, "ok")
				m.Seen.Outcome(t, 0)
				if !slices.Equal(m.Seen.Classes, []policy.Class{policy.Unknown, policy.ClassNone}) {
					t.Errorf("classes %v", m.Seen.Classes)
				}
			})
		})
	}
}

// A large head of the hedge's answer comes in many pieces.
func TestAHedgesLargeHeaders(t *testing.T) {
	long := strings.Repeat("y", 40<<10)
	proxytest.InMemory(t, peers.ByConn(peers.NeverResponds, func(c *peers.Conn) {
		c.Head()
		for _, part := range []string{"HTTP/1.1 200 OK\r\nX-Long: ", long, "\r\nContent-Length: 40960\r\n\r\n", long} {
			c.Say("%s", part)
		}
	}), peers.Hedged(t), func(t *testing.T, m *proxytest.Memory) {
		if res := m.Client().Send(peers.Get("/")).Want(200, long); res.Header.Get("X-Long") != long {
			t.Error("the field is not whole")
		}
	})
}

// A slow response shows that the upstream responds, whichever attempt gets it: the other attempt is no evidence.
func TestARaceIsNoSilence(t *testing.T) {
	for name, slowest := range map[string]string{"the first wins": "2", "the hedge wins": "1"} {
		t.Run(name, func(t *testing.T) {
			handle := func(c *peers.Conn) {
				for headers := c.Head(); headers != ""; headers = c.Head() {
					d := 5 * time.Millisecond
					if strings.HasPrefix(headers, "GET /slow ") {
						d = 3 * time.Second
						if peers.FieldOf(headers, "X-Retryproxy-Attempt") == slowest {
							d = time.Minute
						}
					}
					if !c.Stays(d) {
						return
					}
					c.Say(peers.OK200)
				}
			}
			proxytest.InMemory(t, handle, func(c *proxy.Config) {
				peers.WithBreaker(c)
				c.Default.HedgeAfter = peers.HedgeAfter(t, "300ms")
			}, func(t *testing.T, m *proxytest.Memory) {
				c := m.Client()
				for range 600 {
					c.Send(peers.Get("/")).Want(200, "ok")
				}
				time.Sleep(time.Second) // all other responses are seen before the race begins
				c.Send(peers.Get("/slow")).Want(200, "ok")
				if g := m.Guard(); m.Seen.HedgesSent != 1 || g.Breaker != breaker.Closed || g.Opened != [breaker.NumOpenedBy]uint64{} {
					t.Errorf("%d hedges, breaker %v, opened %v", m.Seen.HedgesSent, g.Breaker, g.Opened)
				}
			})
		})
	}
}
