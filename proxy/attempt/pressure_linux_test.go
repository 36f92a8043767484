package attempt

import (
	"net"
	"sync/atomic"
	"syscall"
	"testing"
)

// While memory is short, the upstream's system may not buffer much of a response that nobody reads, be it that
// of a first attempt or of a hedge.
func TestDialsUnderPressureAreBounded(t *testing.T) {
	for _, short := range []bool{false, true} {
		segments := make(chan int, 2)
		var connections atomic.Int32
		r := newRequest(t, serve(t, func(c net.Conn) {
			segments <- segmentOf(t, c)
			if connections.Add(1) == 1 {
				stalls(c)
				return
			}
			saysEach(ok200)(c)
		}))
		r.env.Host.UnderPressure = func() bool { return short }
		if a, _, _ := hedged(r); !a.Overtaken() {
			t.Fatal("the hedge did not end first")
		}
		for _, what := range []string{"first attempt", "hedge"} {
			if n := <-segments; n <= 1460 != short {
				t.Errorf("short of memory %v, %s: segments of %d bytes", short, what, n)
			}
		}
	}
}

// segmentOf returns the most data in a TCP segment that c sends.
func segmentOf(t *testing.T, c net.Conn) (n int) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Error(err)
		return 0
	}
	_ = raw.Control(func(fd uintptr) { n, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG) })
	if err != nil {
		t.Error(err)
	}
	return n
}
