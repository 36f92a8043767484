// Command attacks attacks a retryproxy in every way that a client can: floods of HTTP/2 frames,
// streams begun and taken back, headers without end, windows that never open, and the same over
// HTTP/1.1. Each attack runs against a process of its own while other clients send ordinary requests.
// Then come clients and upstreams that lie: that want the proxy to connect elsewhere, write into its
// log and metrics, ask for waits without end, or hide a request in another. Each has its own judge.
//
// An attack is withstood if no request of another client fails, memory grows no further than the
// attack's bound (which follows from the limits, not from the time it runs), the proxy turns the
// attacker away where it has to, and goroutines and descriptors are released afterwards. How much
// longer the others wait is printed and not judged: it depends on the machine.
//
// Linux only, as it reads /proc. Everything is on loopback.
package main
