package main

import (
	"syscall"
)

// setReusePort lets several listeners share a port.
func setReusePort(fd int) error {
	const soReusePort = 15 // asm-generic/socket.h; package syscall does not name it on all architectures
	return syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, soReusePort, 1)
}
