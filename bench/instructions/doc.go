// Command instructions counts the user instructions that retryproxy executes for a
// proxied request, by package and by function, as valgrind's tool callgrind sees
// them while wrk sends small GETs over many connections.
//
// CPU time moves with the machine and whatever else runs on it; such a count
// retries within some 2 % on any, so it tells what a change of the code bought, and
// where the rest goes. It says nothing of the kernel's part, which is two thirds of a
// request (docs/explanation/performance.md), nor of caches.
package main
