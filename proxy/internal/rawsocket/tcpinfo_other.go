//go:build !linux

package rawsocket

import "net"

// IsTCPClosed returns false: it is unknown here, where splice is not used either.
func IsTCPClosed(net.Conn) bool { return false }

// Acked returns 0: it is unknown here.
func Acked(net.Conn) uint64 { return 0 }

// Unacknowledged returns false: it is unknown here.
func Unacknowledged(net.Conn) bool { return false }
