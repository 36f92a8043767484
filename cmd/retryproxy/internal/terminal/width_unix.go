//go:build unix

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// width is the terminal's number of columns, 0 when it does not know.
func width(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
