//go:build unix

package config

import (
	"syscall"
)

// The share of the descriptor limit for clients.
const (
	// reserved descriptors are for listeners, the admin server, logs, name resolution and
	// the runtime. For a limit below 128 it is half...
	reserved = 64
	// ...but at least this many: some 11 are open at rest.
	leastReserved = 20
	// perClient is the number of descriptors per client: its own, and one to the upstream.
	// A pipe that moves a large body inside the kernel needs two more for a moment, but is
	// optional.
	perClient = 2
	// mostClients limits the result for an unlimited descriptor limit: far above what one
	// process can serve, and small enough to compute memory from it.
	mostClients = 1 << 20
	// fewestClients keeps a tiny limit from pausing everything. Accepting also pauses when
	// descriptors run out.
	fewestClients = 1
)

// maxConnections returns the maximum number of client connections, from RLIMIT_NOFILE. The Go
// runtime has raised its soft limit to the hard one at start.
func maxConnections() int {
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
