package proxy

import "golang.org/x/sys/unix"

// hungUp says whether the caller has closed its side, although bytes that it
// sent before may still be unread. False where it cannot be known.
func (c *conn) hungUp() bool {
	if c.raw == nil {
		return c.stream != nil && c.stream.Gone()
	}
	var gone bool
	err := c.raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		gone = err == nil && n > 0 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone || err != nil
}
