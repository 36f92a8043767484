// Command soak runs retryproxy for a while in front of an upstream that fails in every way, with
// many clients that misbehave as well, and checks every byte and every count.
//
//	go run ./bench/soak --for 60s --proxy bin/retryproxy
//
// The proxy is the real program with short timeouts; clients and upstream live in this process. What
// a request says, what its client does in the middle of it, and what the upstream does with each
// attempt follow from a seed and the request's number (plan.go, act.go). So both ends know what the
// other must have sent. A run is without violation if
//
//   - every response that looks whole is, byte by byte, what the upstream sent to an attempt for this
//     request, and what it cut off looks cut off;
//   - every request body arrives whole, or visibly cut if the client cut it;
//   - malformed requests are refused and never forwarded, and what is not idempotent is sent once;
//   - the proxy's own errors are sent only if there was no response;
//   - the sums of outcomes, of requests and of what was sent are the same, and attempts add up;
//   - at the end goroutines, descriptors, connections and retry buffer are back at their idle level,
//     and the proxy ends with exit code 0 on SIGTERM.
//
// Exit codes: 0 without violation, 1 with, 2 for wrong arguments.
package main
