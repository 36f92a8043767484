//go:build linux || darwin

package terminal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// readKeys lets the terminal give each key at once, without showing it. Ctrl-C
// and the like stay signals.
func readKeys(f *os.File) (keys <-chan byte, stop func()) {
	fd := int(f.Fd())
	was, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nil, func() {}
	}
	set := *was
	set.Lflag &^= unix.ICANON | unix.ECHO
	set.Cc[unix.VMIN], set.Cc[unix.VTIME] = 0, readPatience
	if err := unix.IoctlSetTermios(fd, setTermios, &set); err != nil {
		return nil, func() {}
	}
	pressed, stopped, ended := make(chan byte, 16), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		forward(fd, pressed, stopped)
	}()
	return pressed, func() {
		close(stopped)
		<-ended
		_ = unix.IoctlSetTermios(fd, setTermios, was)
	}
}

// readPatience is how long a read waits for a key, in tenths of a second: so late
// its goroutine notices that it is to end.
const readPatience = 2

// forward passes keys on until stopped is closed or the terminal is gone. A key
// that nobody waits for is dropped.
func forward(fd int, pressed chan<- byte, stopped <-chan struct{}) {
	var key [1]byte
	for {
		select {
		case <-stopped:
			return
		default:
		}
		n, err := unix.Read(fd, key[:])
		switch {
		case err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN):
			return
		case n == 1:
			select {
			case pressed <- key[0]:
			default:
			}
		}
	}
}
