//go:build !linux

package downstream

// HungUp reports whether the client's stream has ended. For a socket on this system it returns
// false, because that cannot be known while unread bytes wait.
func (c *Conn) HungUp() bool { return c.Stream != nil && c.Stream.ClientGone() }
