package sock

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ManyLooks says that Look looks.
const ManyLooks = true

// Looked is a socket to look at, and what a Look found.
type Looked struct{ fd unix.PollFd }

// At makes l a socket to look at, which has to stay open until the Look is over.
func (l *Looked) At(fd int32) {
	l.fd = unix.PollFd{Fd: fd, Events: unix.POLLIN | unix.POLLRDHUP}
}

// Quiet says whether there was nothing to read, no end and no error.
func (l *Looked) Quiet() bool { return l.fd.Revents == 0 }

// Look looks at all, at once and without a wait. False: it could not, and none is known to be quiet.
func Look(all []Looked) bool {
	var never unix.Timespec
	for {
		_, _, e := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(all))), uintptr(len(all)), uintptr(unsafe.Pointer(&never)), 0, 0, 0)
		if e != syscall.EINTR {
			return e == 0
		}
	}
}
