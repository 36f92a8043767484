//go:build !linux

package rawsocket

import "net"

// IsTCPClosed cannot be known here, where nothing is spliced either.
func IsTCPClosed(net.Conn) bool { return false }

// Acked is how many bytes of what was written to c the peer's system has confirmed; 0 where it cannot be known.
func Acked(net.Conn) uint64 { return 0 }
