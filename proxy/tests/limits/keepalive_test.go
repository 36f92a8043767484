package limits

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
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// quick returns a connection that has carried some requests, one soon after the other.
func quick(p *peers.Front) *peers.Client {
	p.T.Helper()
	c := p.Dial()
	for i := range 5 {
		c.Send(peers.Get(fmt.Sprint("/quick", i))).Want(200, "ok")
	}
	return c
}

// Whatever a kept-alive client sends next, in whatever pieces, is read completely.
func TestAKeptAliveClientIsServed(t *testing.T) {
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), nil)
	c := quick(p.Front)
	for range 3 {
		c.Send("\r\n")
		c.Send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 4\r\n\r\nbo")
		c.Send("dy" + peers.Get("/1") + peers.Get("/2"))
		c.Send("POST / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbo")
		c.Send("dy\r\n0\r\n\r\n")
		c.Send("GET /slowly HTTP/1.1\r\nHost:")
		c.Send(" app.test\r\n\r\n")
		for range 5 {
			c.Want(200, "ok")
		}
		c.Send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 4000000\r\n\r\n") // moved by package net
		c.Send(strings.Repeat("body", 1000000)).Want(200, "ok")
	}
	c.CloseWrite()
	c.WantEnd("")
}

// A client that half-closes right behind a request gets its response, and the connection ends.
func TestAKeptAliveClientThatHalfClosesIsAnsweredAndClosed(t *testing.T) {
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *proxy.Config) { c.ParkAfter = 100 * time.Millisecond })
	for range 20 {
		c := quick(p.Front)
		c.Send(peers.Get("/last"))
		c.CloseWrite()
		c.Want(200, "ok")
		c.WantEnd("")
	}
}

func TestAKeptAliveClientThatLeavesEndsItsRequest(t *testing.T) {
	for name, responses := range map[string][]string{
		"in backoff":        {peers.OK200, peers.OK200, peers.OK200, peers.OK200, peers.OK200, "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 20\r\nContent-Length: 0\r\n\r\n"},
		"while one answers": {peers.OK200, peers.OK200, peers.OK200, peers.OK200, peers.OK200, "HTTP/1."},
	} {
		t.Run(name, func(t *testing.T) {
			serve := peers.Script(responses...)
			p := proxytest.Start(t, peers.StartUpstream(t, func(c *peers.Conn) {
				serve(c)
				_, _ = c.Reader.ReadByte() // until the proxy has had enough of a stalled answer
			}), nil)
			c := quick(p.Front)
			c.Send(peers.Get("/last"))
			c.Close()
			if o := p.Seen.Outcome(t, 5); o != policy.OutcomeClientGone {
				t.Errorf("outcome %v", o)
			}
		})
	}
}

// Clients that are only connected when a drain ends are not requests that were cut off.
func TestADrainThatEndsWithIdleClientsLosesNothing(t *testing.T) {
	for name, connect := range map[string]func(p *proxytest.Proxy){
		"HTTP/1.1": func(p *proxytest.Proxy) { p.Dial().Send(peers.Get("/")).Want(200, "ok") },
		"HTTP/2":   func(p *proxytest.Proxy) { p.Fetch(peers.HTTP2Client(t, nil), "GET", "/", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *proxy.Config) {
				peers.SpeakHTTP2(c)
				c.DrainTimeout = 50 * time.Millisecond // idle connections end only after a second
			})
			connect(p)
			if err := p.Drain(t.Context()); err != nil || p.CutOff() != 0 {
				t.Errorf("%v, %d cut off", err, p.CutOff())
			}
		})
	}
}

// The end of a drain cuts off kept-alive clients, idle or waiting for a response.
func TestADrainCutsOffKeptAliveClients(t *testing.T) {
	arrived := make(chan struct{})
	p := proxytest.Start(t, peers.StartUpstream(t, okButLast(func(c *peers.Conn) {
		arrived <- struct{}{}
		_, _ = c.Reader.ReadByte()
	})), func(c *proxy.Config) { c.DrainTimeout = 300 * time.Millisecond })
	idle := quick(p.Front)
	busy := p.Dial()
	for range 5 {
		busy.Send(peers.Get("/")).Want(200, "ok")
	}
	busy.Send(peers.Get("/last"))
	<-arrived
	began := time.Now()
	if err := p.Drain(context.Background()); err != proxy.ErrDrainTimeout {
		t.Errorf("%v", err)
	}
	for _, c := range []*peers.Client{idle, busy} {
		_, _ = c.Rest()
	}
	peers.Soon(t, "all to end", func() bool { return p.Stats().Connections == 0 })
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
}

// okButLast answers ok, but /last as told.
func okButLast(last func(c *peers.Conn)) func(c *peers.Conn) {
	return func(c *peers.Conn) {
		for {
			switch headers := c.Head(); {
			case headers == "":
				return
			case strings.HasPrefix(headers, "GET /last"):
				last(c)
			default:
				c.Say("%s", peers.OK200)
			}
		}
	}
}

// drip answers with a body without end, a piece every 20 ms.
func drip(c *peers.Conn) {
	c.Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
	for {
		if _, err := io.WriteString(c.Conn, "4\r\ndrip\r\n"); err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// It also cuts off responses that never pause for long enough to be watched.
func TestADrainCutsOffStreams(t *testing.T) {
	p := proxytest.Start(t, peers.StartUpstream(t, okButLast(drip)), func(c *proxy.Config) { c.DrainTimeout = 300 * time.Millisecond })
	var ended sync.WaitGroup
	for i := range 8 {
		c := p.Dial()
		for range 5 * (i % 2) {
			c.Send(peers.Get("/")).Want(200, "ok")
		}
		c.Send(peers.Get("/last"))
		if _, err := c.Reader.Peek(1); err != nil {
			t.Fatal(err)
		}
		ended.Go(func() { _, _ = c.Rest() })
	}
	began := time.Now()
	if err := p.Drain(context.Background()); err != proxy.ErrDrainTimeout {
		t.Errorf("%v", err)
	}
	ended.Wait()
	peers.Soon(t, "all to end", func() bool { return p.Stats().Connections == 0 })
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
}

// faultyAttempts panics at the end of an attempt that brought a 201.
type faultyAttempts struct{ *peers.Recorder }

func (f faultyAttempts) AttemptDone(class policy.Class, status int, d time.Duration) {
	if status == 201 {
		panic("a fault of the test")
	}
	f.Recorder.AttemptDone(class, status, d)
}

// A fault ends the connection of a client while the second goroutine reads from it.
func TestAFaultEndsAClientThatIsWatched(t *testing.T) {
	p := proxytest.Start(t, peers.StartUpstream(t, okButLast(func(c *peers.Conn) {
		time.Sleep(2 * downstream.PollEvery)
		c.Say("HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok")
	})), func(c *proxy.Config) {
		seen := c.Observe("")().(*peers.Recorder)
		c.Observe = peers.Always(faultyAttempts{seen})
	})
	c := quick(p.Front)
	c.Send(peers.Get("/last"))
	time.Sleep(3 * downstream.PollEvery / 2)
	c.Send("GE") // so that the watch reads
	_, _ = c.Rest()
	p.WantFaults(1)
}

// Every request gets its response at once, in whatever pieces it arrives, without the help of a
// timer.
func TestNoRequestWaitsForATimer(t *testing.T) {
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *proxy.Config) { c.ParkAfter = time.Hour })
	var clients sync.WaitGroup
	for g := range 4 {
		clients.Go(func() {
			c, random := p.Dial(), rand.New(rand.NewPCG(uint64(g), 0))
			for range 400 {
				n := 1 + random.IntN(3)
				sendInPieces(c, someRequests(random, n), random)
				for range n {
					if res, _, err := c.Response("GET"); err != nil || res.StatusCode != 200 {
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
			all += peers.Get("/")
		}
	}
	return all
}

// sendInPieces sends all, one time in three cut somewhere.
func sendInPieces(c *peers.Client, all string, random *rand.Rand) {
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
