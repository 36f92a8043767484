package errorbody

import (
	"bytes"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// problemType is the media type of a problem details object (RFC 9457 section 6.1).
const problemType = "application/problem+json"

// acceptsProblem reports whether an Accept header names problemType, with a weight above 0 (RFC 9110
// section 12.5.1).
func acceptsProblem(headers []http1.Header) bool {
	for i := range headers {
		if headers[i].ID != http1.Accept {
			continue
		}
		for item := range bytes.SplitSeq(headers[i].Value, []byte(",")) {
			name, parameters, _ := bytes.Cut(item, []byte(";"))
			if http1.EqualFold(http1.TrimOWS(name), problemType) && !isRefused(parameters) {
				return true
			}
		}
	}
	return false
}

// isRefused reports whether the parameters of a media range have a weight of 0, as q=0.000.
func isRefused(parameters []byte) bool {
	for p := range bytes.SplitSeq(parameters, []byte(";")) {
		name, value, _ := bytes.Cut(p, []byte("="))
		if http1.EqualFold(http1.TrimOWS(name), "q") {
			return len(bytes.Trim(http1.TrimOWS(value), "0.")) == 0
		}
	}
	return false
}
