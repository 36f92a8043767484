// Command attacks attacks a retryproxy in every way that a client can: floods of
// HTTP/2 frames, streams begun and taken back, heads without end, windows that never
// open; and the same trades over HTTP/1.1. Each attack runs against a process
// of its own while other clients send ordinary requests by HTTP/1.1 and by HTTP/2.
//
// Clients and upstreams that lie come after these: those who want the proxy to connect elsewhere, who write into its log
// and its metrics, who ask for waits without end, and who hide a request in another. Each of these has a judge of its own besides.
//
// An attack is withstood when no request of another client failed, the process's
// memory grew no further than the attack's bound (which follows from the limits,
// not from the time it runs), the proxy turned the attacker away where it has to,
// and goroutines and descriptors are back to what they were once it has left. How much
// longer the others waited is printed and not judged: it depends on the machine.
//
// Linux only, as it reads /proc. Everything is on loopback.
package main
