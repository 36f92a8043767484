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

// FaultConn returns a connection that acts as the upstream of an attempt with the fault f.
func FaultConn(pool *upstream.Group, f policy.Fault) *upstream.Conn {
	c := &faultConn{end: io.EOF}
	if f.Reset {
		c.end = &net.OpError{Op: "read", Net: "fault", Err: syscall.ECONNRESET}
	} else {
		c.response = faultResponse(f.Status)
	}
	return pool.Adopt(c)
}

// faultResponse returns a response with the given status.
func faultResponse(status int) []byte {
	body := "made up by retryproxy (RETRYPROXY_FAULT_INJECTION); the upstream was not asked\n"
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(body), body)
}

// faultConn is a connection without a peer. It discards writes; reads return response, then end. No
// call waits, so deadlines have no effect. One goroutine may read while another writes.
type faultConn struct {
	response []byte
	end      error
}

func (c *faultConn) Read(p []byte) (int, error) {
	if len(c.response) == 0 {
		return 0, c.end
	}
	n := copy(p, c.response)
	c.response = c.response[n:]
	return n, nil
}

func (c *faultConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c *faultConn) Close() error                     { return nil }
func (c *faultConn) LocalAddr() net.Addr              { return faultAddr{} }
func (c *faultConn) RemoteAddr() net.Addr             { return faultAddr{} }
func (c *faultConn) SetDeadline(time.Time) error      { return nil }
func (c *faultConn) SetReadDeadline(time.Time) error  { return nil }
func (c *faultConn) SetWriteDeadline(time.Time) error { return nil }

type faultAddr struct{}

func (faultAddr) Network() string { return "fault" }
func (faultAddr) String() string  { return "fault" }
