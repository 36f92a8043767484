package oldrig

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Cores are those that this process may use.
func Cores() []int {
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		return []int{0}
	}
	var all []int
	for c := range runtime.NumCPU() * 64 { // numbers may have gaps
		if mine.IsSet(c) {
			all = append(all, c)
		}
	}
	return all
}

// pinned starts what start starts on the given cores only: a new process has
// the cores of the thread that made it.
func pinned(cores []int, start func() error) error {
	if cores == nil {
		return start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, during unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	for _, c := range cores {
		during.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &during); err != nil {
		return err
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }() // what could be set once can be set again
	return start()
}
