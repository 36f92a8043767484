package proxy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Eject says when an address of an upstream with several is ejected for a
// while. The zero value means the defaults of package upstream.
type Eject struct {
	After int           // failures in a row; below 0: never
	For   time.Duration // how long, the first time
}

func (e Eject) options() upstream.Options {
	return upstream.Options{EjectAfter: e.After, EjectFor: e.For}
}

// reportToEndpoint tells the address that an attempt went to what came of it; m is nil
// where there is only one. Dials were counted where they were made.
func reportToEndpoint(m *upstream.Endpoint, a *policy.Attempt) {
	switch {
	case m == nil:
	case a.Cause == policy.CauseIdleClose, a.Cause == policy.CauseRefusedStream:
		// A restart closes all idle connections at once, and a stream is refused for want of room.
	case a.Cause != policy.CauseStatus, countsAgainstEndpoint(guardStatus(a)):
		m.ReportFailure()
	default:
		m.ReportSuccess()
	}
}

// countsAgainstEndpoint says whether a status tells that the address is of no use. A 500 is as
// a rule the request's fault or the code's, which all addresses share, and a 429 is
// the client's.
func countsAgainstEndpoint(status int) bool { return status >= 502 && status <= 504 }
