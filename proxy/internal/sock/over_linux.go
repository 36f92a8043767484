package sock

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Over says whether the kernel is through with the TCP connection c, which it is after a
// reset, and after an end of the peer's only when this side has ended too. So a
// connection that this side has not ended, and that is over, was reset, whoever
// was told of it or nobody: a splice that moved some bytes before it
// met a reset does not tell of it, and the next call meets a broken pipe. c is a Conn or
// what Under gives; false where it is neither or not TCP.
func Over(c net.Conn) bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	over := false
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		over = err == nil && info.State == unix.BPF_TCP_CLOSE
	})
	return err == nil && over
}

// Untaken is how many of the bytes written to the socket the other side's system has
// not confirmed (SIOCOUTQ); 0 where that is not known. An orderly end of a TCP connection confirms
// all that had come; what was read and not confirmed yet counts after a reset.
func Untaken(fd uintptr) int {
	n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}
