package retry

import (
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

func TestForwardsAndKeepsBothConnections(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, nil)
	c := p.Dial()
	for range 3 {
		res := c.Send(peers.Get("/a?b=c")).Want(200, "ok")
		if got := res.Header.Get("X-Retryproxy-Attempts"); got != "1" {
			t.Errorf("attempts %q, want 1", got)
		}
	}
	if !strings.HasPrefix(u.Head(0), "GET /a?b=c HTTP/1.1\r\nHost: app.test\r\n") {
		t.Errorf("head sent upstream: %q", u.Head(0))
	}
	if u.Sends() != 3 || u.Connections() != 1 {
		t.Errorf("%d sends over %d connections, want 3 over 1", u.Sends(), u.Connections())
	}
	if o := p.Seen.Outcome(t, 2); o != policy.OutcomeSuccess {
		t.Errorf("outcome %v", o)
	}
}

func TestRetries503UntilSuccess(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.Bad503, peers.Bad503, peers.OK200))
	p := proxytest.Start(t, u, nil)
	res := p.Dial().Send(peers.Get("/")).Want(200, "ok")
	if got := res.Header.Get("X-Retryproxy-Attempts"); got != "3" {
		t.Errorf("attempts %q, want 3", got)
	}
	if u.Sends() != 3 {
		t.Errorf("%d sends, want 3", u.Sends())
	}
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeRecovered {
		t.Errorf("outcome %v", o)
	}
}

func TestClientGetsTheLastRealResponse(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.Bad503, peers.Bad503, peers.Bad503, peers.Bad503))
	p := proxytest.Start(t, u, nil)
	res := p.Dial().Send(peers.Get("/")).Want(503, "busy")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "retries_exhausted" {
		t.Errorf("reason %q", got)
	}
	if u.Sends() != 4 {
		t.Errorf("%d sends, want 4", u.Sends())
	}
}

func TestClientGetsTheBufferedResponseIfLaterAttemptsHaveNone(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.Bad503, "", "", ""))
	p := proxytest.Start(t, u, nil)
	p.Dial().Send(peers.Get("/")).Want(503, "busy")
	if u.Sends() != 4 {
		t.Errorf("%d sends, want 4", u.Sends())
	}
}

func TestPostIsNotRetriedAfterItWasSent(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.Bad503, peers.OK200))
	p := proxytest.Start(t, u, nil)
	res := p.Dial().Send(peers.Post("hello")).Want(503, "busy")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "not_idempotent" {
		t.Errorf("reason %q", got)
	}
	if u.Sends() != 1 {
		t.Errorf("%d sends, want 1", u.Sends())
	}
}

func TestPutIsReplayedWhole(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 8<<10) // 128 KiB: sent by the pump
	var got []string
	n := 0
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			got = append(got, string(peers.DiscardBody(c, headers)))
			if n++; n < 3 {
				c.Say(peers.Bad503)
			} else {
				c.Say(peers.OK200)
			}
		}
	})
	p := proxytest.Start(t, u, nil)
	c := p.Dial()
	c.Send(strings.Replace(peers.Post(body), "POST", "PUT", 1)).Want(200, "ok")
	if len(got) != 3 {
		t.Fatalf("%d sends, want 3", len(got))
	}
	for i := range got {
		if got[i] != body {
			t.Errorf("attempt %d carried another body (%d bytes, want %d)", i+1, len(got[i]), len(body))
		}
	}
}

func TestRefusedDialIsRetriedForAnyMethod(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	addr := u.Addr().String()
	u.Close()
	p := proxytest.StartTo(t, "http://"+addr, nil)
	res := p.Dial().Send(peers.Post("hello")).Want(502, "*")
	if got := res.Header.Get("X-Retryproxy-Attempts"); got != "4" {
		t.Errorf("attempts %q, want 4", got)
	}
}

func TestClientLeavingEndsTheAttempt(t *testing.T) {
	aborted := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		_, _ = c.Read(make([]byte, 1))
		close(aborted)
	})
	p := proxytest.Start(t, u, nil)
	c := p.Dial().Send(peers.Get("/slow"))
	time.Sleep(20 * time.Millisecond)
	c.Close()
	select {
	case <-aborted:
	case <-time.After(peers.Patience):
		t.Fatal("the upstream was not told that the client left")
	}
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeClientGone {
		t.Errorf("outcome %v", o)
	}
}

// A short attempt does not watch the client. A retry without a wait still notices that the client
// left.
func TestNoRetryWithoutAWaitForAClientThatLeft(t *testing.T) {
	left := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		if c.Head() != "" {
			left <- struct{}{}
			<-left
			c.Say(peers.Bad503)
		}
		if c.Head() != "" {
			c.Say(peers.OK200)
		}
	})
	p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.Policy.Backoff = nil })
	c := p.Dial().Send(peers.Get("/"))
	<-left
	c.Close()
	time.Sleep(5 * time.Millisecond) // its end has to cross loopback
	left <- struct{}{}
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeClientGone || u.Sends() != 1 {
		t.Errorf("outcome %v after %d sends", o, u.Sends())
	}
}
