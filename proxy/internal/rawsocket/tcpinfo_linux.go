package rawsocket

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// IsTCPClosed reports whether the kernel has closed the TCP connection c. It has after a reset;
// after the peer's end it has only if this side has ended too. A closed connection that this side
// has not ended was therefore reset, even if no call reported the reset: a splice that moved some
// bytes before the reset does not. c is a Conn or the result of Unwrap; otherwise, and if it is
// not TCP, IsTCPClosed returns false.
func IsTCPClosed(c net.Conn) bool {
	info := tcpInfo(c)
	return info != nil && info.State == unix.BPF_TCP_CLOSE
}

// Acked returns how many bytes written to c the peer's system has acknowledged. c is as for
// IsTCPClosed. It returns 0 if that cannot be known.
func Acked(c net.Conn) uint64 {
	if info := tcpInfo(c); info != nil {
		return info.Bytes_acked
	}
	return 0
}

// vanishedAfter is how many retransmissions without an acknowledgement distinguish a vanished peer
// from a late acknowledgement. The fourth follows at least 3 s after the first send (RFC 6298,
// with Linux's minimum timeout of 200 ms), and later if the round trip is long.
const vanishedAfter = 4

// Unacknowledged reports whether the peer's system acknowledges nothing of what was sent several
// times. The peer or the network to it is then gone: a peer without room still acknowledges. c is
// as for IsTCPClosed. It returns false if that cannot be known.
func Unacknowledged(c net.Conn) bool {
	info := tcpInfo(c)
	return info != nil && info.Unacked > 0 && info.Retransmits >= vanishedAfter
}

// tcpInfo returns the kernel's information about c, or nil.
func tcpInfo(c net.Conn) (info *unix.TCPInfo) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) {
		if i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			info = i
		}
	})
	return info
}
