package bodies

import (
	"bufio"
	"io"
	"strings"

	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// rawBody reads from the upstream's side of a connection until it has n bytes
// and gives them as they came.
func rawBody(c *peers.Conn, n int) string {
	b := make([]byte, n)
	m, _ := io.ReadFull(c.Reader, b)
	return string(b[:m])
}

// newReader reads s, then c.
func newReader(s string, c *peers.Conn) *bufio.Reader {
	return bufio.NewReader(io.MultiReader(strings.NewReader(s), c.Reader))
}
