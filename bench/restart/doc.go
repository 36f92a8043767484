// Command restart kills an application with requests in hand, starts it again
// beside its retryproxy, and measures what clients see of it.
//
//	go run ./bench/restart --proxy bin/retryproxy
//
// All are processes of their own: the application (app.go), which answers a thousand
// requests and holds whatever more it is sent until it is killed, and retryproxy with its default settings. A
// thousand clients of this process have a request in hand each (GET, PUT, POST with
// and without an Idempotency-Key in turn) when the application is killed; two hundred
// more come while it is down. Then it is started again on the same port.
//
// What is told of each run: how long after the port was open the first of them got its
// answer, and the last; how many were answered, how many were refused because
// they may not run twice (a POST without a key that the killed application had),
// and how many were lost, that is anything else. Every constant is a flag.
//
// Exit codes: 0 nothing was lost, however long it took; 1 something was, or a run
// could not be played; 2 wrong arguments.
package main
