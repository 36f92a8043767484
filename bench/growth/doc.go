// Command growth measures how the CPU time of a request grows with the
// connections, the routes, the size of bodies, the share of failing responses and
// the number of fields.
//
//	make growth
//	go run ./bench/growth --only routes --rounds 5
//
// It stands on the same stage as bench/peers: the proxy on a core of its own,
// upstream and wrk on the others, CPU time of the proxy's process per request.
// HAProxy has its turn beside it at every point, so that what grows for everybody
// (the kernel's work, a machine that is busy) can be told from what is ours.
//
// Exit codes: 0 everything was measured; 1 something could not be; 2 wrong
// arguments.
package main
