package exchange

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A peer has the whole idle time to take what it is sent, however long the tunnel was silent before.
func TestATunnelsSilenceIsNotItsReadersTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, src := net.Pipe()
		dst, to := net.Pipe()
		tu := &tunnel{idle: time.Minute}
		tu.over.Store(true) // the test closes the connections
		done := make(chan struct{})
		go func() { defer close(done); tu.copy(dst, src) }()
		time.Sleep(tu.idle - time.Second)
		_, _ = from.Write([]byte("late"))
		time.Sleep(tu.idle - time.Second)
		got := make([]byte, 4)
		_ = to.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := io.ReadFull(to, got); err != nil || string(got) != "late" {
			t.Errorf("%q %v", got, err)
		}
		_ = from.Close()
		<-done
		_ = dst.Close()
	})
}
