//go:build !unix

package terminal

import "os"

// size is not known here.
func size(*os.File) (columns, rows int) { return 0, 0 }

// isTerminal takes every character device for one: nothing better is known here.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
