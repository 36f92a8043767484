//go:build !linux

package oldrig

import (
	"io"
	"net"
)

func discard(c *net.TCPConn, n int64) error {
	_, err := io.CopyN(io.Discard, c, max(n, 0))
	return err
}
