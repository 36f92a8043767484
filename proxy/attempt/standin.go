package attempt

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

// Fault is what fault injection does to an attempt. See docs/decisions/0008-observe-and-advise.md.
type Fault struct {
	policy.Fault               // Delay is the part that is left
	Stalled      bool          // its delay runs: everything else sees a silent upstream that has the request
	Taken        time.Duration // how much of the delay has passed
}

// NewFault returns the state of an attempt with the fault f.
func NewFault(f policy.Fault) Fault {
	return Fault{Fault: f, Stalled: f.Delay > 0}
}

// StandIn returns a connection that acts as the upstream of an attempt with the fault f.
func StandIn(pool *upstream.Group, f policy.Fault) *upstream.Conn {
	c := &madeConn{end: io.EOF}
	if f.Reset {
		c.end = &net.OpError{Op: "read", Net: "fault", Err: syscall.ECONNRESET}
	} else {
		c.answer = madeAnswer(f.Status)
	}
	return pool.Adopt(c)
}

// madeAnswer returns a response with the given status.
func madeAnswer(status int) []byte {
	body := "made up by retryproxy (RETRYPROXY_FAULT_INJECTION); the upstream was not asked\n"
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(body), body)
}

// madeConn is a connection without a peer. It discards writes; reads return answer, then end. No
// call waits, so deadlines have no effect. One goroutine may read while another writes.
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
