//go:build !linux || !(amd64 || arm64) || race

package rawsocket

import "syscall"

// Under the race detector, and where the numbers of system calls are not to be
// relied on, the calls are those of package syscall. They tell the detector that
// what one side wrote happened before the other read it.

// WritevIsOneCall says that Writev makes one system call of several parts.
const WritevIsOneCall = false

// Vectors is room for the parts of a write.
type Vectors struct{}

// TryRead reads once.
func TryRead(fd uintptr, p []byte) (int, error) {
	return retryEINTR(func() (int, error) { return syscall.Read(int(fd), p) })
}

// TryPeek is TryRead, but leaves the bytes in the socket.
func TryPeek(fd uintptr, p []byte) (int, error) {
	return retryEINTR(func() (int, error) {
		n, _, err := syscall.Recvfrom(int(fd), p, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return n, err
	})
}

// TryWritev writes the first of parts once and says how much was taken.
func TryWritev(fd uintptr, parts [][]byte, _ *Vectors) (int, error) {
	return TryWrite(fd, parts[0])
}

// TryWrite writes once and says how much was taken of p, which must not be empty.
func TryWrite(fd uintptr, p []byte) (int, error) {
	return retryEINTR(func() (int, error) { return syscall.Write(int(fd), p) })
}

// retryEINTR calls until no signal came in between.
func retryEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
