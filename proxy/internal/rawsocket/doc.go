// Package rawsocket reads and writes sockets with system calls that the Go scheduler does
// not see.
//
// Package net announces every read and write to the scheduler, since a system call may
// block. A call on a non-blocking socket does not. But the runtime's monitor thread watches
// announced calls: it wakes every 20 microseconds while calls are in progress, takes
// processors away from them and hands them on. On a proxy's path, with six calls of a
// microsecond or two per request, that costs more than the calls' own bookkeeping;
// docs/explanation/performance.md has the figures. Package net still does waiting, deadlines and
// closing.
//
// Use Wrap on a connection just accepted or dialed, and use the result in its place. The
// Try functions are for callbacks of syscall.RawConn that do several things in one call.
package rawsocket
