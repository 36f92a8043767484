//go:build !unix

package terminal

import "os"

// size returns 0: it is unknown here.
func size(*os.File) (columns, rows int) { return 0, 0 }

// isTerminal accepts every character device: nothing more precise is available here.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
