package admin

import (
	"bytes"
	"net"
	"syscall"
)

// silence is how many seconds the kernel withholds a connection on which no bytes have arrived.
// While they are new, such connections do not even reach the process.
const silence = 2

// deferAccept makes the kernel withhold connections until their first bytes.
func deferAccept(l net.Listener) {
	tcp, is := l.(*net.TCPListener)
	if !is {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // without it, silent connections are still closed for others
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_DEFER_ACCEPT, silence)
	})
}

// asks reports whether a complete request header section has arrived on conn. It leaves the bytes
// there.
func asks(conn net.Conn) bool {
	s, is := conn.(syscall.Conn)
	if !is {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	var p [4 << 10]byte
	n := 0
	_ = raw.Control(func(fd uintptr) {
		n, _, _ = syscall.Recvfrom(int(fd), p[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return n > 0 && bytes.Contains(p[:n], endOfHead)
}
