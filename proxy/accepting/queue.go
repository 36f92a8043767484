package accepting

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// inspectable reports whether clientWaits works for l.
func inspectable(l net.Listener) bool {
	_, is := l.(syscall.Conn)
	return is
}

// clientWaits reports whether a client is in the accept queue of l. It does not wait.
func clientWaits(l net.Listener) (waits bool) {
	s, is := l.(syscall.Conn)
	if !is {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // it fails only if l is closed
		look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(look, 0)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll(look, 0)
		}
		waits = n > 0 && look[0].Revents&unix.POLLIN != 0
	})
	return waits
}
