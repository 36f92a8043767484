package http2

import (
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// Uploads that are cut right after they begin do not affect other requests on their connection.
func TestCutUploadsLeaveOtherStreamsAlone(t *testing.T) {
	const cut, others = 950, 28
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for {
			headers := c.Head()
			if headers == "" {
				return
			}
			if strings.HasPrefix(headers, "POST") {
				_, _ = io.Copy(io.Discard, c.Reader)
				return
			}
			c.Say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	p := proxytest.Start(t, u, peers.SpeakHTTP2)
	c := p.DialFrames(t)
	for n := range 2 * cut {
		id := c.Begin("POST", "/cut", false, "content-length", "1000")
		_ = c.WriteData(id, false, []byte("part"))
		_ = c.WriteRSTStream(id, http2.ErrCodeCancel)
		if n%(2*cut/others) == 0 {
			c.Begin("GET", "/"+strconv.Itoa(n), true)
		}
	}
	for n := range others {
		select {
		case status := <-c.Statuses:
			if status != "200" {
				t.Errorf("answered %s", status)
			}
		case err := <-c.Ended:
			t.Fatalf("ended after %d of %d responses: %v", n, others, err)
		}
	}
	c.Heard()
}

// A request is as old as it was when its client ended it, although the attempt notices that later.
func TestAPrematureEndThatIsNoticedLateIsCharged(t *testing.T) {
	const most = 3
	proxytest.InMemory(t, peers.NeverAnswers, func(c *proxy.Config) {
		peers.SpeakHTTP2(c)
		c.PrematureEnds = floodguard.Limits{Age: 20 * time.Millisecond, Most: most, Responses: 1000}
	}, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		go func() { _, _ = io.Copy(io.Discard, c.Reader) }()
		c.Send(http2.ClientPreface)
		f := http2.NewFramer(c.Conn, nil)
		_ = f.WriteSettings()
		for n := range uint32(most + 1) {
			peers.WriteHeaders(t, f, 2*n+1, "GET", true)
			time.Sleep(10 * time.Millisecond)
			_ = f.WriteRSTStream(2*n+1, http2.ErrCodeCancel)
			time.Sleep(time.Second) // until it is noticed
		}
		if got := m.Up.Sends(); got != most {
			t.Errorf("%d requests reached the upstream, want %d", got, most)
		}
	})
}

// A client that has had a response has as many requests in flight as it likes.
func TestAClientThatHadAResponseIsNotHeld(t *testing.T) {
	const most, more = 3, 10
	var asked atomic.Int32
	proxytest.InMemory(t, func(c *peers.Conn) {
		for c.Head() != "" {
			if asked.Add(1) > 1 {
				_, _ = c.ReadByte() // until the proxy hangs up
				return
			}
			c.Say(peers.OK200)
		}
	}, func(c *proxy.Config) {
		peers.SpeakHTTP2(c)
		c.PrematureEnds = floodguard.Limits{Age: time.Hour, Most: most, Responses: 1000}
	}, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		go func() { _, _ = io.Copy(io.Discard, c.Reader) }()
		c.Send(http2.ClientPreface)
		f := http2.NewFramer(c.Conn, nil)
		_ = f.WriteSettings()
		for n := range uint32(1 + more) {
			peers.WriteHeaders(t, f, 2*n+1, "GET", true)
			synctest.Wait()
		}
		if got := asked.Load(); got != 1+more {
			t.Errorf("%d requests reached the upstream, want %d", got, 1+more)
		}
	})
}

// A connection whose frames are read slowly is counted, once, and served on.
func TestAFloodOfFramesIsCountedAndServedOn(t *testing.T) {
	var seen peers.Refusals
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *proxy.Config) { peers.SpeakHTTP2(c); c.Refused = seen.Add })
	c := p.DialFrames(t)
	for seen.List() == "" {
		for range 100 {
			_ = c.WritePriority(1, http2.PriorityParam{Weight: 9})
		}
		c.Heard() // so that nothing piles up
	}
	c.Begin("GET", "/", true)
	if status := <-c.Statuses; status != "200" {
		t.Errorf("answered %s", status)
	}
	if got := seen.List(); got != http1.RefusalTooManyFrames.String() {
		t.Errorf("counted as %q", got)
	}
}
