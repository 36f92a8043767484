package idlepoller

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxEvents limits the events per wait; the next wait returns the rest.
const maxEvents = 64

// epoll is a separate epoll instance whose descriptor the runtime's poller watches like
// that of a socket. So one goroutine waits for all entries, without a thread, and the wait
// ends by a deadline or by close.
type epoll struct {
	file    *os.File
	raw     syscall.RawConn
	collect func(fd uintptr) bool
	events  [maxEvents]unix.EpollEvent
	numbers [maxEvents]uint64
	n       int
	err     error
}

func (p *epoll) open() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // otherwise os would not register it with the runtime's poller
		_ = unix.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	p.file = os.NewFile(uintptr(fd), "epoll")
	p.raw, err = p.file.SyscallConn()
	if err == nil {
		err = p.file.SetReadDeadline(time.Time{}) // fails if the runtime does not poll it
	}
	if err != nil {
		_ = p.file.Close()
		return err
	}
	p.collect = p.ready
	return nil
}

// add watches a socket. It also reports data that is there already.
func (p *epoll) add(socket syscall.RawConn, number uint64) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(uint32(number)), Pad: int32(uint32(number >> 32))}
	return p.control(socket, unix.EPOLL_CTL_ADD, &e)
}

// remove stops watching a socket. It returns no error: a closed socket is not watched
// either.
func (p *epoll) remove(socket syscall.RawConn) { _ = p.control(socket, unix.EPOLL_CTL_DEL, nil) }

func (p *epoll) control(socket syscall.RawConn, op int, e *unix.EpollEvent) error {
	var err error
	use := func(fd uintptr) {
		err = p.raw.Control(func(epoll uintptr) {
			if e := unix.EpollCtl(int(epoll), op, int(fd), e); e != nil {
				err = os.NewSyscallError("epoll_ctl", e)
			}
		})
	}
	if failed := socket.Control(use); failed != nil {
		return failed
	}
	return err
}

// wait returns the numbers of readable sockets, valid until the next call.
// os.ErrDeadlineExceeded means that the wake time has passed; wait keeps returning it until
// the wake time is set again. Any other error means that close was called.
func (p *epoll) wait() ([]uint64, error) {
	p.n, p.err = 0, nil
	err := p.raw.Read(p.collect)
	if err == nil {
		err = p.err
	}
	for i, e := range p.events[:p.n] {
		p.numbers[i] = uint64(uint32(e.Pad))<<32 | uint64(uint32(e.Fd))
	}
	return p.numbers[:p.n], err
}

// ready is called when there may be events; it returns true to end the wait. The runtime
// reports an event only once, so none may be left when it waits: the poller removes
// reported sockets from the instance, and calls wait until there are none.
func (p *epoll) ready(epoll uintptr) bool {
	n, err := unix.EpollWait(int(epoll), p.events[:], 0)
	for err == unix.EINTR {
		n, err = unix.EpollWait(int(epoll), p.events[:], 0)
	}
	p.n = max(n, 0)
	if err != nil {
		p.err = os.NewSyscallError("epoll_wait", err)
	}
	return p.n > 0 || err != nil
}

func (p *epoll) setWakeTime(t time.Time) { _ = p.file.SetReadDeadline(t) }

func (p *epoll) close() { _ = p.file.Close() }
