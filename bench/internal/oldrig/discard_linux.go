package oldrig

import (
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// discard throws n bytes away inside the kernel, which copies nothing (MSG_TRUNC
// of tcp(7)), so that an upstream beside the load costs little.
func discard(c *net.TCPConn, n int64) error {
	if n <= 0 {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for n > 0 {
			buf := padding[:min(n, int64(len(padding)))]
			m, _, err := unix.Recvfrom(int(fd), buf, unix.MSG_TRUNC|unix.MSG_DONTWAIT)
			switch {
			case err == unix.EAGAIN:
				return false
			case err == unix.EINTR:
			case err != nil:
				failed = err
				return true
			case m == 0:
				failed = io.ErrUnexpectedEOF
				return true
			default:
				n -= int64(m)
			}
		}
		return true
	})
	if failed != nil {
		return failed
	}
	return err
}
