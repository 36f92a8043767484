// Command soak runs retryproxy for a while in front of an upstream that fails
// in every way, with many clients that misbehave as well, and checks every
// byte and every count.
//
//	go run ./bench/soak --for 60s --proxy bin/retryproxy
//
// The proxy is the real program, started as a child process with short
// timeouts; clients and upstream live in this one. What a request says, what
// its body is, what the client does in the middle of it and what the upstream
// does with each attempt follows from a seed and the request's number
// (plan.go), so both ends know what the other must have sent, and the same
// seed gives the same requests, though never the same timing.
//
// A run is without violation when
//
//   - every response that looks whole is, byte by byte, what the upstream gave
//     to an attempt for this very request, and what it cut off looks cut off;
//   - every request body arrives whole, or visibly cut when the client cut it;
//   - malformed requests are refused and never reach the upstream, and nothing
//     that was not idempotent is sent twice;
//   - the proxy's own errors are given only when no response was had;
//   - the sum of outcomes, that of requests and the number sent are the same,
//     and attempts and retries add up;
//   - at the end goroutines, descriptors, connections and retry buffer of the
//     proxy are back at their idle level, and it ends with exit code 0 on SIGTERM.
//
// Exit codes: 0 without violation, 1 with, 2 for wrong arguments or a proxy
// that does not start.
package main
