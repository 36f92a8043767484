//go:build linux && (amd64 || arm64) && !race

package rawsocket

import (
	"syscall"
	"unsafe"
)

// WritevIsOneCall is whether Writev makes one system call for several parts.
const WritevIsOneCall = true

// maxParts limits the parts of one call; the next one writes the rest.
const maxParts = 9

// Vectors is scratch memory for the parts of a write.
type Vectors [maxParts]syscall.Iovec

// TryRead reads once. 0 bytes without an error is the end of the stream; syscall.EAGAIN
// means that there is no data yet. p must not be empty.
func TryRead(fd uintptr, p []byte) (int, error) {
	for {
		n, _, e := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), 0, 0, 0)
		if e == 0 {
			return int(n), nil
		}
		if e != syscall.EINTR {
			return 0, errno(e)
		}
	}
}

// TryPeek is like TryRead, but leaves the bytes in the socket.
func TryPeek(fd uintptr, p []byte) (int, error) {
	for {
		n, _, e := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)),
			syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
		if e == 0 {
			return int(n), nil
		}
		if e != syscall.EINTR {
			return 0, errno(e)
		}
	}
}

// TryWritev writes once and returns how many bytes of parts, at least one, were accepted. v
// is scratch memory for the call.
func TryWritev(fd uintptr, parts [][]byte, v *Vectors) (int, error) {
	if len(parts) > 1 {
		return tryWritev(fd, parts, v)
	}
	return TryWrite(fd, parts[0])
}

// TryWrite writes once and returns how many bytes of p, which must not be empty, were
// accepted.
func TryWrite(fd uintptr, p []byte) (int, error) {
	for {
		n, _, e := syscall.RawSyscall6(syscall.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)),
			syscall.MSG_NOSIGNAL, 0, 0)
		if e == 0 {
			return int(n), nil
		}
		if e != syscall.EINTR {
			return 0, errno(e)
		}
	}
}

func tryWritev(fd uintptr, parts [][]byte, v *Vectors) (int, error) {
	count := uintptr(v.fill(parts))
	n, _, e := syscall.RawSyscall(syscall.SYS_WRITEV, fd, uintptr(unsafe.Pointer(v)), count)
	for e == syscall.EINTR {
		n, _, e = syscall.RawSyscall(syscall.SYS_WRITEV, fd, uintptr(unsafe.Pointer(v)), count)
	}
	clear(v[:count])
	if e != 0 {
		return 0, errno(e)
	}
	return int(n), nil
}

// fill points the vectors at the parts and returns how many it used.
func (v *Vectors) fill(parts [][]byte) int {
	n := min(len(parts), maxParts)
	for i, p := range parts[:n] {
		v[i].Base = unsafe.SliceData(p)
		v[i].SetLen(len(p))
	}
	return n
}

// errno converts e to an error without allocating for EAGAIN.
func errno(e syscall.Errno) error {
	if e == syscall.EAGAIN {
		return errAgain
	}
	return e
}

var errAgain error = syscall.EAGAIN
