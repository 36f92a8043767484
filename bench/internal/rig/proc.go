package rig

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// USER_HZ is the unit of times in /proc/PID/stat, on every architecture that Go runs on.
const userHZ = time.Second / 100

// CPU is the time that the process and its children have run so far, in user and kernel mode.
// Threads that have ended count.
func (c *Child) CPU() (time.Duration, error) {
	ticks, err := sumOver(c.PID(), "stat", func(text string) (string, string) {
		_, rest, _ := strings.Cut(text, ") ") // the name may hold blanks
		fields := strings.Fields(rest)
		if len(fields) < 13 {
			return "", ""
		}
		return fields[11], fields[12] // utime, stime: 14 and 15 of proc_pid_stat(5)
	})
	return time.Duration(ticks) * userHZ, err
}

// PSS is the process's and its children's proportional share of memory, in bytes: pages that several
// processes map count by their part.
func (c *Child) PSS() (int64, error) {
	kib, err := sumOver(c.PID(), "smaps_rollup", func(text string) (string, string) {
		_, rest, _ := strings.Cut(text, "\nPss:")
		kib, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		return kib, "0"
	})
	return kib << 10, err
}

// sumOver adds up two numbers in a file of /proc of a process and all below it.
func sumOver(pid int, file string, numbers func(text string) (string, string)) (sum int64, err error) {
	name := fmt.Sprintf("/proc/%d/%s", pid, file)
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	x, y := numbers(string(b))
	for _, s := range []string{x, y} {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		sum += n
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, f := range bytes.Fields(children) {
		child, _ := strconv.Atoi(string(f))
		n, err := sumOver(child, file, numbers)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, err
}

// Descriptors counts the open files, sockets included; 0 if that cannot be known.
func (c *Child) Descriptors() int {
	open, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.PID()))
	return len(open)
}

// AtMost is n, or the most requests that a proxy with this process's descriptor limit can have at
// once: it needs two for each, and some besides.
func AtMost(n int) int {
	const besides = 200
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return n
	}
	return min(n, int(min(limit.Cur, 1<<20)-besides)/2)
}
