package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: app.test\r\n\r\n" }

func post(body string) string {
	return fmt.Sprintf("POST /p HTTP/1.1\r\nHost: app.test\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func TestForwardsAndKeepsBothConnections(t *testing.T) {
	u := startUpstream(t, script(ok200))
	p := startProxy(t, u, nil)
	c := p.dial()
	for range 3 {
		res := c.send(get("/a?b=c")).want(200, "ok")
		if got := res.Header.Get("X-Retryproxy-Attempts"); got != "1" {
			t.Errorf("attempts %q, want 1", got)
		}
	}
	if !strings.HasPrefix(u.head(0), "GET /a?b=c HTTP/1.1\r\nHost: app.test\r\n") {
		t.Errorf("head sent upstream: %q", u.head(0))
	}
	if u.sends() != 3 || u.connections() != 1 {
		t.Errorf("%d sends over %d connections, want 3 over 1", u.sends(), u.connections())
	}
	if o := p.seen.outcome(t, 2); o != policy.OutcomeSuccess {
		t.Errorf("outcome %v", o)
	}
}

func TestRetries503UntilSuccess(t *testing.T) {
	u := startUpstream(t, script(bad503, bad503, ok200))
	p := startProxy(t, u, nil)
	res := p.dial().send(get("/")).want(200, "ok")
	if got := res.Header.Get("X-Retryproxy-Attempts"); got != "3" {
		t.Errorf("attempts %q, want 3", got)
	}
	if u.sends() != 3 {
		t.Errorf("%d sends, want 3", u.sends())
	}
	if o := p.seen.outcome(t, 0); o != policy.OutcomeRecovered {
		t.Errorf("outcome %v", o)
	}
}

func TestClientGetsTheLastRealResponse(t *testing.T) {
	u := startUpstream(t, script(bad503, bad503, bad503, bad503))
	p := startProxy(t, u, nil)
	res := p.dial().send(get("/")).want(503, "busy")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "retries_exhausted" {
		t.Errorf("reason %q", got)
	}
	if u.sends() != 4 {
		t.Errorf("%d sends, want 4", u.sends())
	}
}

func TestClientGetsTheBufferedResponseIfLaterAttemptsHaveNone(t *testing.T) {
	u := startUpstream(t, script(bad503, "", "", ""))
	p := startProxy(t, u, nil)
	p.dial().send(get("/")).want(503, "busy")
	if u.sends() != 4 {
		t.Errorf("%d sends, want 4", u.sends())
	}
}

func TestPostIsNotRetriedAfterItWasSent(t *testing.T) {
	u := startUpstream(t, script(bad503, ok200))
	p := startProxy(t, u, nil)
	res := p.dial().send(post("hello")).want(503, "busy")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "not_idempotent" {
		t.Errorf("reason %q", got)
	}
	if u.sends() != 1 {
		t.Errorf("%d sends, want 1", u.sends())
	}
}

func TestPutIsReplayedWhole(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 8<<10) // 128 KiB: sent by the pump
	var got []string
	n := 0
	u := startUpstream(t, func(c *upConn) {
		for headers := c.head(); headers != ""; headers = c.head() {
			got = append(got, string(discardBody(c, headers)))
			if n++; n < 3 {
				c.say(bad503)
			} else {
				c.say(ok200)
			}
		}
	})
	p := startProxy(t, u, nil)
	c := p.dial()
	c.send(strings.Replace(post(body), "POST", "PUT", 1)).want(200, "ok")
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
	u := startUpstream(t, script(ok200))
	addr := u.Addr().String()
	u.Close()
	p := startProxyTo(t, "http://"+addr, nil)
	res := p.dial().send(post("hello")).want(502, "*")
	if got := res.Header.Get("X-Retryproxy-Attempts"); got != "4" {
		t.Errorf("attempts %q, want 4", got)
	}
}

func TestClientLeavingEndsTheAttempt(t *testing.T) {
	aborted := make(chan struct{})
	u := startUpstream(t, func(c *upConn) {
		c.head()
		_, _ = c.Read(make([]byte, 1))
		close(aborted)
	})
	p := startProxy(t, u, nil)
	c := p.dial().send(get("/slow"))
	time.Sleep(20 * time.Millisecond)
	c.Close()
	select {
	case <-aborted:
	case <-time.After(patience):
		t.Fatal("the upstream was not told that the client left")
	}
	if o := p.seen.outcome(t, 0); o != policy.OutcomeClientGone {
		t.Errorf("outcome %v", o)
	}
}

// A short attempt does not watch the client. A retry without a wait still notices that the client
// left.
func TestNoRetryWithoutAWaitForAClientThatLeft(t *testing.T) {
	left := make(chan struct{})
	u := startUpstream(t, func(c *upConn) {
		if c.head() != "" {
			left <- struct{}{}
			<-left
			c.say(bad503)
		}
		if c.head() != "" {
			c.say(ok200)
		}
	})
	p := startProxy(t, u, func(c *Config) { c.Default.Policy.Backoff = nil })
	c := p.dial().send(get("/"))
	<-left
	c.Close()
	time.Sleep(5 * time.Millisecond) // its end has to cross loopback
	left <- struct{}{}
	if o := p.seen.outcome(t, 0); o != policy.OutcomeClientGone || u.sends() != 1 {
		t.Errorf("outcome %v after %d sends", o, u.sends())
	}
}
