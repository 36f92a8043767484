// Package memlimit passes the container's memory limit to the Go runtime.
//
// Since Go 1.25 the runtime reads the number of processors from the cgroup, but not the memory
// limit. Without a limit the collector lets the heap double between collections, which may exceed
// the memory of a small container. With a limit it collects more often near it. Call Apply once at
// the start.
package memlimit

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// share is the fraction of the cgroup's limit for the Go runtime. The rest is for memory that the
// runtime does not count, such as socket buffers in the kernel and the binary itself.
const share = 0.9

// Apply sets the runtime's soft limit to its share of the cgroup's limit and returns it in bytes. It
// does nothing and returns 0 if the user set GOMEMLIMIT or there is no limit.
func Apply(goMemLimit string) int64 {
	if goMemLimit != "" {
		return 0
	}
	limit := Limit("/")
	if limit == 0 {
		return 0
	}
	soft := int64(float64(limit) * share)
	debug.SetMemoryLimit(soft)
	return soft
}

// Soft returns the soft limit in effect, from Apply or GOMEMLIMIT, in bytes, but at most that share of
// the cgroup's limit; 0 without a limit.
func Soft() int64 {
	soft := debug.SetMemoryLimit(-1)
	if limit := Limit("/"); limit > 0 {
		soft = min(soft, int64(float64(limit)*share))
	}
	if soft >= noLimit {
		return 0
	}
	return soft
}

// Limit returns the lowest memory limit in bytes of the cgroups of this process, version 2 or 1,
// below the directory root; 0 without a limit.
func Limit(root string) int64 {
	file, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0
	}
	lowest := int64(math.MaxInt64)
	scanner := bufio.NewScanner(bytes.NewReader(file))
	for scanner.Scan() {
		// hierarchy:controllers:path, see cgroups(7)
		parts := strings.SplitN(scanner.Text(), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[0] == "0" && parts[1] == "":
			lowest = min(lowest, walk(filepath.Join(root, "sys/fs/cgroup"), parts[2], "memory.max"))
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			lowest = min(lowest, walk(filepath.Join(root, "sys/fs/cgroup/memory"), parts[2], "memory.limit_in_bytes"))
		}
	}
	if lowest >= noLimit {
		return 0
	}
	return lowest
}

// noLimit is a bound: version 1 represents "no limit" as a number close to 2^63.
const noLimit = 1 << 60

// walk returns the lowest limit from the group up to the root, since each applies to everything
// below. In a container the path may not exist, but the root does.
func walk(mount, group, file string) int64 {
	lowest := int64(math.MaxInt64)
	for group = path.Clean("/" + group); ; group = path.Dir(group) {
		content, err := os.ReadFile(filepath.Join(mount, group, file))
		if err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64); err == nil && n > 0 {
				lowest = min(lowest, n) // "max" is not a number
			}
		}
		if group == "/" {
			return lowest
		}
	}
}
