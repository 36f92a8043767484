package rawsocket

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

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
