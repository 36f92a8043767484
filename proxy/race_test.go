package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
)

// The same over real sockets: what the upstream sees of it.

// hedgedOnce is hedged without a time limit that a slow machine could meet.
func hedgedOnce(t testing.TB) func(c *Config) {
	return func(c *Config) {
		hedged(t)(c)
		c.Default.AttemptTimeout, c.Default.RequestTimeout = 0, 0
	}
}

// unhedged is a request that is never hedged.
const unhedged = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"

func TestASlowFirstAnswerIsOvertaken(t *testing.T) {
	ended := make(chan error, 1)
	body := strings.Repeat("0123456789abcdef", 20_000)
	u := startUpstream(t, byConn(
		func(c *upConn) {
			c.head()
			_, err := c.ReadByte()
			ended <- err
		},
		func(c *upConn) {
			c.head()
			c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n%x\r\n%s\r\n0\r\nX-T: 1\r\n\r\n", len(body), body)
			for c.head() != "" {
				c.say(ok200)
			}
		},
	))
	p := startProxy(t, u, hedgedOnce(t))
	c := p.dial()
	res := c.send(get("/")).want(200, body)
	if res.Trailer.Get("X-T") != "1" || res.Header.Get("X-Retryproxy-Attempts") != "2" {
		t.Errorf("%v, trailer %v", res.Header, res.Trailer)
	}
	if err := <-ended; err == nil {
		t.Error("the loser was not cancelled")
	}
	if o := p.seen.outcome(t, 0); o != policy.OutcomeSuccess || p.seen.hedged != 1 || p.seen.hedgesWon != 1 {
		t.Errorf("outcome %v, %d hedges, %d won", o, p.seen.hedged, p.seen.hedgesWon)
	}
	if g := p.guard(); g.Abandoned != 1 {
		t.Errorf("%+v: the upstream may still work on the first attempt", g)
	}
	c.send(unhedged).want(200, "ok") // on the connection of the hedge
	if u.connections() != 2 {
		t.Errorf("%d connections", u.connections())
	}
}

// The hedge that was sent in vain ends at once, and the connection of the first
// attempt, whose deadline it moved, serves on.
func TestTheFirstAnswerAfterAHedgeWasSent(t *testing.T) {
	hedge, ended := make(chan bool), make(chan error, 1)
	u := startUpstream(t, byConn(
		func(c *upConn) {
			c.head()
			select {
			case <-hedge:
			case <-time.After(time.Minute):
				t.Error("no hedge")
			}
			c.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfi")
			time.Sleep(30 * time.Millisecond) // longer than the time of a hedge
			c.say("rst")
			for c.head() != "" {
				c.say(ok200)
			}
		},
		func(c *upConn) {
			c.head()
			close(hedge)
			_, err := c.ReadByte()
			ended <- err
		},
	))
	p := startProxy(t, u, hedgedOnce(t))
	c := p.dial()
	c.send(get("/")).want(200, "first")
	if err := <-ended; err == nil {
		t.Error("the loser was not cancelled")
	}
	c.send(unhedged).want(200, "ok")
	p.seen.outcome(t, 1)
	if p.seen.hedged != 1 || p.seen.hedgesWon != 0 || u.connections() != 2 {
		t.Errorf("%d hedges, %d won, %d connections", p.seen.hedged, p.seen.hedgesWon, u.connections())
	}
}

func TestHedgeOverHTTP2(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("secure ", secure), func(t *testing.T) {
			var n atomic.Int32
			ended, bodies := make(chan struct{}), make(chan string, 2)
			serve := func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				bodies <- string(body)
				if n.Add(1) == 1 {
					<-r.Context().Done()
					close(ended)
					return
				}
				_, _ = io.WriteString(w, "second of "+r.Proto)
			}
			var p *testProxy
			if secure {
				port, trust := secureHTTP2Server(t, false, serve)
				p = startProxyTo(t, "https://secure.test:"+port, func(c *Config) { trust(c); hedgedOnce(t)(c) })
			} else {
				p = startProxyTo(t, "h2c://"+http2Server(t, nil, false, serve), hedgedOnce(t))
			}
			p.dial().send(strings.Replace(post("abc"), "POST", "PUT", 1)).want(200, "second of HTTP/2.0")
			<-ended
			if a, b := <-bodies, <-bodies; a != "abc" || b != "abc" {
				t.Errorf("bodies %q and %q", a, b)
			}
			if p.seen.outcome(t, 0); p.seen.hedgesWon != 1 || p.Stats().Upstreams[0].Pool.Dials != 1 {
				t.Errorf("%d hedges won, %+v", p.seen.hedgesWon, p.Stats().Upstreams[0].Pool)
			}
		})
	}
}

// Neither attempt outlives its client, and none its server.
func TestTheClientLeavesARaceOverSockets(t *testing.T) {
	for name, end := range map[string]func(p *testProxy, c *client){
		"the client leaves": func(_ *testProxy, c *client) { c.Close() },
		"the server ends":   func(p *testProxy, _ *client) { p.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			var both sync.WaitGroup
			both.Add(2)
			ended := make(chan error, 2)
			u := startUpstream(t, func(c *upConn) {
				c.head()
				both.Done()
				_, err := c.ReadByte()
				ended <- err
			})
			p := startProxy(t, u, hedgedOnce(t))
			c := p.dial().send(get("/"))
			both.Wait()
			end(p, c)
			for range 2 {
				if err := <-ended; err == nil {
					t.Error("an attempt was not cancelled")
				}
			}
			if o := p.seen.outcome(t, 0); o != policy.OutcomeClientGone {
				t.Errorf("outcome %v", o)
			}
		})
	}
}

// Many races at once with an upstream that does what it likes: each client gets
// one whole response, nothing is left behind, and all counts add up.
func TestHedgesAddUp(t *testing.T) {
	u := startUpstream(t, func(c *upConn) {
		for headers := c.head(); headers != ""; headers = c.head() {
			if !c.stays(time.Duration(rand.IntN(4)) * time.Millisecond) {
				return
			}
			switch body := strings.Repeat(fieldOf(headers, "X-Body"), 500); rand.IntN(12) {
			case 0:
				c.reset()
				return
			case 1:
				return
			case 2:
				c.say("%s", reply(503, "busy"))
			case 3:
				c.say("%s", lastly503)
				return
			case 4:
				c.say("HTTP/1.1 200 O")
				c.stays(time.Millisecond)
				c.say("K\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			default:
				c.say("%s", reply(200, body))
			}
		}
	})
	m := metrics.New(metrics.Options{})
	seen := &both{recorder: &recorder{}, route: m.Route("default").Near()}
	p := startProxy(t, u, func(c *Config) {
		c.Default.HedgeAfter = hedgeAfter(t, "1ms")
		c.Default.Policy.MaxRetries = 8
		c.Observe = always(seen)
		c.Default.Guard = breaker.Options{NoBreaker: true, ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1000}
	})
	const clients, each = 8, 60
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			c := p.dial()
			for j := range each {
				mine := fmt.Sprintf("%d-%d ", i, j)
				_, _ = io.WriteString(c.Conn, "GET / HTTP/1.1\r\nHost: a\r\nX-Body: "+mine+"\r\n\r\n")
				res, body, err := c.response("GET")
				if err != nil || res.StatusCode == 200 && body != strings.Repeat(strings.TrimSpace(mine), 500) || res.StatusCode != 200 && res.StatusCode < 500 {
					t.Errorf("%d %d: %v", i, j, err)
					return
				}
			}
		})
	}
	wg.Wait()
	r := seen.recorder
	r.outcome(t, clients*each-1)
	defer r.lock()()
	attempts := 0
	for _, n := range r.attempts {
		attempts += n
	}
	if r.began != clients*each || len(r.outcomes) != r.began || attempts != len(r.classes) {
		t.Errorf("%d begun, %d outcomes, %d attempts, of which %d were counted", r.began, len(r.outcomes), attempts, len(r.classes))
	}
	if r.hedged == 0 || r.hedgesWon == 0 || r.hedgesWon > r.hedged || attempts < r.began+len(r.retries)+r.hedged {
		t.Errorf("%d hedges, %d won, %d retries, %d attempts", r.hedged, r.hedgesWon, len(r.retries), attempts)
	}
}

// A gRPC call may be a stream, so none is hedged, whatever the route retries.
func TestGRPCCallsAreNotHedged(t *testing.T) {
	addr, allHeaders := grpcServer(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		time.Sleep(100 * time.Millisecond)
		ok(w, r)
	})
	p := startProxyTo(t, "h2c://"+addr, func(c *Config) {
		speakGRPC(t, "grpc-unavailable")(c)
		c.Default.Policy.Unsafe = true
		c.Default.HedgeAfter = hedgeAfter(t, "1ms")
	})
	if a := p.call(bytes.NewReader(message("x"))); a.status != "0" {
		t.Error(a)
	}
	if p.seen.outcome(t, 0); p.seen.hedged != 0 || len(allHeaders) != 1 {
		t.Errorf("%d hedges, %d sends", p.seen.hedged, len(allHeaders))
	}
}

// A fault in the hedge's goroutine leaves the first attempt alone.
func TestAPanicInAHedgeIsContained(t *testing.T) {
	var dials atomic.Int32
	counted := make(chan struct{}) // the first attempt is answered after the fault of the second one
	u := startUpstream(t, func(c *upConn) { c.head(); <-counted; c.say(ok200) })
	answer := sync.OnceFunc(func() { close(counted) })
	t.Cleanup(answer)
	p := startProxy(t, u, func(c *Config) {
		hedgedOnce(t)(c)
		c.Default.Upstream.Dial = func(context.Context, string, string) (net.Conn, error) {
			if dials.Add(1) > 1 {
				panic("a fault of the test")
			}
			return net.Dial("tcp", u.Addr().String())
		}
	})
	c := p.dial().send(get("/"))
	eventually(t, "the fault is counted", func() bool { return p.Stats().Faults == 1 })
	answer()
	c.want(200, "ok")
	if p.seen.outcome(t, 0); p.seen.attempts[0] != 2 || len(p.seen.classes) != 2 {
		t.Errorf("attempts %v, classes %v", p.seen.attempts, p.seen.classes)
	}
	p.wantFaults(1)
}

// faultyRace is an observer that fails when the loser of a race is counted.
type faultyRace struct{ *recorder }

func (faultyRace) AttemptDone(policy.Class, int, time.Duration) { panic("a fault of the test") }

// A fault in the middle of a race ends both attempts.
func TestAPanicDuringAHedgeEndsBothAttempts(t *testing.T) {
	ended := make(chan error, 2)
	u := startUpstream(t, byConn(
		func(c *upConn) { c.head(); _, err := c.ReadByte(); ended <- err },
		func(c *upConn) { c.head(); c.say(ok200); _, err := c.ReadByte(); ended <- err },
	))
	p := startProxy(t, u, func(c *Config) {
		hedgedOnce(t)(c)
		seen := c.Observe("")().(*recorder)
		c.Observe = always(faultyRace{seen})
	})
	c := p.dial().send(get("/"))
	if s, err := c.rest(); s != "" || err == nil {
		t.Errorf("the faulty request got %q, %v", s, err)
	}
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("an attempt was not ended")
		}
	}
	if o := p.seen.outcome(t, 0); o != policy.OutcomeResponseBroken {
		t.Errorf("outcome %v", o)
	}
	p.wantFaults(1)
}

// both is a recorder and the real metrics.
type both struct {
	*recorder
	route *metrics.Stripe
}

func (b *both) Hedged()   { b.recorder.Hedged(); b.route.Hedged() }
func (b *both) HedgeWon() { b.recorder.HedgeWon(); b.route.HedgeWon() }
