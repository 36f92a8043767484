//go:build !linux || !(amd64 || arm64) || race

package rawsocket

import "syscall"

// With the race detector, and if system call numbers are not reliable, the calls are those
// of package syscall. They tell the detector that a write on one side happens before the
// read on the other.

// WritevIsOneCall is whether Writev makes one system call for several parts.
const WritevIsOneCall = false

// Vectors is scratch memory for the parts of a write.
type Vectors struct{}

// TryRead reads once.
func TryRead(fd uintptr, p []byte) (int, error) {
	return retryEINTR(func() (int, error) { return syscall.Read(int(fd), p) })
}

// TryPeek is like TryRead, but leaves the bytes in the socket.
func TryPeek(fd uintptr, p []byte) (int, error) {
	return retryEINTR(func() (int, error) {
		n, _, err := syscall.Recvfrom(int(fd), p, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return n, err
	})
}

// TryWritev writes the first of parts once and returns how many bytes were accepted.
func TryWritev(fd uintptr, parts [][]byte, _ *Vectors) (int, error) {
	return TryWrite(fd, parts[0])
}

// TryWrite writes once and returns how many bytes of p, which must not be empty, were
// accepted.
func TryWrite(fd uintptr, p []byte) (int, error) {
	return retryEINTR(func() (int, error) { return syscall.Write(int(fd), p) })
}

// retryEINTR repeats call until no signal interrupts it.
func retryEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
