package rawsocket

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// IsTCPClosed says whether the kernel is through with the TCP connection c, which it is after a
// reset, and after an end of the peer's only when this side has ended too. So a
// connection that this side has not ended, and that is over, was reset, whoever
// was told of it or nobody: a splice that moved some bytes before it
// met a reset does not tell of it, and the next call meets a broken pipe. c is a Conn or
// what Under gives; false where it is neither or not TCP.
func IsTCPClosed(c net.Conn) bool {
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

// Acked is how many bytes of what was written to c the peer's system has confirmed. c is as for Over; 0 where it cannot be known.
func Acked(c net.Conn) (n uint64) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Bytes_acked
		}
	})
	return n
}
