package proxy

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// quick returns a connection that has carried some requests, one soon after the other.
func (p *front) quick() *client {
	p.t.Helper()
	c := p.dial()
	for i := range 5 {
		c.send(get(fmt.Sprint("/quick", i))).want(200, "ok")
	}
	return c
}

// Whatever a kept-alive client sends next, in whatever pieces, is read completely.
func TestAKeptAliveClientIsServed(t *testing.T) {
	p := startProxy(t, startUpstream(t, script(ok200)), nil)
	c := p.quick()
	for range 3 {
		c.send("\r\n")
		c.send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 4\r\n\r\nbo")
		c.send("dy" + get("/1") + get("/2"))
		c.send("POST / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbo")
		c.send("dy\r\n0\r\n\r\n")
		c.send("GET /slowly HTTP/1.1\r\nHost:")
		c.send(" app.test\r\n\r\n")
		for range 5 {
			c.want(200, "ok")
		}
		c.send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 4000000\r\n\r\n") // moved by package net
		c.send(strings.Repeat("body", 1000000)).want(200, "ok")
	}
	c.closeWrite()
	c.wantEnd("")
}

// A client that half-closes right behind a request gets its response, and the connection ends.
func TestAKeptAliveClientThatHalfClosesIsAnsweredAndClosed(t *testing.T) {
	p := startProxy(t, startUpstream(t, script(ok200)), func(c *Config) { c.ParkAfter = 100 * time.Millisecond })
	for range 20 {
		c := p.quick()
		c.send(get("/last"))
		c.closeWrite()
		c.want(200, "ok")
		c.wantEnd("")
	}
}

func TestAKeptAliveClientThatLeavesEndsItsRequest(t *testing.T) {
	for name, responses := range map[string][]string{
		"in backoff":        {ok200, ok200, ok200, ok200, ok200, "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 20\r\nContent-Length: 0\r\n\r\n"},
		"while one answers": {ok200, ok200, ok200, ok200, ok200, "HTTP/1."},
	} {
		t.Run(name, func(t *testing.T) {
			serve := script(responses...)
			p := startProxy(t, startUpstream(t, func(c *upConn) {
				serve(c)
				_, _ = c.Reader.ReadByte() // until the proxy has had enough of a stalled answer
			}), nil)
			c := p.quick()
			c.send(get("/last"))
			c.Close()
			if o := p.seen.outcome(t, 5); o != policy.OutcomeClientGone {
				t.Errorf("outcome %v", o)
			}
		})
	}
}

// The end of a drain cuts off kept-alive clients, idle or waiting for a response.
func TestADrainCutsOffKeptAliveClients(t *testing.T) {
	arrived := make(chan struct{})
	p := startProxy(t, startUpstream(t, okButLast(func(c *upConn) {
		arrived <- struct{}{}
		_, _ = c.Reader.ReadByte()
	})), func(c *Config) { c.DrainTimeout = 300 * time.Millisecond })
	idle := p.quick()
	busy := p.dial()
	for range 5 {
		busy.send(get("/")).want(200, "ok")
	}
	busy.send(get("/last"))
	<-arrived
	began := time.Now()
	if err := p.Drain(context.Background()); err != ErrDrainTimeout {
		t.Errorf("%v", err)
	}
	for _, c := range []*client{idle, busy} {
		_, _ = c.rest()
	}
	soon(t, "all to end", func() bool { return p.Stats().Connections == 0 })
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
}

// okButLast answers ok, but /last as told.
func okButLast(last func(c *upConn)) func(c *upConn) {
	return func(c *upConn) {
		for {
			switch headers := c.head(); {
			case headers == "":
				return
			case strings.HasPrefix(headers, "GET /last"):
				last(c)
			default:
				c.say("%s", ok200)
			}
		}
	}
}

// drip answers with a body without end, a piece every 20 ms.
func drip(c *upConn) {
	c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
	for {
		if _, err := io.WriteString(c.Conn, "4\r\ndrip\r\n"); err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// It also cuts off responses that never pause for long enough to be watched.
func TestADrainCutsOffStreams(t *testing.T) {
	p := startProxy(t, startUpstream(t, okButLast(drip)), func(c *Config) { c.DrainTimeout = 300 * time.Millisecond })
	var ended sync.WaitGroup
	for i := range 8 {
		c := p.dial()
		for range 5 * (i % 2) {
			c.send(get("/")).want(200, "ok")
		}
		c.send(get("/last"))
		if _, err := c.r.Peek(1); err != nil {
			t.Fatal(err)
		}
		ended.Go(func() { _, _ = c.rest() }) // fails after a minute
	}
	began := time.Now()
	if err := p.Drain(context.Background()); err != ErrDrainTimeout {
		t.Errorf("%v", err)
	}
	ended.Wait()
	soon(t, "all to end", func() bool { return p.Stats().Connections == 0 })
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
}

// faultyAttempts panics at the end of an attempt that brought a 201.
type faultyAttempts struct{ *recorder }

func (f faultyAttempts) AttemptDone(class policy.Class, status int, d time.Duration) {
	if status == 201 {
		panic("a fault of the test")
	}
	f.recorder.AttemptDone(class, status, d)
}

// A fault ends the connection of a client while the second goroutine reads from it.
func TestAFaultEndsAClientThatIsWatched(t *testing.T) {
	p := startProxy(t, startUpstream(t, okButLast(func(c *upConn) {
		time.Sleep(2 * downstream.PollEvery)
		c.say("HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok")
	})), func(c *Config) {
		seen := c.Observe("")().(*recorder)
		c.Observe = always(faultyAttempts{seen})
	})
	c := p.quick()
	c.send(get("/last"))
	time.Sleep(3 * downstream.PollEvery / 2)
	c.send("GE") // so that the watch reads
	_, _ = c.rest()
	p.wantFaults(1)
}

// Every request gets its response at once, in whatever pieces it arrives, without the help of a
// timer.
func TestNoRequestWaitsForATimer(t *testing.T) {
	p := startProxy(t, startUpstream(t, script(ok200)), func(c *Config) { c.ParkAfter = time.Hour })
	var clients sync.WaitGroup
	for g := range 4 {
		clients.Go(func() {
			c, random := p.dial(), rand.New(rand.NewPCG(uint64(g), 0))
			for range 400 {
				n := 1 + random.IntN(3)
				c.sendInPieces(someRequests(random, n), random)
				for range n {
					if res, _, err := c.response("GET"); err != nil || res.StatusCode != 200 {
						t.Errorf("%v, %v", res, err) // at the deadline of dial
						return
					}
				}
			}
		})
	}
	clients.Wait()
}

// someRequests are n requests, some of which end where the read buffer does.
func someRequests(random *rand.Rand, n int) (all string) {
	const head = "GET / HTTP/1.1\r\nHost: a\r\nX: "
	for range n {
		switch random.IntN(5) {
		case 0:
			all += head + strings.Repeat("x", max(1, buffer.Small*(1+random.IntN(2))-len(head)-4-len(all)%buffer.Small)) + "\r\n\r\n"
		case 1:
			all += "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"
		case 2:
			all += "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
		default:
			all += get("/")
		}
	}
	return all
}

// sendInPieces sends all, one time in three cut somewhere.
func (c *client) sendInPieces(all string, random *rand.Rand) {
	for len(all) > 0 {
		k := len(all)
		if random.IntN(3) == 0 {
			k = 1 + random.IntN(k)
		}
		if _, err := io.WriteString(c.Conn, all[:k]); err != nil {
			return // the response's absence tells
		}
		if all = all[k:]; random.IntN(20) == 0 {
			time.Sleep(time.Duration(random.IntN(300)) * time.Microsecond)
		}
	}
}
