// Package tcptest makes TCP connections within a test, for what net.Pipe has not: a socket.
package tcptest

import (
	"net"
	"testing"
)

// Pair returns both ends of a connection over loopback: near was accepted, and far was dialled. The test closes them
// when it ends.
func Pair(t testing.TB) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if far, err = net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	if near, err = l.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close() })
	return near, far
}
