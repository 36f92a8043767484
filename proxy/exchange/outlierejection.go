package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// reportToEndpoint tells the endpoint m what came of an attempt. m is nil if there is only one
// endpoint. Dials are counted where they are made.
func reportToEndpoint(m *upstream.Endpoint, a *policy.Attempt) {
	switch {
	case m == nil:
	case a.Cause == policy.CauseIdleClose, a.Cause == policy.CauseRefusedStream:
		// A restart closes all idle connections at once, and a stream is refused for want of room.
	case a.Cause != policy.CauseStatus, countsAgainstEndpoint(a.JudgedStatus()):
		m.ReportFailure()
	default:
		m.ReportSuccess()
	}
}

// countsAgainstEndpoint reports whether a status says that the endpoint is broken. A 500 is usually
// caused by the request or by code that all endpoints share; a 429 is about the client.
func countsAgainstEndpoint(status int) bool { return status >= 502 && status <= 504 }
