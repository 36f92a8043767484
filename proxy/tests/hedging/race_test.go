package hedging

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
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// The same over real sockets: what the upstream sees of it.

// unhedged is a request that is never hedged.
const unhedged = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"

func TestASlowFirstAnswerIsOvertaken(t *testing.T) {
	ended := make(chan error, 1)
	body := strings.Repeat("0123456789abcdef", 20_000)
	u := peers.StartUpstream(t, peers.ByConn(
		func(c *peers.Conn) {
			c.Head()
			_, err := c.ReadByte()
			ended <- err
		},
		func(c *peers.Conn) {
			c.Head()
			c.Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n%x\r\n%s\r\n0\r\nX-T: 1\r\n\r\n", len(body), body)
			for c.Head() != "" {
				c.Say(peers.OK200)
			}
		},
	))
	p := proxytest.Start(t, u, peers.HedgedOnce(t))
	c := p.Dial()
	res := c.Send(peers.Get("/")).Want(200, body)
	if res.Trailer.Get("X-T") != "1" || res.Header.Get("X-Retryproxy-Attempts") != "2" {
		t.Errorf("%v, trailer %v", res.Header, res.Trailer)
	}
	if err := <-ended; err == nil {
		t.Error("the loser was not cancelled")
	}
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeSuccess || p.Seen.HedgesSent != 1 || p.Seen.HedgesWon != 1 {
		t.Errorf("outcome %v, %d hedges, %d won", o, p.Seen.HedgesSent, p.Seen.HedgesWon)
	}
	if g := p.Guard(); g.Abandoned != 1 {
		t.Errorf("%+v: the upstream may still work on the first attempt", g)
	}
	c.Send(unhedged).Want(200, "ok") // on the connection of the hedge
	if u.Connections() != 2 {
		t.Errorf("%d connections", u.Connections())
	}
}

// The hedge that was sent in vain ends at once, and the connection of the first
// attempt, whose deadline it moved, serves on.
func TestTheFirstAnswerAfterAHedgeWasSent(t *testing.T) {
	hedge, ended := make(chan bool), make(chan error, 1)
	u := peers.StartUpstream(t, peers.ByConn(
		func(c *peers.Conn) {
			c.Head()
			select {
			case <-hedge:
			case <-time.After(time.Minute):
				t.Error("no hedge")
			}
			c.Say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfi")
			time.Sleep(30 * time.Millisecond) // longer than the time of a hedge
			c.Say("rst")
			for c.Head() != "" {
				c.Say(peers.OK200)
			}
		},
		func(c *peers.Conn) {
			c.Head()
			close(hedge)
			_, err := c.ReadByte()
			ended <- err
		},
	))
	p := proxytest.Start(t, u, peers.HedgedOnce(t))
	c := p.Dial()
	c.Send(peers.Get("/")).Want(200, "first")
	if err := <-ended; err == nil {
		t.Error("the loser was not cancelled")
	}
	c.Send(unhedged).Want(200, "ok")
	p.Seen.Outcome(t, 1)
	if p.Seen.HedgesSent != 1 || p.Seen.HedgesWon != 0 || u.Connections() != 2 {
		t.Errorf("%d hedges, %d won, %d connections", p.Seen.HedgesSent, p.Seen.HedgesWon, u.Connections())
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
			var p *proxytest.Proxy
			if secure {
				port, trust := peers.SecureHTTP2Server(t, false, serve)
				p = proxytest.StartTo(t, "https://secure.test:"+port, func(c *proxy.Config) { trust(c); peers.HedgedOnce(t)(c) })
			} else {
				p = proxytest.StartTo(t, "h2c://"+peers.HTTP2Server(t, nil, false, serve), peers.HedgedOnce(t))
			}
			p.Dial().Send(strings.Replace(peers.Post("abc"), "POST", "PUT", 1)).Want(200, "second of HTTP/2.0")
			<-ended
			if a, b := <-bodies, <-bodies; a != "abc" || b != "abc" {
				t.Errorf("bodies %q and %q", a, b)
			}
			if p.Seen.Outcome(t, 0); p.Seen.HedgesWon != 1 || p.Stats().Upstreams[0].Pool.Dials != 1 {
				t.Errorf("%d hedges won, %+v", p.Seen.HedgesWon, p.Stats().Upstreams[0].Pool)
			}
		})
	}
}

// Neither attempt outlives its client, and none its server.
func TestTheClientLeavesARaceOverSockets(t *testing.T) {
	for name, end := range map[string]func(p *proxytest.Proxy, c *peers.Client){
		"the client leaves": func(_ *proxytest.Proxy, c *peers.Client) { c.Close() },
		"the server ends":   func(p *proxytest.Proxy, _ *peers.Client) { p.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			var both sync.WaitGroup
			both.Add(2)
			ended := make(chan error, 2)
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				c.Head()
				both.Done()
				_, err := c.ReadByte()
				ended <- err
			})
			p := proxytest.Start(t, u, peers.HedgedOnce(t))
			c := p.Dial().Send(peers.Get("/"))
			both.Wait()
			end(p, c)
			for range 2 {
				if err := <-ended; err == nil {
					t.Error("an attempt was not cancelled")
				}
			}
			if o := p.Seen.Outcome(t, 0); o != policy.OutcomeClientGone {
				t.Errorf("outcome %v", o)
			}
		})
	}
}

// Many races at once with an upstream that does what it likes: each client gets
// one whole response, nothing is left behind, and all counts add up.
func TestHedgesAddUp(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			if !c.Stays(time.Duration(rand.IntN(4)) * time.Millisecond) {
				return
			}
			switch body := strings.Repeat(peers.FieldOf(headers, "X-Body"), 500); rand.IntN(12) {
			case 0:
				c.Reset()
				return
			case 1:
				return
			case 2:
				c.Say("%s", peers.Response(503, "busy"))
			case 3:
				c.Say("%s", peers.Bad503Closing)
				return
			case 4:
				c.Say("HTTP/1.1 200 O")
				c.Stays(time.Millisecond)
				c.Say("K\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			default:
				c.Say("%s", peers.Response(200, body))
			}
		}
	})
	m := metrics.New(metrics.Options{})
	seen := &both{Recorder: &peers.Recorder{}, route: m.Route("default").Near()}
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		c.Default.HedgeAfter = peers.HedgeAfter(t, "1ms")
		c.Default.Policy.MaxRetries = 8
		c.Observe = peers.Always(seen)
		c.Default.Guard = breaker.Options{NoBreaker: true, ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1000}
	})
	const clients, each = 8, 60
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			c := p.Dial()
			for j := range each {
				mine := fmt.Sprintf("%d-%d ", i, j)
				_, _ = io.WriteString(c.Conn, "GET / HTTP/1.1\r\nHost: a\r\nX-Body: "+mine+"\r\n\r\n")
				res, body, err := c.Response("GET")
				if err != nil || res.StatusCode == 200 && body != strings.Repeat(strings.TrimSpace(mine), 500) || res.StatusCode != 200 && res.StatusCode < 500 {
					t.Errorf("%d %d: %v", i, j, err)
					return
				}
			}
		})
	}
	wg.Wait()
	r := seen.Recorder
	r.Outcome(t, clients*each-1)
	defer r.Lock()()
	attempts := 0
	for _, n := range r.Attempts {
		attempts += n
	}
	if r.Began != clients*each || len(r.Outcomes) != r.Began || attempts != len(r.Classes) {
		t.Errorf("%d begun, %d outcomes, %d attempts, of which %d were counted", r.Began, len(r.Outcomes), attempts, len(r.Classes))
	}
	if r.HedgesSent == 0 || r.HedgesWon == 0 || r.HedgesWon > r.HedgesSent || attempts < r.Began+len(r.Retries)+r.HedgesSent {
		t.Errorf("%d hedges, %d won, %d retries, %d attempts", r.HedgesSent, r.HedgesWon, len(r.Retries), attempts)
	}
}

// A gRPC call may be a stream, so none is hedged, whatever the route retries.
func TestGRPCCallsAreNotHedged(t *testing.T) {
	addr, allHeaders := peers.GRPCServer(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		time.Sleep(100 * time.Millisecond)
		peers.GRPCEcho(w, r)
	})
	p := proxytest.StartTo(t, "h2c://"+addr, func(c *proxy.Config) {
		peers.SpeakGRPC(t, "grpc-unavailable")(c)
		c.Default.Policy.Unsafe = true
		c.Default.HedgeAfter = peers.HedgeAfter(t, "1ms")
	})
	if a := p.CallGRPC(bytes.NewReader(peers.GRPCMessage("x"))); a.Status != "0" {
		t.Error(a)
	}
	if p.Seen.Outcome(t, 0); p.Seen.HedgesSent != 0 || len(allHeaders) != 1 {
		t.Errorf("%d hedges, %d sends", p.Seen.HedgesSent, len(allHeaders))
	}
}

// A fault in the hedge's goroutine leaves the first attempt alone.
func TestAPanicInAHedgeIsContained(t *testing.T) {
	var dials atomic.Int32
	counted := make(chan struct{}) // the first attempt is answered after the fault of the second one
	u := peers.StartUpstream(t, func(c *peers.Conn) { c.Head(); <-counted; c.Say(peers.OK200) })
	answer := sync.OnceFunc(func() { close(counted) })
	t.Cleanup(answer)
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		peers.HedgedOnce(t)(c)
		c.Default.Upstream.Dial = func(context.Context, string, string) (net.Conn, error) {
			if dials.Add(1) > 1 {
				panic("a fault of the test")
			}
			return net.Dial("tcp", u.Addr().String())
		}
	})
	c := p.Dial().Send(peers.Get("/"))
	peers.Soon(t, "the fault is counted", func() bool { return p.Stats().Faults == 1 })
	answer()
	c.Want(200, "ok")
	if p.Seen.Outcome(t, 0); p.Seen.Attempts[0] != 2 || len(p.Seen.Classes) != 2 {
		t.Errorf("attempts %v, classes %v", p.Seen.Attempts, p.Seen.Classes)
	}
	p.WantFaults(1)
}

// faultyRace is an observer that fails when the loser of a race is counted.
type faultyRace struct{ *peers.Recorder }

func (faultyRace) AttemptDone(policy.Class, int, time.Duration) { panic("a fault of the test") }

// A fault in the middle of a race ends both attempts.
func TestAPanicDuringAHedgeEndsBothAttempts(t *testing.T) {
	ended := make(chan error, 2)
	u := peers.StartUpstream(t, peers.ByConn(
		func(c *peers.Conn) { c.Head(); _, err := c.ReadByte(); ended <- err },
		func(c *peers.Conn) { c.Head(); c.Say(peers.OK200); _, err := c.ReadByte(); ended <- err },
	))
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		peers.HedgedOnce(t)(c)
		seen := c.Observe("")().(*peers.Recorder)
		c.Observe = peers.Always(faultyRace{seen})
	})
	c := p.Dial().Send(peers.Get("/"))
	if s, err := c.Rest(); s != "" || err == nil {
		t.Errorf("the faulty request got %q, %v", s, err)
	}
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("an attempt was not ended")
		}
	}
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeResponseBroken {
		t.Errorf("outcome %v", o)
	}
	p.WantFaults(1)
}

// both is a recorder and the real metrics.
type both struct {
	*peers.Recorder
	route *metrics.Stripe
}

func (b *both) Hedged()   { b.Recorder.Hedged(); b.route.Hedged() }
func (b *both) HedgeWon() { b.Recorder.HedgeWon(); b.route.HedgeWon() }
