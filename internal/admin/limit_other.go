//go:build !linux

package admin

import "net"

// deferAccept does nothing: only Linux can withhold connections.
func deferAccept(net.Listener) {}

// hasRequest returns false: it is known on Linux only.
func hasRequest(net.Conn) bool { return false }
