package downstream

import (
	"sync"

	"golang.org/x/sys/unix"
)

// HungUp reports whether the client has closed its side, even if earlier bytes are still unread.
// It returns false if that cannot be known.
func (c *Conn) HungUp() bool {
	if c.Raw == nil {
		return c.Stream != nil && c.Stream.ClientGone()
	}
	l := looks.Get().(*look)
	defer looks.Put(l)
	l.gone = false
	return c.Raw.Control(l.ask) != nil || l.gone
}

// look is the state of one HungUp call. It is pooled, so that the call allocates nothing.
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
