package admission

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// LateResponseTimeout is how long to wait for the response to a probe that hangs or whose client
// has left. It is longer than most outages; after it, another probe follows.
const LateResponseTimeout = time.Minute

// AwaitLateResponse waits for the response to an abandoned probe and reports it to the Guard. It
// takes over the connection.
func (d *Queue) AwaitLateResponse(up *upstream.Conn, permit breaker.Permit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.addLateProbe(up) {
		up.Abort()
		return
	}
	d.probes.Go(func() {
		e := readLateResponse(up)
		d.removeLateProbe(up)
		d.HandleSignal(d.Guard.Release(permit, d.elapsed(), e))
	})
}

// addLateProbe bounds reading from up by LateResponseTimeout and by the end of the queue. It
// reports false if the queue has ended. It is called with mu held.
func (d *Queue) addLateProbe(up *upstream.Conn) bool {
	if d.isOver() {
		return false
	}
	d.lateProbes[up] = struct{}{}
	_ = up.SetDeadline(time.Now().Add(LateResponseTimeout))
	return true
}

// removeLateProbe closes the connection.
func (d *Queue) removeLateProbe(up *upstream.Conn) {
	d.mu.Lock()
	delete(d.lateProbes, up)
	d.mu.Unlock()
	up.Abort()
}

// readLateResponse reads final response headers within the read deadline of up.
func readLateResponse(up *upstream.Conn) breaker.AttemptEnd {
	a := attempt.Attempt{Buffers: &buffer.Cache{}, Up: up}
	defer func() {
		a.GiveUpBuffer()
		a.Buffers.Release()
	}()
	if a.ReadFinalHeaders(attempt.Plain{}, http1.Limits{HeaderBytes: buffer.Medium, Headers: 100}, nil) != policy.CauseStatus {
		return breaker.AttemptEnd{Kind: breaker.Reset}
	}
	return breaker.AttemptEnd{Kind: breaker.Responded, Status: a.Resp.Status}
}

// endProbes ends the dials and reads of all probes. It is called with mu held.
func (d *Queue) endProbes() {
	d.cancelDials()
	for up := range d.lateProbes {
		_ = up.SetDeadline(time.Unix(1, 0))
	}
}
