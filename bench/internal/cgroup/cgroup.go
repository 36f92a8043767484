// Package cgroup makes control groups with a memory limit, by version 2 where it
// has the memory controller, else by version 1. Linux, as root.
package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Group is a cgroup of our own with a memory limit.
type Group struct {
	dir     string
	Version int
}

// New makes one. Its error says that the machine has none to offer.
func New(name string, limit int64) (*Group, error) {
	var tried []string
	for _, way := range []struct {
		root, control string
		version       int
	}{{"/sys/fs/cgroup", "memory.max", 2}, {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", 1}} {
		g := &Group{filepath.Join(way.root, name), way.version}
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
		g.Remove()
	}
	return nil, fmt.Errorf("no cgroup with a memory limit: %s", strings.Join(tried, "; "))
}

// Remove removes it once nothing is in it.
func (g *Group) Remove() { _ = os.Remove(g.dir) }

// By is the begin of a command line by way of which a program is started in it.
func (g *Group) By() []string {
	return []string{"sh", "-c", `echo $$ >"` + g.dir + `/cgroup.procs" && exec "$@"`, "sh"}
}

// Peak is the most that its processes had, in bytes.
func (g *Group) Peak() (int64, error) {
	file := "memory.peak"
	if g.Version == 1 {
		file = "memory.max_usage_in_bytes"
	}
	b, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// Kills is how many of its processes were killed for their memory.
func (g *Group) Kills() (int64, error) {
	file := "memory.events"
	if g.Version == 1 {
		file = "memory.oom_control"
	}
	b, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0, err
	}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		if n, is := strings.CutPrefix(sc.Text(), "oom_kill "); is {
			return strconv.ParseInt(n, 10, 64)
		}
	}
	return 0, errors.New("the cgroup does not say how many processes were killed")
}
