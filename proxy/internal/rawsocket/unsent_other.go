//go:build !linux

package rawsocket

import "syscall"

// Unsent returns true: it is unknown here.
func Unsent(syscall.RawConn) bool { return true }

// BoundUnsent does nothing here.
func BoundUnsent(syscall.RawConn, int) {}
