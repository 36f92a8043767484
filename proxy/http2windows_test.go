package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// sendsEndlessly responds with more than any client reads, and /small with a few bytes.
func sendsEndlessly(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/small" {
		_, _ = io.WriteString(w, "hello")
		return
	}
	piece := make([]byte, 32<<10)
	for {
		if _, err := w.Write(piece); err != nil {
			return
		}
	}
}

// Clients that read nothing of what an HTTP/2 upstream sends hold little memory, and stop nobody.
func TestStalledReadersOfAnHTTP2UpstreamAreBounded(t *testing.T) {
	p := startProxyTo(t, "h2c://"+peers.HTTP2Server(t, nil, false, sendsEndlessly), func(c *Config) { c.ClientMemory = 4 << 20 })
	for range 40 {
		c := p.Dial()
		_ = c.Conn.(*net.TCPConn).SetReadBuffer(4096)
		c.Send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	peers.Soon(t, "some are ended", func() bool { return p.ahead.Backlog.Ended() > 10 })
	p.Dial().Send("GET /small HTTP/1.1\r\nHost: a\r\n\r\n").Want(200, "hello")
	if st := p.Stats(); st.EvictedStalled < 10 {
		t.Errorf("%d are counted", st.EvictedStalled)
	}
}

// endAllUnread ends all bodies that wait for their readers, as soon as n do.
func endAllUnread(t *testing.T, p *testProxy, n uint64) {
	t.Helper()
	l := p.ahead.Backlog
	peers.Soon(t, "bodies wait", func() bool {
		had := l.Ended()
		l.Wait(1<<40, func() bool { return true })()
		return l.Ended()-had > n
	})
}

// A response that is ended because its client did not read it is the client's, not the upstream's fault.
func TestAResponseThatWasNotReadInTimeIsTheClientsFault(t *testing.T) {
	p := startProxyTo(t, "h2c://"+peers.HTTP2Server(t, nil, false, sendsEndlessly), func(c *Config) { c.ClientMemory = 1 << 30 })
	c := p.Dial().Send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
	endAllUnread(t, p, 1)
	_, _ = io.Copy(io.Discard, c.Conn)
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeClientGone {
		t.Errorf("outcome %v", o)
	}
}

// So is one whose headers were given up because the client takes nothing of the interim response before it.
func TestAResponseBehindAnInterimOneThatIsNotReadIsTheClientsFault(t *testing.T) {
	informed := make(chan struct{})
	var served atomic.Int32
	p := startProxyTo(t, "h2c://"+peers.HTTP2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
		if served.Add(1) > 1 {
			return // it was retried
		}
		w.WriteHeader(http.StatusEarlyHints)
		<-informed
		sendsEndlessly(w, r)
	}), func(c *Config) { c.ClientMemory = 1 << 30 })
	ours, theirs := net.Pipe()
	defer ours.Close()
	_ = ours.SetDeadline(time.Now().Add(peers.Patience))
	done := make(chan struct{})
	go func() { defer close(done); p.ServeConn(theirs, "") }()
	_, _ = io.WriteString(ours, "GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
	_, _ = io.ReadFull(ours, make([]byte, 1)) // the rest is being written
	close(informed)
	endAllUnread(t, p, 1)
	_, _ = io.Copy(io.Discard, ours)
	<-done
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeClientGone || served.Load() != 1 || p.Seen.Retried() != 0 {
		t.Errorf("outcome %v after %d requests and %d retries", o, served.Load(), p.Seen.Retried())
	}
}

// Uploads that nobody reads take nothing from the other requests of their connection.
func TestUnreadUploadsDoNotStopOthers(t *testing.T) {
	const stuck = 4
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	var dials atomic.Int32
	reached := make(chan struct{})
	var seen peers.Refusals
	p := startProxy(t, u, func(c *Config) {
		peers.SpeakHTTP2(c)
		c.ClientMemory, c.Refused = 1<<30, seen.Add
		c.Default.Upstream.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials.Add(1) <= stuck {
				<-reached
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
		c.Default.DialTimeout = peers.Patience
	})
	c := p.DialFrames(t)
	for range stuck {
		id := c.Begin("POST", "/", false)
		for sent := 0; sent < p.ahead.Window; sent += http2.FrameSize {
			_ = c.WriteData(id, false, make([]byte, http2.FrameSize))
		}
	}
	peers.Soon(t, "the uploads wait for their upstream", func() bool { return dials.Load() == stuck })
	id := c.Begin("POST", "/small", false)
	_ = c.WriteData(id, true, []byte("hello"))
	select {
	case status := <-c.Statuses:
		if status != "200" {
			t.Errorf("answered %s", status)
		}
	case code := <-c.GoAways:
		t.Fatal("the connection ended: ", code)
	}
	endAllUnread(t, p, stuck)
	close(reached)
	for range stuck {
		if status := peers.Within(t, "an upload ends", c.Statuses); status != "503" {
			t.Errorf("an unread upload got %s", status)
		}
	}
	if got := seen.List(); got == "" || got[:len("unread_body")] != http1.RefusalUnreadBody.String() {
		t.Errorf("refused as %q", got)
	}
}
