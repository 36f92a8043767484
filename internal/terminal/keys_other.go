//go:build !linux && !darwin

package terminal

import "os"

// readKeys is not supported here.
func readKeys(*os.File) (keys <-chan byte, stop func()) { return nil, func() {} }
