package proxy

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// quick gives a connection that is held over its wait for a next request.
func (p *testProxy) quick() *caller {
	p.t.Helper()
	c := p.dial()
	for i := range 5 {
		c.send(get(fmt.Sprint("/quick", i))).want(200, "ok")
	}
	soon(p.t, "one connection to be held", func() bool { return holds() == 1 })
	return c
}

// holds is how many connections are held, which the coroutines tell that wait for them.
func holds() int {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	return strings.Count(string(all), "sock.(*hold).begin.func1(")
}

// What a caller sends while it is held is read, also by those who read otherwise.
func TestABusyCallerIsServed(t *testing.T) {
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

func TestABusyCallerThatRestsIsParked(t *testing.T) {
	p := startProxy(t, startUpstream(t, script(ok200)), func(c *Config) { c.parkAfter = 50 * time.Millisecond })
	c := p.quick()
	p.wantParked(1)
	if n := holds(); n != 0 {
		t.Errorf("%d held", n)
	}
	c.send(get("/")).want(200, "ok")
}

// A caller that ends its side together with a request, which a held wait does not notice.
func TestABusyCallerThatHalfClosesIsAnsweredAndClosed(t *testing.T) {
	p := startProxy(t, startUpstream(t, script(ok200)), func(c *Config) { c.parkAfter = 100 * time.Millisecond })
	for range 20 {
		c := p.quick()
		c.send(get("/last"))
		c.closeWrite()
		c.want(200, "ok")
		c.wantEnd("")
	}
}

func TestABusyCallerThatLeavesEndsItsRequest(t *testing.T) {
	for name, answers := range map[string][]string{
		"in backoff":        {ok200, ok200, ok200, ok200, ok200, "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 20\r\nContent-Length: 0\r\n\r\n"},
		"while one answers": {ok200, ok200, ok200, ok200, ok200, "HTTP/1."},
	} {
		t.Run(name, func(t *testing.T) {
			serve := script(answers...)
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

// The end of a drain does not wait for those who hold their turn.
func TestADrainCutsOffBusyCallers(t *testing.T) {
	arrived := make(chan struct{})
	p := startProxy(t, startUpstream(t, func(c *upConn) {
		for {
			head := c.head()
			switch {
			case head == "":
				return
			case strings.HasPrefix(head, "GET /last"):
				arrived <- struct{}{}
				_, _ = c.Reader.ReadByte()
				return
			}
			c.say("%s", ok200)
		}
	}), func(c *Config) { c.DrainTimeout = 300 * time.Millisecond })
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
	for _, c := range []*caller{idle, busy} {
		_, _ = c.rest()
	}
	soon(t, "all to end", p.empty)
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
}
