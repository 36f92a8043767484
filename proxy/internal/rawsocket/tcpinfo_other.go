//go:build !linux

package rawsocket

import "net"

// IsTCPClosed returns false: it is unknown here, where splice is not used either.
func IsTCPClosed(net.Conn) bool { return false }

// Acked cannot be known here.
func Acked(net.Conn) uint64 { return 0 }

// Unacknowledged cannot be known here.
func Unacknowledged(net.Conn) bool { return false }
