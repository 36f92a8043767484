package attempt

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/tcptest"
)

// The client is watched from when the wait has lasted for unwatched, however often a deadline ended it before.
func TestAWaitThatGoesOnIsNoLonger(t *testing.T) {
	inMemory(t, saysEach(ok200), func(r *request) {
		a := r.wants(Options{})
		since := r.clock.Now()
		for _, after := range []time.Duration{0, leastUnwatched - 1, leastUnwatched, unwatched - 1} {
			a.conn.forgetRead()
			if a.setRead(0, since, since.Add(after)); a.conn.readBy() != since.Add(unwatched) {
				t.Errorf("after %v, it ends after %v", after, a.conn.readBy().Sub(since))
			}
		}
	})
}

// A deadline of an earlier piece or request is moved if it would end the next piece of a fast download: the client
// would be watched for the rest of it.
func TestAPieceThatTheKernelMovesHasTime(t *testing.T) {
	dst, client := tcptest.Pair(t)
	go func() { _, _ = io.Copy(io.Discard, client) }() // until it is closed
	for left, want := range map[time.Duration]time.Duration{time.Millisecond: unwatched, leastUnwatched - 1: unwatched, leastUnwatched: leastUnwatched} {
		r := newRequest(t, serve(t, says("HTTP/1.1 200 OK\r\nContent-Length: 40000\r\n\r\n"+strings.Repeat("a", 40000))))
		a := r.wants(Options{})
		a.upload.stop() // on a busy machine the client may be watched already
		_, _ = a.Body().Buffered()
		now := r.clock.Now()
		a.conn.setRead(now.Add(left))
		_, _, _ = a.Body().SpliceTo(dst, now.Add(time.Hour), now)
		if got := a.conn.readBy().Sub(now); got != want {
			t.Errorf("%v were left, and then %v, want %v", left, got, want)
		}
	}
}
