package assemble

// What the soft memory limit is divided into.
const (
	// baseMemory is what the process has without clients: code, the runtime, metrics.
	baseMemory = 16 << 20
	// clientPart of the rest, one in so many, is for clients' connections and streams; the
	// others are for the retry buffer and for garbage.
	clientPart = 2
	// replayPart of the limit, one in so many, is the retry buffer's at most.
	replayPart = 4
	// leastClients is what clients have however low the limit.
	leastClients = 4 << 20
)

// clientMemory returns the bytes for clients within a soft limit; 0: no limit.
func clientMemory(soft int64) int64 {
	if soft <= 0 {
		return 0
	}
	return max((soft-baseMemory)/clientPart, leastClients)
}

// replayBytes returns the bytes for the retry buffer, of which wanted is what the settings say.
func replayBytes(wanted, soft int64) int64 {
	if soft <= 0 {
		return wanted
	}
	return min(wanted, soft/replayPart)
}
