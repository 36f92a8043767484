package retry

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/trace"
)

// tardy is a Tracer that simulates a process that does not run: it sleeps between the clock
// reading and the sending of each attempt.
type tardy time.Duration

func (t tardy) Request(*trace.Request) trace.RequestSpan { return t }
func (t tardy) Attempt(*trace.Attempt) trace.AttemptSpan { return t }
func (t tardy) Context() (parent, state string, ok bool) {
	time.Sleep(time.Duration(t))
	return "", "", false
}
func (t tardy) TraceID() string                         { return "" }
func (t tardy) Recorded() bool                          { return false }
func (t tardy) Waited(string, time.Time, time.Duration) {}
func (t tardy) Done(*trace.AttemptEnd)                  {}
func (t tardy) End(*trace.End)                          {}

// A request whose wait for a response ended before anything was sent is still sent, but only if a
// check finds the connection open.
func TestARequestWhoseSendIsDelayedIsStillSent(t *testing.T) {
	closed := make(chan struct{})
	u := peers.StartUpstream(t, peers.ByConn(func(c *peers.Conn) {
		for range 2 {
			c.Head()
			c.Say(peers.OK200)
		}
		c.Close()
		close(closed)
	}, peers.Script(peers.OK200)))
	p := proxytest.Start(t, u, func(c *proxy.Config) { c.Tracer = tardy(2 * downstream.PollEvery) })
	c := p.Dial()
	for i, connections := range []int{1, 1, 2} {
		if i == 2 {
			peers.Within(t, "the idle connection's end", closed)
		}
		res := c.Send(peers.Get("/")).Want(200, "ok")
		if got := res.Header.Get("X-Retryproxy-Attempts"); got != "1" || u.Connections() != connections || u.Sends() != i+1 {
			t.Errorf("request %d: attempts %q, %d connections, %d sends", i, got, u.Connections(), u.Sends())
		}
		p.WantOutcome(i, policy.OutcomeSuccess)
	}
}
