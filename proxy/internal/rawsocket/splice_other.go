//go:build !linux

package rawsocket

// CanSplice reports whether the system can move bytes from one socket to another inside the
// kernel.
func CanSplice() bool { return false }

// NoteSplice records the error of a splice.
func NoteSplice(error) {}
