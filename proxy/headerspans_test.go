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
)

// doneWith is told the method that a request is counted as.
type doneWith struct {
	*recorder
	onDone func(method []byte)
}

func (d doneWith) RequestDone(method []byte, code int, o policy.Outcome, took, added time.Duration, attempts int) {
	d.onDone(method)
	d.recorder.RequestDone(method, code, o, took, added, attempts)
}

// What a request given up in the middle of its head is counted and logged as
// lies in its own buffer, not in one that another client has by now.
func TestSlowHeadersAreReportedFromTheirOwnBuffer(t *testing.T) {
	seen := &recorder{}
	c := testConfig(t, "http://127.0.0.1:1", seen)
	c.ReadHeaderTimeout = 50 * time.Millisecond
	var conn *conn
	var own bool
	c.Observe = always(doneWith{seen, func(method []byte) {
		own = bytes.Equal(method, []byte("GET")) && unsafe.SliceData(method) == unsafe.SliceData(conn.in)
	}})
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	headers := "GET /own HTTP/1.1\r\nHost: x\r\nA: "
	go func() {
		_, _ = io.WriteString(near, headers+strings.Repeat("a", 3000-len(headers)))
		_, _ = io.WriteString(near, strings.Repeat("a", smallBuffer-3000)) // full, and not worth reading again
		_, _ = io.Copy(io.Discard, near)
	}()
	conn = newConn(s, far, "")
	if conn.nextRequest() {
		t.Fatal("a head without end was taken")
	}
	if len(conn.in) <= smallBuffer {
		t.Fatal("the buffer did not grow, so the test shows nothing")
	}
	if !own {
		t.Error("its method lies in another buffer")
	}
	_ = far.Close()
	_ = near.Close()
}

// After a wait that somebody ended early the read deadline is in the past, and
// is known to be.
func TestAWaitThatWasEndedLeavesNoDeadlineBehind(t *testing.T) {
	s, err := New(testConfig(t, "http://127.0.0.1:1", &recorder{}))
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	conn := newConn(s, far, "")
	conn.in = getBuffer(smallBuffer)
	w := &waiter{c: conn}
	until := s.now().Add(time.Minute)
	done := make(chan waitEnd)
	go func() { done <- conn.await(until, w) }()
	soon(t, "the wait to begin", func() bool { return conn.phase.Load() == phaseBackoff })
	w.notify(decisionAdmit)
	if end := <-done; end != told {
		t.Fatalf("the wait ended as %v", end)
	}
	conn.setRead(until.Add(-time.Millisecond), time.Second) // as the pump does for a body
	go func() { _, _ = io.WriteString(near, "x") }()
	if err := conn.fill(); err != nil {
		t.Errorf("the next read: %v", err)
	}
}
