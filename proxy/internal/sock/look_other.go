//go:build !linux

package sock

// ManyLooks says that Look looks.
const ManyLooks = false

// Looked is a socket to look at.
type Looked struct{}

// At makes l a socket to look at.
func (l *Looked) At(int32) {}

// Quiet is not known here.
func (l *Looked) Quiet() bool { return false }

// Look does not look here.
func Look([]Looked) bool { return false }
