package upstream

import (
	"net"
	"syscall"
	"testing"
)

func TestSocketOptionsOfADialledConnection(t *testing.T) {
	s := tcpServer(t)
	c := get(t, makePool(t, s.target(), Options{}), GetOptions{})
	raw, err := c.Raw().(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []struct {
		name            string
		level, opt, val int
	}{
		{"TCP_NODELAY", syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1},
		{"SO_KEEPALIVE", syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
		{"TCP_KEEPIDLE", syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 10},
		{"TCP_KEEPINTVL", syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 5},
		{"TCP_KEEPCNT", syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 3},
	} {
		var got int
		var err error
		if e := raw.Control(func(fd uintptr) { got, err = syscall.GetsockoptInt(int(fd), o.level, o.opt) }); e != nil || err != nil {
			t.Fatal(e, err)
		}
		if got != o.val {
			t.Errorf("%s is %d, want %d", o.name, got, o.val)
		}
	}
}

// The upstream's system buffers tens of segments of what is not read, so the segments must not be those of
// loopback. A unix socket has none.
func TestBoundUnsentBoundsTheUpstreamsSegments(t *testing.T) {
	for _, bound := range []bool{false, true} {
		s := tcpServer(t)
		get(t, makePool(t, s.target(), Options{}), GetOptions{BoundUnsent: bound})
		raw, err := s.accept().(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var got int
		if e := raw.Control(func(fd uintptr) { got, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG) }); e != nil || err != nil {
			t.Fatal(e, err)
		}
		if got <= segmentBytes != bound {
			t.Errorf("bound %v: the upstream sends segments of %d bytes", bound, got)
		}
	}
	get(t, makePool(t, unixServer(t).target(), Options{}), GetOptions{BoundUnsent: true})
}
