// Command fleet puts many retryproxy processes in front of one rate-limited
// upstream and measures what they make of its rate limit, each for itself and
// together by way of a redis-server.
//
//	go run ./bench/fleet --proxy bin/retryproxy --png fleet.png
//
// The upstream and the clients live in this process; the proxies, fifty of
// them, and the engine are real processes on loopback, started and ended by
// this one. The upstream takes 500 requests a second from all together: a bucket
// of 250 tokens that gets 500 of them a second, evenly (or, with --window second,
// 500 in each second of the clock). Beyond it says 429 with the whole seconds
// to wait as Retry-After, one at least. A thousand clients, shared out evenly,
// ask, wait for the response and pause for a second on average: 1000 requests a
// second where nobody had to wait, twice what there is. Every constant is a flag.
//
// The parts (--parts):
//
//	alone     default settings, nothing shared
//	pause     RETRYPROXY_RATE_LIMIT_PAUSE_KEY=route, nothing shared
//	shared    the same, and RETRYPROXY_SHARED
//	ratelimit the same, and RETRYPROXY_RATE_LIMIT=500/s
//	engine    the same, while the engine is flushed, paused, killed, started again
//	hold      a single 429 that tells to wait: how long until no process sends
//	cost      CPU time per request of one process, with and without sharing
//
// The first seconds of each arm are not counted (--settle). A request is failed
// when the client got neither 200 nor 429, and late when it got nothing within
// its patience.
//
// Nothing is sent but to loopback, and all is bounded in number and time.
//
// Exit codes: 0 all goals were met; 1 a part could not be played; 2 wrong
// arguments; 3 a goal was missed. --short has goals that a small and busy machine
// reaches; those that depend on no machine are the same.
package main
