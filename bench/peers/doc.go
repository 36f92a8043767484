// Command peers compares retryproxy with HAProxy and nginx on the same work, in one run on one
// machine, and reports which of its goals are met.
//
//	make bench-peers
//	go run ./bench/peers --cases get,post16k --rounds 9 --json bin/peers.json
//	go run ./bench/peers --growth routes,fields --png growth.png
//	go run ./bench/peers --cases instructions --proxy bin/retryproxy-named
//
// The proxy under test has a core of its own; the upstream, a role of this program, and wrk, which
// sends the requests, have the others. The figure is the CPU time of the proxy's processes per
// request (utime + stime of /proc/PID/stat), since the throughput of a small machine measures the
// load too. Absolute figures move with the machine and its other work. So all proxies run at once,
// each gets a second of load in turn, ratios are taken within each round, and the table has their
// median, lowest and highest.
//
// retryproxy runs with its default settings. The cases that need another setting say so.
//
// With --growth the same cost is measured along axes: connections, routes, bytes of bodies, the
// share of failing responses, request headers. What grows for everybody can then be told from what
// is ours. The case instructions counts user instructions per request under valgrind, which no other
// load disturbs; a count differs by some 2 % from run to run.
//
// Exit codes: 0 everything was measured, whatever came out of it; 1 something could not be; 2 wrong
// arguments. With --strict, 3 if a goal is missed.
package main
