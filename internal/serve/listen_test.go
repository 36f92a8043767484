package serve

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestWhoCannotListenLearnsWhatToDo(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		syscall.EADDRINUSE: "another process listens on this address", syscall.EADDRNOTAVAIL: "set RETRYPROXY_LISTEN to an address of this machine",
		syscall.EACCES: "a port of 1024 or above", syscall.ENOENT: "set RETRYPROXY_LISTEN to another address",
	} {
		err := &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", errno)}
		if got := listenHint(err, "RETRYPROXY_LISTEN"); !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
