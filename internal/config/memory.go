package config

// The parts of the soft memory limit.
const (
	// baseMemory is the memory of the process without clients: code, the runtime, metrics.
	baseMemory = 16 << 20
	// clientPart is the divisor of the rest for clients' connections and streams. The other
	// part is for the retry buffer and garbage.
	clientPart = 2
	// replayPart is the divisor of the limit for the maximum of the retry buffer.
	replayPart = 4
	// leastClients is the minimum for clients, however low the limit.
	leastClients = 4 << 20
)

// clientMemory returns the bytes for clients within a soft limit; 0 means no limit.
func clientMemory(soft int64) int64 {
	if soft <= 0 {
		return 0
	}
	return max((soft-baseMemory)/clientPart, leastClients)
}

// replayBytes returns the bytes for the retry buffer: wanted, but only a part of a soft
// limit.
func replayBytes(wanted, soft int64) int64 {
	if soft <= 0 {
		return wanted
	}
	return min(wanted, soft/replayPart)
}
