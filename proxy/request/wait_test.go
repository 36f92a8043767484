package request

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// After a wait that somebody ended early the read deadline is in the past, and
// is known to be.
func TestAWaitThatWasEndedLeavesNoDeadlineBehind(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	p := NewProcess(0, Hooks{})
	var c downstream.Conn
	var r Request
	c.Init(far, p.Clock, "", 0, noSpans{})
	defer c.PutIn()
	r.Init(&c, p)
	c.Begin(buffer.Small)
	w := &admission.Waiter{Owner: &c}
	until := p.Clock.Now().Add(time.Minute)
	done := make(chan admission.WaitEnd)
	go func() { done <- r.Await(until, w) }()
	for c.Phase() != downstream.PhaseBackoff {
		time.Sleep(time.Millisecond)
	}
	w.Notify(admission.Admit)
	if end := <-done; end != admission.Notified {
		t.Fatalf("the wait ended as %v", end)
	}
	c.SetRead(until.Add(-time.Millisecond), time.Second) // as the pump does for a body
	go func() { _, _ = io.WriteString(near, "x") }()
	if err := c.Fill(); err != nil {
		t.Errorf("the next read: %v", err)
	}
}

// faultyConn panics when a wait sets its deadline.
type faultyConn struct{ net.Conn }

func (faultyConn) SetReadDeadline(time.Time) error { panic("a fault of the test") }

// A wait for a rate-limit pause that ends in a panic is no longer counted. The server contains the
// panic, so the count would be too high from then on.
func TestAPanicInAPauseIsNotCountedAsPaused(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	p := NewProcess(0, Hooks{})
	var c downstream.Conn
	c.Init(faultyConn{far}, p.Clock, "", 0, nil)
	var r Request
	r.Init(&c, p)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		r.AwaitPause(p.Clock.Now().Add(time.Minute))
	}()
	if paused, waiting := p.Paused.Load(), p.Waiting.Load(); paused != 0 || waiting != 0 {
		t.Errorf("%d paused and %d waiting, want none", paused, waiting)
	}
}

// noSpans holds no spans of the read buffer.
type noSpans struct{}

func (noSpans) Detach()              {}
func (noSpans) CheckDetached([]byte) {}
func (noSpans) Compact()             {}
