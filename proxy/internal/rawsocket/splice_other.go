//go:build !linux

package rawsocket

// CanSplice reports whether the system lets bytes move from one socket to another inside the kernel.
func CanSplice() bool { return false }

// NoteSplice notes the error of a splice.
func NoteSplice(error) {}
