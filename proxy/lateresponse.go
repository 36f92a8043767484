package proxy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// lateResponseTimeout is how long the answer to a probe is awaited that hangs or whose
// client has left. It is longer than most outages; after it another probe will do.
const lateResponseTimeout = time.Minute

// awaitLateResponse reads on for the answer to an abandoned probe and tells the
// Guard. It takes the connection.
func (d *admissionQueue) awaitLateResponse(up *upstream.Conn, permit policy.Permit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.addLateProbe(up) {
		up.Abort()
		return
	}
	d.probes.Go(func() {
		e := readLateResponse(up)
		d.removeLateProbe(up)
		d.handleSignal(d.guard.Release(permit, d.elapsed(), e))
	})
}

// addLateProbe bounds the reading from up by lateResponseTimeout, and by the queue's end: false
// when that has come. Called with mu held.
func (d *admissionQueue) addLateProbe(up *upstream.Conn) bool {
	if d.isOver() {
		return false
	}
	d.lateProbes[up] = struct{}{}
	_ = up.SetDeadline(time.Now().Add(lateResponseTimeout))
	return true
}

// removeLateProbe ends up.
func (d *admissionQueue) removeLateProbe(up *upstream.Conn) {
	d.mu.Lock()
	delete(d.lateProbes, up)
	d.mu.Unlock()
	up.Abort()
}

// readLateResponse reads a final response headers, within the deadline that up has.
func readLateResponse(up *upstream.Conn) policy.AttemptEnd {
	buf := getBuffer(mediumBuffer)
	defer putBuffer(buf)
	var r http1.Response
	for have := 0; have < len(buf); {
		n, err := up.Read(buf[have:])
		if n == 0 && err != nil {
			break
		}
		have += n
		for {
			n, err := r.Parse(buf[:have], http1.Limits{HeaderBytes: len(buf), Headers: 100}, nil)
			if err != nil {
				return policy.AttemptEnd{Kind: policy.Reset}
			}
			if n == 0 {
				break
			}
			if !r.Interim() {
				return policy.AttemptEnd{Kind: policy.Responded, Status: r.Status}
			}
			have = copy(buf, buf[n:have])
		}
	}
	return policy.AttemptEnd{Kind: policy.Reset}
}

// endProbes ends dialling and reading of all probes. Called with mu held.
func (d *admissionQueue) endProbes() {
	d.cancelDials()
	for up := range d.lateProbes {
		_ = up.SetDeadline(past)
	}
}
