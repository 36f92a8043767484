package proxy

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// doneWith is told the method that a request is counted as.
type doneWith struct {
	*peers.Recorder
	onDone func(method []byte)
}

func (d doneWith) RequestDone(method []byte, code int, o policy.Outcome, took, added time.Duration, attempts int) {
	d.onDone(method)
	d.Recorder.RequestDone(method, code, o, took, added, attempts)
}

// A request given up in the middle of its headers is counted and logged from its own buffer, not
// from one that another client has by now.
func TestSlowHeadersAreReportedFromTheirOwnBuffer(t *testing.T) {
	seen := &peers.Recorder{}
	c := peers.NewConfig(t, "http://127.0.0.1:1", seen)
	c.ReadHeaderTimeout = 50 * time.Millisecond
	var conn *conn
	var own bool
	c.Observe = peers.Always(doneWith{seen, func(method []byte) {
		own = bytes.Equal(method, []byte("GET")) && unsafe.SliceData(method) == unsafe.SliceData(conn.client.Memory())
	}})
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	headers := "GET /own HTTP/1.1\r\nHost: x\r\nA: "
	go func() {
		_, _ = io.WriteString(near, headers+strings.Repeat("a", 3000-len(headers)))
		_, _ = io.WriteString(near, strings.Repeat("a", buffer.Small-3000)) // full, and not worth reading again
		_, _ = io.Copy(io.Discard, near)
	}()
	conn = newConn(s, far, "")
	defer func() {
		conn.client.Buffers.Release()
		conn.client.PutIn()
	}()
	if conn.nextRequest() {
		t.Fatal("a head without end was taken")
	}
	if len(conn.client.Memory()) <= buffer.Small {
		t.Fatal("the buffer did not grow, so the test shows nothing")
	}
	if !own {
		t.Error("its method lies in another buffer")
	}
	_ = far.Close()
	_ = near.Close()
}
