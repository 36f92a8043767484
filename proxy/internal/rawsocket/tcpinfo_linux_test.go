package rawsocket

import (
	"io"
	"net"
	"testing"
	"time"
)

func TestIsTCPClosed(t *testing.T) {
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
			if IsTCPClosed(c) != tc.over || IsTCPClosed(Unwrap(c)) != tc.over {
				t.Errorf("over: %v and %v, want %v", IsTCPClosed(c), IsTCPClosed(Unwrap(c)), tc.over)
			}
		})
	}
	t.Run("not TCP", func(t *testing.T) {
		c, theirs := pair(t, "unix")
		_ = theirs.Close()
		_, _ = io.ReadAll(c)
		if IsTCPClosed(c) || IsTCPClosed(nil) {
			t.Error("over")
		}
	})
}
