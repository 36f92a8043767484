package rawsocket

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/retryproxy/retryproxy/internal/needs"
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

func TestUnacknowledged(t *testing.T) {
	needs.NetAdmin(t)
	c, theirs := pair(t, "tcp")
	send := func() { _, _ = c.Write([]byte("x")) }
	send()
	if time.Sleep(50 * time.Millisecond); Unacknowledged(c) {
		t.Fatal("acknowledged, but reported as not")
	}
	if err := deafen(theirs); err != nil {
		t.Fatal(err)
	}
	send()
	if time.Sleep(50 * time.Millisecond); Unacknowledged(c) {
		t.Fatal("reported before it was sent again")
	}
	for end := time.Now().Add(20 * time.Second); !Unacknowledged(Unwrap(c)); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never reported")
		}
	}
}

// deafen has the kernel drop whatever comes for c, as if its machine were gone.
func deafen(c net.Conn) error {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	drop := [1]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
	})
	return errors.Join(err, set)
}
