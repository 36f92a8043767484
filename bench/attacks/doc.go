// Command attacks attacks a retryproxy in every way that a caller can: floods of
// HTTP/2 frames, streams begun and taken back, heads without end, windows that never
// open; and the same trades over HTTP/1.1. Each attack runs against a process
// of its own while other callers send ordinary requests by HTTP/1.1 and by HTTP/2.
//
// An attack is withstood when no request of another caller failed, the process's
// memory grew no further than the attack's bound (which follows from the limits,
// not from the time it runs), the proxy turned the attacker away where it has to,
// and goroutines and descriptors are back to what they were once it has left. How much
// longer the others waited is told and not judged: it depends on the machine.
//
// Linux only, as it reads /proc. Everything is on loopback.
package main
