package proxy

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/slots"
)

// waiting has a client wait for memory, and returns what it came to.
func waiting(p *testProxy, rank slots.Rank) (room <-chan bool) {
	slot, got := p.clients.slots.Force(newcomerCost), make(chan bool, 1)
	began := make(chan struct{})
	go func() {
		close(began)
		got <- p.clients.makeRoom(slot, plainCost, rank, peers.Patience)
	}()
	<-began
	return got
}

// fullOfRequests returns a proxy whose memory is taken by a request that does not end before the upstream is
// released.
func fullOfRequests(t *testing.T, newcomers int) (p *testProxy, request *peers.Client) {
	u := stuckUpstream(t)
	p = startProxy(t, u, func(c *Config) {
		peers.SpeakHTTP2(c)
		c.MaxConnections, c.ClientMemory = 0, int64(max(plainCost, 2*newcomers*newcomerCost))*100/55+1
	})
	request = p.Dial().Send(peers.Get("/hang"))
	peers.Soon(t, "a request in flight", func() bool { return u.Sends() == 1 })
	slot := p.clients.slots.Force(0)
	p.clients.slots.Charge(slot, max(plainCost, int64(2*newcomers*newcomerCost))-plainCost)
	return p, request
}

// A request does not wait until new connections have what becomes free.
func TestARequestGetsMemoryBeforeNewConnections(t *testing.T) {
	p, first := fullOfRequests(t, 1)
	var connections []<-chan bool
	for range 3 {
		connections = append(connections, waiting(p, slots.Connection))
	}
	request := waiting(p, slots.Request)
	connections = append(connections, waiting(p, slots.Connection))
	peers.Soon(t, "all to wait", func() bool { return p.clients.slots.Waiting() == 5 })
	_ = first.Close()
	if !peers.Within(t, "the request's memory", request) {
		t.Error("the request was rejected")
	}
	for i, c := range connections {
		select {
		case got := <-c:
			t.Errorf("connection %d: %v", i, got)
		default:
		}
	}
}

// HTTP/2 connections that wait for memory do not keep other clients out.
func TestConnectionsThatWaitMakeWayForNewcomers(t *testing.T) {
	p, _ := fullOfRequests(t, 2)
	first := waiting(p, slots.Connection)
	peers.Soon(t, "it to wait", func() bool { return p.clients.slots.Waiting() == 1 })
	second := waiting(p, slots.Connection)
	peers.Soon(t, "both to wait", func() bool { return p.clients.slots.Waiting() == 2 })
	p.Dial().Send("GET / HTTP/1.1\r\n") // its headers are not complete: it needs no more than a newcomer has
	if peers.Within(t, "the end of its wait", first) {
		t.Error("there was memory")
	}
	select {
	case <-second:
		t.Error("both were rejected for one newcomer")
	default:
	}
}

// The time in the accept queue counts: who waited there does not overtake those that came meanwhile.
func TestWhoWaitedForItsSlotDoesNotOvertake(t *testing.T) {
	table := slots.New(0, 100)
	holder, young := table.Take(1), table.Take(1)
	table.Charge(holder, 100)
	seated, closing := make(chan *slots.Slot, 1), make(chan struct{})
	q := &clients{slots: table, queue: newAcceptQueue(table, nil), closing: closing, start: func(n acceptedConn) { seated <- n.slot }}
	q.queue.put(acceptedConn{cost: 1})
	q.queue.all[0].came = time.Now().Add(-time.Minute)
	over := make(chan struct{})
	go func() { defer close(over); q.seat() }()
	old := peers.Within(t, "the slot", seated)
	close(closing)
	<-over
	first, second := table.Wait(young, 20, slots.Request, time.Hour), table.Wait(old, 20, slots.Request, time.Hour+time.Second)
	if table.Charge(holder, 80); !first.IsOver() || second.IsOver() {
		t.Error("the client that waited for its slot was first")
	}
}

// An HTTP/2 connection that waited for memory is neither slow nor without progress for as long as it waited.
func TestAnHTTP2ConnectionThatWaitedForItsMemoryBeginsAfterThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := peers.NewConfig(t, "http://upstream.test:80", &peers.Recorder{})
		peers.SpeakHTTP2(config)
		config.MaxConnections, config.ClientMemory = 0, http2Cost*100/55+1
		s, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		defer near.Close()
		c := newConn(s, far, "")
		defer far.Close()
		c.slot = s.clients.slots.Force(newcomerCost)
		others := s.clients.slots.Force(0)
		s.clients.slots.Charge(others, http2Cost)
		go func() {
			time.Sleep(http2RoomWithin / 2)
			s.clients.slots.Release(others)
		}()
		began := s.now()
		if !c.beginHTTP2(s.settings.Load()) || c.http2.Load() == nil || s.now().Sub(began) != http2RoomWithin/2 {
			t.Fatalf("it began after %v", s.now().Sub(began))
		}
		now := s.now()
		if _, since := c.delaying(now); since != now {
			t.Errorf("it has no streams since %v before", now.Sub(since))
		}
		if _, standing := c.rate(s.process.Clock.Since(now.Add(time.Second))); standing != 1<<10 { // what it has on credit
			t.Errorf("a second later its standing is %v", standing)
		}
	})
}
