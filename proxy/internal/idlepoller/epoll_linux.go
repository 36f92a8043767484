package idlepoller

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxEvents bounds the sockets told of in one go; the others are told of in the next.
const maxEvents = 64

// epoll is an epoll instance of its own, whose descriptor the runtime's poller
// watches like that of a socket: so the wait for all guests is that of one
// goroutine, without a thread, and ends by a deadline or by close.
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
	if err := unix.SetNonblock(fd, true); err != nil { // or os would not hand it to the runtime's poller
		_ = unix.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	p.file = os.NewFile(uintptr(fd), "epoll")
	p.raw, err = p.file.SyscallConn()
	if err == nil {
		err = p.file.SetReadDeadline(time.Time{}) // an error says that the runtime does not watch it
	}
	if err != nil {
		_ = p.file.Close()
		return err
	}
	p.collect = p.ready
	return nil
}

// add watches a socket. What is there already is told as well.
func (p *epoll) add(socket syscall.RawConn, number uint64) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(uint32(number)), Pad: int32(uint32(number >> 32))}
	return p.control(socket, unix.EPOLL_CTL_ADD, &e)
}

// remove watches a socket no more. It has no error: one that is closed is
// watched no more either.
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

// wait gives the numbers of sockets that are readable; they are valid until
// the next call. os.ErrDeadlineExceeded: the alarm went off, and does so until
// it is set anew. Any other error: close was called.
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

// ready is called when there may be news; true ends the wait. The runtime is
// told of news once, so that nothing may be left behind when it waits: those
// told of are removed from the instance, and wait comes again until there is nothing.
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
