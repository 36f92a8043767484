package rawsocket

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Unsent reports whether the socket holds bytes that the peer has no room for yet. For a
// unix socket this is unknown, and it returns true.
func Unsent(raw syscall.RawConn) bool {
	unsent := true
	_ = raw.Control(func(fd uintptr) {
		if n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD); err == nil {
			unsent = n > 0
		}
	})
	return unsent
}

// BoundUnsent limits the bytes that the kernel buffers for a peer without room for them. It
// only affects TCP.
func BoundUnsent(raw syscall.RawConn, n int) {
	_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, n) })
}
