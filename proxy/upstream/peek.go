package upstream

import (
	"syscall"

	"github.com/retryproxy/retryproxy/proxy/internal/sock"
)

// peek looks at what the socket would say now, without taking it and without
// waiting: n > 0 bytes copied to p, n == 0 and err == nil for an end of
// stream, errQuiet when there is nothing, else the socket's error.
func peek(fd uintptr, p []byte) (int, error) {
	n, err := sock.TryPeek(fd, p)
	if err == syscall.EAGAIN {
		err = errQuiet
	}
	return n, err
}
