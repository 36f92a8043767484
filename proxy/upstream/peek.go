package upstream

import (
	"syscall"

	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// peek reads what the socket has received, without consuming it and without waiting. It
// returns n > 0 bytes copied to p, n == 0 and a nil error at the end of the stream,
// errNothingToRead if there is nothing, or else the socket's error.
func peek(fd uintptr, p []byte) (int, error) {
	n, err := rawsocket.TryPeek(fd, p)
	if err == syscall.EAGAIN {
		err = errNothingToRead
	}
	return n, err
}
