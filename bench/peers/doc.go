// Command peers compares retryproxy with HAProxy and nginx on the same work,
// in one run on one machine, and says which of its goals are met.
//
//	make bench-peers
//	go run ./bench/peers --cases get,post16k --rounds 9 --json bin/peers.json
//
// The proxy under test has a core of its own; the upstream, a role of this
// program, and wrk, which sends the requests, have the others. What is quoted
// is CPU time of the proxy's processes per request (utime + stime of
// /proc/PID/stat), since the throughput of a small machine measures the load
// as well. Absolute figures move with the machine and with whoever else uses
// it; so all proxies run at once, each gets a second of load in turn, the
// ratios are taken within each round, and their median is told, with the
// lowest and the highest beside it.
//
// retryproxy runs with its default settings: metrics, budget, breaker, limit,
// deadlines and forwarded headers are on. The two cases that need another
// setting say so.
//
// Exit codes: 0 everything was measured, whatever came out of it; 1 something
// could not be; 2 wrong arguments. With --strict, 3 when a goal is missed.
package main
