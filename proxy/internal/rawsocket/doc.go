// Package rawsocket reads and writes sockets with system calls that the Go
// scheduler is not told of.
//
// Package net announces every read and write to the scheduler, since a system
// call may block. One on a non-blocking socket does not; but what was announced
// is watched by the runtime's monitor thread, which wakes every 20
// microseconds while calls are seen in flight, takes processors away from them
// and hands them on. On a proxy's path, six calls of a microsecond or two per
// request, that costs more than the calls' own bookkeeping: docs/performance.md
// has the figures. Waiting, deadlines and closing stay package net's.
//
// Use Wrap on a connection just accepted or dialled and use the result in its
// place. The functions Try... are for callbacks of syscall.RawConn that do
// several things in one turn.
package rawsocket
