//go:build unix

package upstream

import "syscall"

// canAsk: reading and writing a descriptor by hand works here.
const canAsk = true

// peek looks at what the socket would say now, without taking it and without
// waiting: n > 0 bytes copied to p, n == 0 and err == nil for an end of
// stream, errQuiet when there is nothing, else the socket's error.
func peek(fd uintptr, p []byte) (int, error) {
	for {
		n, _, err := syscall.Recvfrom(int(fd), p, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch err {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return 0, errQuiet
		}
		return n, err
	}
}
