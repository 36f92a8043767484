//go:build !linux

package proxy

// hungUp cannot be known of a socket on this system while unread bytes are waiting.
func (c *conn) hungUp() bool { return c.stream != nil && c.stream.ClientGone() }
