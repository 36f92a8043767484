package rig

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithParent has the kernel end a child when this process dies, also a stopped one.
func endWithParent(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// ReusePort lets several listeners share a port.
func ReusePort(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }

// Cores are those that this process may use.
func Cores() (all []int) {
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		return []int{0}
	}
	for c := range runtime.NumCPU() * 64 { // numbers may have gaps
		if mine.IsSet(c) {
			all = append(all, c)
		}
	}
	return all
}

// pinned starts what start starts on the given cores only (nil: any): a new process has the cores of
// the thread that made it.
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

// cpuOf returns the CPU time of a process, those of its threads that have ended included, in nanoseconds. It reads
// the clock that clock_getcpuclockid(3) names, because /proc/PID/stat counts in units of 10 ms.
func cpuOf(pid int) (int64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|2, &t); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return t.Nano(), nil
}
