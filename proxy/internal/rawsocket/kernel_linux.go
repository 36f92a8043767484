package rawsocket

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
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

// Moved returns how many bytes of the connection the kernel has received from the peer, plus those
// that the peer's system has acknowledged. It returns false for what is not TCP.
func Moved(raw syscall.RawConn) (n uint64, ok bool) {
	_ = raw.Control(func(fd uintptr) {
		if i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n, ok = i.Bytes_received+i.Bytes_acked, true
		}
	})
	return n, ok
}

// Unread returns how many bytes of the connection the kernel has received that were not read yet. It
// returns 0 if that cannot be known.
func Unread(raw syscall.RawConn) (n int) {
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return max(n, 0)
}

// vanishedAfter is how many retransmissions without an acknowledgement distinguish a vanished peer
// from a late acknowledgement. The fourth follows at least 3 s after the first send (RFC 6298,
// with Linux's minimum timeout of 200 ms), and later if the round trip is long.
const vanishedAfter = 4

// Unacknowledged reports whether the peer's system acknowledges nothing of what was sent several
// times. The peer or the network to it is then gone: a peer without room still acknowledges, the
// probes of its window too. c is as for IsTCPClosed. It returns false if that cannot be known.
func Unacknowledged(c net.Conn) bool {
	info := tcpInfo(c)
	return info != nil && (info.Unacked > 0 && info.Retransmits >= vanishedAfter || info.Probes >= vanishedAfter)
}

// silentAfter is how many retransmissions without an acknowledgement make a peer suspect, so that nothing more
// is sent to it. The second follows at least 600 ms after the first send.
const silentAfter = 2

// Silent is like Unacknowledged, but sooner and less certain.
func Silent(c net.Conn) bool {
	info := tcpInfo(c)
	return info != nil && (info.Unacked > 0 && info.Retransmits >= silentAfter || info.Probes >= silentAfter)
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

// BoundSegments limits the TCP segments that the peer sends to n bytes of data. It must be called before
// the socket connects. It only affects TCP.
func BoundSegments(raw syscall.RawConn, n int) {
	_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, n) })
}

var (
	spliceRefused atomic.Bool
	spliceTried   = sync.OnceFunc(func() { spliceRefused.Store(!trySplice()) })
)

// CanSplice reports whether the system can move bytes from one socket to another inside the
// kernel. System call filters (seccomp) and some sandboxes refuse splice(2). The first call
// tests both directions on its own sockets, so that no client's bytes are in a pipe if it
// fails.
func CanSplice() bool {
	spliceTried()
	return !spliceRefused.Load()
}

// NoteSplice records the error of a splice. If the system refuses splice, CanSplice returns
// false from then on.
func NoteSplice(err error) {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		spliceRefused.Store(true)
	}
}

// trySplice moves a byte from a socket through a pipe to a socket.
func trySplice() bool {
	var pipe [2]int
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return true // no descriptor, which proves nothing about splice
	}
	defer closeAll(ends[:]...)
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return true
	}
	defer closeAll(pipe[:]...)
	if _, err := unix.Write(ends[0], []byte("x")); err != nil {
		return true
	}
	for _, way := range [2][2]int{{ends[1], pipe[1]}, {pipe[0], ends[1]}} {
		if n, err := unix.Splice(way[0], nil, way[1], nil, 1, unix.SPLICE_F_NONBLOCK); n != 1 || err != nil {
			return false
		}
	}
	return true
}

func closeAll(fds ...int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
