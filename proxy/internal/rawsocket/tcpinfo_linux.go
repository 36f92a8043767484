package rawsocket

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// IsTCPClosed reports whether the kernel is done with the TCP connection c. That is so after a reset; after
// the peer's end it is so only if this side has ended too. A connection that this side has not
// ended was therefore reset if it is closed, even if no call has reported the reset: a splice that moved some bytes
// before it met the reset does not. c is a Conn or what Unwrap returns; false if it is neither or not TCP.
func IsTCPClosed(c net.Conn) bool {
	info := tcpInfo(c)
	return info != nil && info.State == unix.BPF_TCP_CLOSE
}

// Acked returns how many bytes of what was written to c the peer's system has acknowledged. c is as for
// IsTCPClosed; 0 if it cannot be known.
func Acked(c net.Conn) uint64 {
	if info := tcpInfo(c); info != nil {
		return info.Bytes_acked
	}
	return 0
}

// vanishedAfter is how many retransmissions without an acknowledgement tell a peer that vanished
// from one whose acknowledgement is late. The fourth follows at least 3 s after the first send
// (RFC 6298, with Linux's least timeout of 200 ms), and later if the round trip is long.
const vanishedAfter = 4

// Unacknowledged reports whether the peer's system acknowledges nothing of what was sent, although
// it was sent several times. The peer or the network to it is gone. A peer that
// only has no room acknowledges. c is as for IsTCPClosed; false if it cannot be known.
func Unacknowledged(c net.Conn) bool {
	info := tcpInfo(c)
	return info != nil && info.Unacked > 0 && info.Retransmits >= vanishedAfter
}

// tcpInfo returns what the kernel knows of c, or nil.
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
