package proxy

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// While it is another process's turn nothing is sent; when that found the
// upstream up it is, and the fleet is told.
func TestAProbeWaitsForItsTurn(t *testing.T) {
	var down atomic.Bool
	var wishes, probes atomic.Int64
	opened := make(chan uint64, 10)
	handle := func(c *upConn) {
		for headers := c.head(); headers != ""; headers = c.head() {
			if down.Load() {
				probes.Add(1)
				c.say(bad503)
			} else {
				c.say(ok200)
			}
		}
	}
	inMemory(t, handle, func(c *Config) {
		withBreaker(c)
		c.Default.Breaker, c.Default.QueueTimeout = BreakerQueue, time.Minute
		c.Default.Probe.Path = "/probe"
		c.ProbeTurnWanted = func() { wishes.Add(1) }
		c.BreakerClosed = func(key uint64) { opened <- key }
	}, func(t *testing.T, m *memory) {
		if asks, next := m.ProbeTurnRequests(nil); len(asks) != 0 || next != policy.Forever {
			t.Errorf("a closed breaker asks: %v, %v", asks, next)
		}
		down.Store(true)
		for m.guard().Breaker == policy.BreakerClosed {
			m.client().send(get("/x"))
			time.Sleep(100 * time.Millisecond)
		}
		asks, _ := m.ProbeTurnRequests(nil)
		if len(asks) != 1 || !asks[0].WantsTurn || wishes.Load() == 0 {
			t.Fatalf("asks %+v, %d wishes", asks, wishes.Load())
		}
		key := asks[0].Key
		another := policy.ProbeTurnGrant{Owner: policy.TurnOfAnother, Remaining: policy.ProbeTurnDuration}
		m.ApplyProbeTurn(key+1, another) // of another upstream
		time.Sleep(2 * time.Second)
		if n := probes.Load(); n < 4 {
			t.Errorf("%d probes in 2 s without a word", n)
		}
		m.ApplyProbeTurn(key, another)
		before := probes.Load()
		time.Sleep(policy.ProbeTurnDuration)
		if n := probes.Load() - before; n != 0 {
			t.Errorf("%d probes in another's turn", n)
		}
		down.Store(false)
		m.ApplyProbeTurn(key, another)
		m.PeerFoundUp(key + 1)
		m.PeerFoundUp(key)
		time.Sleep(200 * time.Millisecond)
		m.client().send(get("/")).want(200, "ok")
		if len(opened) != 1 || <-opened != key {
			t.Error("the fleet was not told that the breaker closed, or not once")
		}
		time.Sleep(time.Minute) // for those held
	})
}

// A socket, and the loopback address of a process whose own upstream is
// elsewhere, are each machine's own.
func TestWhichBreakersAreShared(t *testing.T) {
	target := func(network, address string) Route {
		return Route{Upstream: upstream.Target{Network: network, Address: address}}
	}
	shares := func(fallback, r Route) bool {
		n := &settings{Config: &Config{Default: fallback, ProbeTurnWanted: func() {}, BreakerClosed: func(uint64) {}}}
		return n.shareBreaker(&r).wanted != nil
	}
	remote, local, socket := target("tcp", "api.example:80"), target("tcp", "127.0.0.1:80"), target("unix", "/run/s")
	for name, ok := range map[string]bool{
		"remote":                 shares(remote, remote),
		"loopback of all":        shares(local, local),
		"loopback of each":       !shares(remote, local),
		"socket":                 !shares(socket, socket),
		"socket beside":          !shares(remote, socket),
		"remote beside loopback": shares(local, remote),
	} {
		if !ok {
			t.Error(name)
		}
	}
	remote.FaultInjection = &policy.FaultInjector{}
	if shares(remote, remote) || (&settings{Config: &Config{}}).shareBreaker(&local).wanted != nil {
		t.Error("shared with faults, or with nobody")
	}
	a, b := target("tcp", "a:80"), target("tcp", "a:80")
	b.Probe.Path = "/other"
	n := &settings{Config: &Config{ProbeTurnWanted: func() {}, BreakerClosed: func(uint64) {}}}
	if n.shareBreaker(&a).key == n.shareBreaker(&b).key {
		t.Error("one key for two probes")
	}
}
