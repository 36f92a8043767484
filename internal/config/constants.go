package config

import (
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// Values that no user can choose well are constants, each with its reason.
const (
	// maxHeaderBytes is the maximum size of the headers of a request or response. The largest that are
	// usual carry a Kerberos ticket: 48 000 bytes, in base64 64 000. Other servers allow less: nginx
	// 32 KiB, HAProxy 16 KiB, Envoy 60 KiB.
	maxHeaderBytes = 64 << 10

	// maxHeaders is the maximum number of header lines: that of Apache and Envoy.
	maxHeaders = 100

	// maxConcurrentStreams is the maximum number of concurrent requests on one HTTP/2 client connection.
	// A gRPC client keeps one connection, and silently holds back what is beyond: 200 watches are usual.
	maxConcurrentStreams = 1000

	// readHeaderTimeout is the time to receive the headers of a request, from the first byte to the
	// last. A client whose network loses a packet five times in a row still makes it. It is the value
	// of HAProxy's examples.
	readHeaderTimeout = 10 * time.Second

	// clientIdleTimeout is how long an idle client connection is kept. It is longer than the longest idle
	// timeout of load balancers in front (AWS ALB: up to 4000 s; Google: 600 s), so that they close first
	// and never send a request into a connection that is being closed. An idle connection costs little,
	// and when descriptors run short, the one that is idle longest is closed for a new client.
	clientIdleTimeout = 70 * time.Minute

	// writeTimeout is how long a client may read nothing of its response: nginx's send_timeout.
	writeTimeout = time.Minute

	// tunnelIdleTimeout is how long an upgraded connection (WebSocket) may have no traffic: Envoy's
	// tcp_proxy idle_timeout. Applications that need more send pings, which NAT devices need sooner.
	tunnelIdleTimeout = time.Hour

	// minBodyRate is the minimum average rate of a request body, in bytes per second, after its first
	// 10 seconds: half of what a GPRS phone sends, but too much for an attacker with many slow uploads.
	minBodyRate = 256

	// gaveUpLogPerMinute is the number of log lines per minute and route about failed requests, without
	// ACCESS_LOG. More would say nothing new and fill disks in an outage; the rest is counted.
	gaveUpLogPerMinute = 10

	// dialShare is how many timed-out dials fit the request timeout.
	dialShare = 3

	// responseBufferBytes is the maximum size of a failed response that is kept during a retry. Error
	// pages and JSON errors are smaller; what is larger is worth more to the client now than a retry.
	responseBufferBytes = 64 << 10
)

// HeaderLimits returns the limits of the headers of a request or response.
func HeaderLimits() http1.Limits {
	return http1.Limits{HeaderBytes: maxHeaderBytes, Headers: maxHeaders}
}
