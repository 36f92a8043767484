package peers

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Port is one on loopback that belongs to the test, whether somebody listens on
// it or not: a second socket is bound to it and never listens, so that no other
// process gets it and no dial can meet itself there.
type Port struct {
	Addr string
	t    testing.TB
}

// ReservePort returns a port on which nobody listens.
func ReservePort(t testing.TB) Port {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.CloseOnExec(fd)
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := share(uintptr(fd)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return Port{fmt.Sprintf("127.0.0.1:%d", at.(*unix.SockaddrInet4).Port), t}
}

func share(fd uintptr) error {
	return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
}

// Open listens on the port. It may be called again once the listener is closed.
func (p Port) Open() net.Listener {
	p.t.Helper()
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) { err = share(fd) }); e != nil {
			return e
		}
		return err
	}}
	l, err := lc.Listen(context.Background(), "tcp4", p.Addr)
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}
