package sock

import (
	"io"
	"net"
	"testing"
	"time"
)

func TestOver(t *testing.T) {
	for name, tc := range map[string]struct {
		theirs func(c net.Conn)
		over   bool
	}{
		"open":   {func(net.Conn) {}, false},
		"ended":  {func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() }, false},
		"closed": {func(c net.Conn) { _ = c.Close() }, false},
		"reset":  {func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); _ = c.Close() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, theirs := pair(t, "tcp")
			tc.theirs(theirs)
			if name != "open" {
				_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
				_, _ = c.Read(make([]byte, 1))
			}
			if Over(c) != tc.over || Over(Under(c)) != tc.over {
				t.Errorf("over: %v and %v, want %v", Over(c), Over(Under(c)), tc.over)
			}
		})
	}
	t.Run("not TCP", func(t *testing.T) {
		c, theirs := pair(t, "unix")
		_ = theirs.Close()
		_, _ = io.ReadAll(c)
		if Over(c) || Over(nil) {
			t.Error("over")
		}
	})
}
