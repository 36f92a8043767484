//go:build !linux

package admin

import "net"

// deferAccept does nothing: only Linux holds connections back.
func deferAccept(net.Listener) {}

// asks reports whether a whole request header section has come: nobody knows here.
func asks(net.Conn) bool { return false }
