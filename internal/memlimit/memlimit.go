// Package memlimit passes the container's memory limit to the Go runtime.
//
// Since Go 1.25 the runtime reads the number of processors from the cgroup, but not the memory
// limit. Without a limit the collector lets the heap double between collections, which may exceed
// the memory of a small container. With a limit it collects more often near it. Call Apply once at
// the start.
//
// automemlimit finds the limit in cgroups of versions 1 and 2, in this group and those above it.
package memlimit

import (
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// share is the fraction of the cgroup's limit for the Go runtime. The rest is for memory that the
// runtime does not count, such as socket buffers in the kernel and the binary itself.
const share = 0.9

// noLimit is a bound: Go and version 1 of cgroups represent "no limit" as a number close to 2^63.
const noLimit = 1 << 60

// Apply sets the runtime's soft limit to its share of the cgroup's limit and returns it in bytes. It
// does nothing and returns 0 if the user set GOMEMLIMIT or there is no limit.
func Apply(goMemLimit string) int64 {
	if goMemLimit != "" {
		return 0
	}
	soft := shareOf(memlimit.FromCgroup)
	if soft == 0 {
		return 0
	}
	debug.SetMemoryLimit(soft)
	return soft
}

// Soft returns the soft limit in effect, from Apply or GOMEMLIMIT, in bytes, but at most that share of
// the cgroup's limit; 0 without a limit.
func Soft() int64 {
	return lower(debug.SetMemoryLimit(-1), shareOf(memlimit.FromCgroup))
}

// lower returns the lower of two limits, of which 0 and more than noLimit are none; 0 without one.
func lower(soft, ofGroup int64) int64 {
	if ofGroup > 0 {
		soft = min(soft, ofGroup)
	}
	if soft >= noLimit {
		return 0
	}
	return soft
}

// shareOf returns the runtime's share of a limit; 0 if there is none or it cannot be read, such as
// outside Linux.
func shareOf(limit memlimit.Provider) int64 {
	n, err := memlimit.ApplyRatio(limit, share)()
	if err != nil || n >= noLimit {
		return 0
	}
	return int64(n)
}
