package upstream

import (
	"syscall"

	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// peek looks at what the socket would say now, without taking it and without
// waiting: n > 0 bytes copied to p, n == 0 and err == nil for an end of
// stream, errNothingToRead when there is nothing, else the socket's error.
func peek(fd uintptr, p []byte) (int, error) {
	n, err := rawsocket.TryPeek(fd, p)
	if err == syscall.EAGAIN {
		err = errNothingToRead
	}
	return n, err
}
