//go:build unix

package assemble

import (
	"syscall"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/settings"
)

// The share of the descriptor limit that clients may have.
const (
	// reserved descriptors are for listeners, the admin server, logs,
	// resolving names and the runtime; of a limit below 128 it is half...
	reserved = 64
	// ... but no less than this: some 11 are open at rest.
	leastReserved = 20
	// perCaller: its own, and one to the upstream. A pipe that moves a large
	// body inside the kernel takes two more for a moment, but does without
	// when there is none.
	perClient = 2
	// mostCallers bounds what an unlimited descriptor limit gives: far above
	// what one process can serve, and a number that memory can be reckoned by.
	mostClients = 1 << 20
	// fewestCallers keeps a tiny limit from pausing everything; accepting also
	// pauses when descriptors do run out.
	fewestClients = 1
)

// maxConnections takes "auto" from RLIMIT_NOFILE, whose soft limit the Go
// runtime has raised to the hard one at the start.
func maxConnections(c settings.AutoCount) int {
	if !c.Auto() {
		return c.Value()
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return clientsFor(uint64(limit.Cur))
}

func clientsFor(descriptors uint64) int {
	kept := min(reserved, max(leastReserved, descriptors/2))
	if descriptors <= kept {
		return fewestClients
	}
	return int(max(fewestClients, min(mostClients, (descriptors-kept)/perClient)))
}
