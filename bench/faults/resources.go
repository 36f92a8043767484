//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/retryproxy/retryproxy/bench/internal/process"
)

// crowd is further clients for as long as a fault lasts, each request on a
// connection of its own.
type crowd struct {
	n      int
	manner manner
	leave  context.CancelFunc
}

func (c *crowd) come(st *stage) {
	var ctx context.Context
	ctx, c.leave = context.WithCancel(st.ctx)
	many := make([]manner, c.n)
	for i := range many {
		many[i] = c.manner
	}
	st.team.call(ctx, many)
}

// crowded is a fault that a crowd makes at an upstream that is late.
func crowded(name, how string, c *crowd) fault {
	return fault{name: name, how: how,
		begin: func(st *stage) error { c.come(st); return orderUpstream("mode " + late)(st) },
		end:   func(st *stage) error { c.leave(); return orderUpstream("mode " + wellBehaved)(st) },
	}
}

// pausedAccepting: accepting paused, says the proxy.
func pausedAccepting(st *stage) (felt, error) {
	now, err := st.proxy.scrape(st.ctx)
	if err != nil {
		return felt{}, err
	}
	return felt{int64(now.Sum("accept_pauses_total") - st.before.Sum("accept_pauses_total")), "pauses of accepting"}, nil
}

// once is a client that comes, asks and leaves.
var once = manner{method: "GET", once: true}

func descriptorsFromTheStart() fault {
	f := crowded("descriptor limit", "RLIMIT_NOFILE 128 from the start, 100 more clients at once", &crowd{n: 100, manner: once})
	f.prepare = func(st *stage) error { st.proxyBy = []string{"prlimit", "--nofile=128:128"}; return nil }
	f.felt = pausedAccepting
	return f
}

// descriptorsLowered takes descriptors away that the proxy counted on.
func descriptorsLowered() fault {
	f := crowded("descriptor limit lowered", "RLIMIT_NOFILE of the running process set to what it has open and 4, 30 more clients at once", &crowd{n: 30, manner: once})
	begin, end := f.begin, f.end
	var old unix.Rlimit
	f.begin = func(st *stage) error {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", st.proxy.PID()))
		if err != nil {
			return err
		}
		if err := unix.Prlimit(st.proxy.PID(), unix.RLIMIT_NOFILE, nil, &old); err != nil {
			return err
		}
		if err := unix.Prlimit(st.proxy.PID(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(open) + 4), Max: old.Max}, nil); err != nil {
			return err
		}
		return begin(st)
	}
	f.end = func(st *stage) error {
		err := unix.Prlimit(st.proxy.PID(), unix.RLIMIT_NOFILE, &old, nil)
		if err != nil && err != unix.ESRCH { // it may have ended by its SIGTERM
			return err
		}
		return end(st)
	}
	f.felt, f.expects = pausedAccepting, expects{Fail: true}
	return f
}

// uploads are large bodies, kept for a retry while the upstream is late.
func uploads() *crowd {
	return &crowd{n: 32, manner: manner{method: "PUT", once: true, body: 512 << 10}}
}

func memoryOfGo() fault {
	const limit = 12 << 20
	f := crowded("GOMEMLIMIT", "12 MiB; 64 more clients at once, each with PUTs of 512 KiB that are kept for a retry", uploads())
	f.settings = []string{"GOMEMLIMIT=" + strconv.Itoa(limit)}
	f.felt = func(st *stage) (felt, error) {
		now, err := st.proxy.scrape(st.ctx)
		if err != nil {
			return felt{}, err
		}
		peak := int64(now["go_memstats_sys_bytes"])
		return felt{max(0, (peak-limit)>>10), "KiB beyond it"}, nil
	}
	return f
}

// logsFull has the proxy log every request to a file system that is full for a while.
func logsFull() fault {
	f := fault{name: "disk full for logs", how: "standard error is a file of a tmpfs of 256 KiB, filled up, with the access log on", settings: []string{"RETRYPROXY_ACCESS_LOG=true", "RETRYPROXY_LOG_LEVEL=info"}}
	var atBegin, atEnd int64
	inside := func(st *stage, file string) string {
		return filepath.Join(fmt.Sprintf("/proc/%d/root", st.proxy.PID()), st.dir, file)
	}
	size := func(st *stage) int64 {
		info, err := os.Stat(inside(st, "logs/log"))
		if err != nil {
			return -1
		}
		return info.Size()
	}
	f.prepare = func(st *stage) error {
		logs := filepath.Join(st.dir, "logs")
		st.proxyBy = process.Mounting("mount -t tmpfs -o size=256k none "+logs, "2>>"+logs+"/log")
		if err := process.CanMount(); err != nil {
			return impossible{err.Error()}
		}
		return os.Mkdir(logs, 0o755)
	}
	f.begin = func(st *stage) error {
		err := os.WriteFile(inside(st, "logs/fill"), bytes.Repeat([]byte("x"), 256<<10), 0o600)
		if err == nil || !strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
			return fmt.Errorf("the file system does not become full: %v", err)
		}
		atBegin = size(st)
		return nil
	}
	f.end = func(st *stage) error {
		atEnd = size(st)
		err := os.Truncate(inside(st, "logs/fill"), 0)
		if os.IsNotExist(err) { // it has ended by its SIGTERM, and all that with it
			return nil
		}
		return err
	}
	f.felt = func(st *stage) (felt, error) {
		if grown := atEnd - atBegin; grown > int64(os.Getpagesize()) { // which may have been begun
			return felt{}, fmt.Errorf("the log grew by %d bytes while there was no room", grown)
		}
		if err := st.await("written to the log again", within, func() bool { return size(st) > atEnd }); err != nil {
			return felt{}, err
		}
		return felt{size(st) - atEnd, "bytes logged after it, no page meanwhile"}, nil
	}
	return f
}
