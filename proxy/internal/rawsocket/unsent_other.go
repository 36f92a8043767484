//go:build !linux

package rawsocket

import "syscall"

// Unsent cannot tell here and reports true.
func Unsent(syscall.RawConn) bool { return true }

// BoundUnsent does nothing here.
func BoundUnsent(syscall.RawConn, int) {}
