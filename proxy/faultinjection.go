package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// attemptFault is what was made up for the running attempt, where its route
// asks for faults. See docs/decisions/0008-observe-and-advise.md.
type attemptFault struct {
	policy.Fault               // Delay is what is left of it
	stalled      bool          // within its delay: to all others the upstream has the request and is silent
	taken        time.Duration // of its delay
}

// makeFault draws what becomes of the attempt that begins, and tells it.
func (x *exchange) makeFault() {
	x.fault.Fault = x.drawFault()
	x.fault.stalled = x.fault.Delay > 0
}

// drawFault draws a fault and tells it.
func (x *exchange) drawFault() policy.Fault {
	f := x.route.FaultInjection.Draw(x.set.rand())
	switch {
	case f.Status != 0:
		x.observer.FaultInjected(policy.FaultStatus)
	case f.Reset:
		x.observer.FaultInjected(policy.FaultReset)
	}
	if f.Delay > 0 {
		x.observer.FaultInjected(policy.FaultDelay)
	}
	return f
}

// stall waits out the delay, within the time that the attempt and the request
// have. CauseStatus: it is over and the attempt goes on. A drain ends it early.
func (x *exchange) stall() policy.Cause {
	began := x.tick()
	until := began.Add(x.fault.Delay)
	end := x.c.await(x.stallUntil(began, until), nil)
	took := x.tick().Sub(began)
	x.fault.taken += took
	x.fault.Delay -= took
	switch {
	case end == clientLeft:
		x.clientEnd.Store(clientGone)
		return policy.CauseReset
	case end != drainBegan && x.fault.Delay > 0:
		return policy.CauseAttemptTimeout
	}
	x.fault.stalled = false
	return policy.CauseStatus
}

// stallUntil is until, or earlier where the attempt's or the request's time ends.
func (x *exchange) stallUntil(began, until instant) instant {
	if t := x.attemptTimeout(); t > 0 && !x.lastAttempt {
		until = earliest(until, began.Add(t))
	}
	if !x.deadline.IsZero() {
		until = earliest(until, x.deadline)
	}
	return until
}

// standIn is what takes the upstream's place for f, which breaks the attempt.
func standIn(pool *upstream.Group, f policy.Fault) *upstream.Conn {
	c := &madeConn{end: io.EOF}
	if f.Reset {
		c.end = &net.OpError{Op: "read", Net: "fault", Err: syscall.ECONNRESET}
	} else {
		c.answer = madeAnswer(f.Status)
	}
	return pool.Adopt(c)
}

// madeAnswer is the response of an attempt with that status.
func madeAnswer(status int) []byte {
	body := "made up by retryproxy (RETRYPROXY_FAULT_INJECTION); the upstream was not asked\n"
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(body), body)
}

// madeConn is a connection with nobody at its other end: it takes whatever is
// written and gives answer, then end. No call of it ever waits, so deadlines
// mean nothing. One goroutine may read while another writes.
type madeConn struct {
	answer []byte
	end    error
}

func (c *madeConn) Read(p []byte) (int, error) {
	if len(c.answer) == 0 {
		return 0, c.end
	}
	n := copy(p, c.answer)
	c.answer = c.answer[n:]
	return n, nil
}

func (c *madeConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c *madeConn) Close() error                     { return nil }
func (c *madeConn) LocalAddr() net.Addr              { return madeAddr{} }
func (c *madeConn) RemoteAddr() net.Addr             { return madeAddr{} }
func (c *madeConn) SetDeadline(time.Time) error      { return nil }
func (c *madeConn) SetReadDeadline(time.Time) error  { return nil }
func (c *madeConn) SetWriteDeadline(time.Time) error { return nil }

type madeAddr struct{}

func (madeAddr) Network() string { return "fault" }
func (madeAddr) String() string  { return "fault" }
