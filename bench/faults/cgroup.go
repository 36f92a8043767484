//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// memoryGroup is a cgroup of our own with a memory limit.
type memoryGroup struct {
	dir     string
	version int
}

// newMemoryGroup makes one, by version 2 where it has the controller, else by version 1.
func newMemoryGroup(limit int64) (*memoryGroup, error) {
	name := fmt.Sprintf("faults-%d", os.Getpid())
	var tried []string
	for _, way := range []struct {
		root, control string
		version       int
	}{{"/sys/fs/cgroup", "memory.max", 2}, {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", 1}} {
		g := &memoryGroup{filepath.Join(way.root, name), way.version}
		if err := os.Mkdir(g.dir, 0o755); err != nil {
			tried = append(tried, err.Error())
			continue
		}
		// Without the controller there is no such file; in a tmpfs it must not be made.
		f, err := os.OpenFile(filepath.Join(g.dir, way.control), os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(strconv.FormatInt(limit, 10))
			_ = f.Close()
		}
		if err == nil {
			return g, nil
		}
		tried = append(tried, err.Error())
		g.remove()
	}
	return nil, impossible{"no cgroup with a memory limit: " + strings.Join(tried, "; ")}
}

// remove removes it once nothing is in it.
func (g *memoryGroup) remove() { _ = os.Remove(g.dir) }

// peak is the most that its processes had, in bytes.
func (g *memoryGroup) peak() (int64, error) {
	file := "memory.peak"
	if g.version == 1 {
		file = "memory.max_usage_in_bytes"
	}
	b, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// memoryOfCgroup is felt where the process had more than half of the limit: it knows the
// limit and collects its garbage in time. Were it killed for it, callers would tell.
func memoryOfCgroup() fault {
	const limit = 20 << 20
	f := crowded("memory limit", "a cgroup of 20 MiB, bodies for repeats at most 12 MiB (RETRYPROXY_TOTAL_REPLAY_BYTES); 64 more callers at once, each with PUTs of 512 KiB", uploads())
	f.settings = []string{"RETRYPROXY_TOTAL_REPLAY_BYTES=12MiB"}
	var g *memoryGroup
	f.prepare = func(st *stage) (err error) {
		if g, err = newMemoryGroup(limit); err != nil {
			return err
		}
		st.later(g.remove)
		st.proxyBy = []string{"sh", "-c", `echo $$ >"` + g.dir + `/cgroup.procs" && exec "$@"`, "sh"}
		return nil
	}
	f.felt = func(*stage) (felt, error) {
		n, err := g.peak()
		if n < limit/2 {
			n = 0
		}
		return felt{n >> 10, fmt.Sprintf("of its %d KiB in use at the peak (cgroup version %d)", limit>>10, g.version)}, err
	}
	return f
}
