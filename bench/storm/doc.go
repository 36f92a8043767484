// Command storm plays an outage for real: a server process that becomes slow when many requests are
// there at once, a thousand clients that try again and again, and a proxy between them.
//
//	go run ./bench/storm --through direct,haproxy-retry,haproxy-tuned,retryproxy --proxy bin/retryproxy --png storm.png
//
// The server (server.go) is a process of its own: a response takes 100 ms while up to 30 requests
// are there, and 100 ms x 1.05^((c-30)/15) with c of them above that, looked at anew every 50 ms. It
// never learns that a client left, so abandoned requests count until they are answered. After a time
// of peace the server is stopped with SIGSTOP (or killed, or answers 503 to everything), and later
// goes on. The clients live in this process. Each sends at exponential intervals, gives up after its
// patience, and tries again after a short pause until it gets a 200.
//
// The report has, second by second: good responses (200 in time), bad ones (any other response, or a
// failed connection), late ones (given up), and the most requests that the server had at once; then
// how long after the outage the 5 s mean of good responses was back at 95 % of what it was in peace,
// when errors and late ones fell below 5 % of all for good, and the peak of requests at the server.
// Package sim plays the same in virtual time, and its verdict stands beside the live one.
//
// Exit codes: 0 the runs were played, whatever came out of them; 1 one could not be; 2 wrong
// arguments.
package main
