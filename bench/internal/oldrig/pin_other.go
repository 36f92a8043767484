//go:build !linux

package oldrig

// Cores is one: nothing can be pinned here.
func Cores() []int { return []int{0} }

func pinned(_ []int, start func() error) error { return start() }
