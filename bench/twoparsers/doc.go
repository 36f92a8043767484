// Twoparsers shows that what retryproxy sends upstream has one reading. It makes raw requests, by a grammar and by
// mutating the table of bench/conformance, sends them through the real binary to an upstream that keeps the bytes of each
// connection, and shows these bytes to net/http's server, to nginx and to HAProxy. All three have to read the same
// requests: as many, with the same methods, targets, hosts and bodies.
//
//	go run ./bench/twoparsers --for 1m
//
// What it sends follows from --seed; which requests share a connection upstream does not. The exit code is 0 when all agree, 1 when
// not, 2 when the check itself could not be made.
package main
