package oldrig

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc/PID/stat: USER_HZ, 100 on every
// architecture that Go runs on.
const tick = time.Second / 100

// CPU is the time that the process and its children have run so far, in user
// and kernel mode, to 10 ms. Threads that have ended count.
func (p *Process) CPU() (time.Duration, error) {
	var sum time.Duration
	err := eachProcess(p.PID(), func(pid int) error {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return err
		}
		_, rest, _ := bytes.Cut(b, []byte(") ")) // the name may hold blanks
		fields := strings.Fields(string(rest))
		if len(fields) < 13 {
			return fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
		}
		for _, f := range fields[11:13] { // utime, stime: 14 and 15 of proc_pid_stat(5)
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return err
			}
			sum += time.Duration(n) * tick
		}
		return nil
	})
	return sum, err
}

// PSS is the process's and its children's proportional share of memory, in
// bytes: pages that several processes map count by their part.
func (p *Process) PSS() (int64, error) {
	var sum int64
	err := eachProcess(p.PID(), func(pid int) error {
		name := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		_, rest, ok := bytes.Cut(b, []byte("\nPss:"))
		fields := strings.Fields(string(rest))
		if !ok || len(fields) == 0 {
			return fmt.Errorf("%s has no Pss", name)
		}
		kib, err := strconv.ParseInt(fields[0], 10, 64)
		sum += kib << 10
		return err
	})
	return sum, err
}

// eachProcess visits a process and all below it.
func eachProcess(pid int, visit func(pid int) error) error {
	if err := visit(pid); err != nil {
		return err
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return err
	}
	for _, f := range strings.Fields(string(b)) {
		child, err := strconv.Atoi(f)
		if err != nil {
			return err
		}
		if err := eachProcess(child, visit); err != nil {
			return err
		}
	}
	return nil
}
