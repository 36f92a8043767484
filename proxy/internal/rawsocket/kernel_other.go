//go:build !linux

package rawsocket

import (
	"net"
	"syscall"
)

// IsTCPClosed returns false: it is unknown here, where splice is not used either.
func IsTCPClosed(net.Conn) bool { return false }

// Acked returns 0: it is unknown here.
func Acked(net.Conn) uint64 { return 0 }

// Unacknowledged returns false: it is unknown here.
func Unacknowledged(net.Conn) bool { return false }

// Silent returns false: it is not known.
func Silent(net.Conn) bool { return false }

// Moved returns false: it is unknown here.
func Moved(syscall.RawConn) (uint64, bool) { return 0, false }

// Unread returns 0: it is unknown here.
func Unread(syscall.RawConn) int { return 0 }

// Unsent returns true: it is unknown here.
func Unsent(syscall.RawConn) bool { return true }

// BoundUnsent does nothing here.
func BoundUnsent(syscall.RawConn, int) {}

// BoundSegments does nothing here.
func BoundSegments(syscall.RawConn, int) {}

// CanSplice reports whether the system can move bytes from one socket to another inside the
// kernel.
func CanSplice() bool { return false }

// NoteSplice records the error of a splice.
func NoteSplice(error) {}
