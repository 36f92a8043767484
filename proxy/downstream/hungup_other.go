//go:build !linux

package downstream

// HungUp cannot be known of a socket on this system while unread bytes are waiting.
func (c *Conn) HungUp() bool { return c.Stream != nil && c.Stream.ClientGone() }
