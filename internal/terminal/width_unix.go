//go:build unix

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// size returns the terminal's number of columns and rows, 0 if unknown.
func size(f *os.File) (columns, rows int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// isTerminal reports whether f has a window size. /dev/null and /dev/full are character
// devices as well, but have none.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}
