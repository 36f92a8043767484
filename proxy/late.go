package proxy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// lateBound is how long the answer to a probe is awaited whose caller has
// left. It is longer than most outages; after it another probe will do.
const lateBound = time.Minute

// waitForLate reads on for the answer to an abandoned probe and tells the
// Guard. It takes the connection.
func (d *door) waitForLate(up *upstream.Conn, place policy.Place) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		up.Abort()
		return
	}
	d.late[up] = struct{}{}
	d.probes.Go(func() {
		e := readLate(up)
		d.mu.Lock()
		delete(d.late, up)
		d.mu.Unlock()
		up.Abort()
		d.heed(d.guard.Leave(place, d.since(time.Now()), e))
	})
}

// readLate reads a response head.
func readLate(up *upstream.Conn) policy.Ending {
	_ = up.SetReadDeadline(time.Now().Add(lateBound))
	buf := getBuffer(smallBuffer)
	defer putBuffer(buf)
	var r http1.Response
	for have := 0; have < len(buf); {
		n, err := up.Read(buf[have:])
		if n == 0 && err != nil {
			break
		}
		have += n
		if n, err := r.Parse(buf[:have], http1.Limits{HeadBytes: smallBuffer, Fields: 100}, nil); err != nil {
			break
		} else if n > 0 {
			return policy.Ending{Kind: policy.Answered, Status: max(r.Status, 200)}
		}
	}
	return policy.Ending{Kind: policy.Reset}
}
