package proxy

import (
	"sync"

	"golang.org/x/sys/unix"
)

// hungUp says whether the client has closed its side, although bytes that it
// sent before may still be unread. False where it cannot be known.
func (c *conn) hungUp() bool {
	if c.raw == nil {
		return c.stream != nil && c.stream.ClientGone()
	}
	l := looks.Get().(*look)
	defer looks.Put(l)
	l.gone = false
	return c.raw.Control(l.ask) != nil || l.gone
}

// look is one of hungUp, kept so that it allocates nothing: a retry without a wait has one.
type look struct {
	ask  func(fd uintptr)
	poll [1]unix.PollFd
	gone bool
}

var looks = sync.Pool{New: func() any {
	l := new(look)
	l.ask = l.at
	return l
}}

func (l *look) at(fd uintptr) {
	l.poll[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP}
	n, err := unix.Poll(l.poll[:], 0)
	l.gone = err == nil && n > 0 && l.poll[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}
