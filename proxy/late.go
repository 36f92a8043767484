package proxy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// lateBound is how long the answer to a probe is awaited that hangs or whose
// client has left. It is longer than most outages; after it another probe will do.
const lateBound = time.Minute

// waitForLate reads on for the answer to an abandoned probe and tells the
// Guard. It takes the connection.
func (d *door) waitForLate(up *upstream.Conn, place policy.Permit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.readsOn(up) {
		up.Abort()
		return
	}
	d.probes.Go(func() {
		e := readLate(up)
		d.readsNoMore(up)
		d.heed(d.guard.Release(place, d.elapsed(), e))
	})
}

// readsOn bounds the reading from up by lateBound, and by the door's end: false
// when that has come. Called with mu held.
func (d *door) readsOn(up *upstream.Conn) bool {
	if d.ended() {
		return false
	}
	d.late[up] = struct{}{}
	_ = up.SetDeadline(time.Now().Add(lateBound))
	return true
}

// readsNoMore ends up.
func (d *door) readsNoMore(up *upstream.Conn) {
	d.mu.Lock()
	delete(d.late, up)
	d.mu.Unlock()
	up.Abort()
}

// readLate reads a final response headers, within the deadline that up has.
func readLate(up *upstream.Conn) policy.AttemptEnd {
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
func (d *door) endProbes() {
	d.stop()
	for up := range d.late {
		_ = up.SetDeadline(past)
	}
}
