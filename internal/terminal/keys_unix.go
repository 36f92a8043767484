//go:build linux || darwin

package terminal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// readKeys makes the terminal return each key at once, without echo. Ctrl-C and the like
// still send signals.
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

// readPatience is the timeout of a read for a key, in tenths of a second. It is how late
// the goroutine notices that it must end.
const readPatience = 2

// forward sends keys to pressed until stopped is closed or the terminal is gone. It drops a
// key that is not received.
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
