package forward

import "github.com/retryproxy/retryproxy/proxy/http1"

// TraceContext returns the request's traceparent, nil if there is none or more than one,
// and its tracestate: all headers of that name as one list (W3C Trace Context, sections 3.2
// and 3.3). They may be spans of the request.
func TraceContext(r *http1.Request) (parent, state []byte) {
	parents, states := 0, 0
	for i := range r.Headers {
		switch f := &r.Headers[i]; f.ID {
		case http1.Traceparent:
			parents++
			parent = f.Value
		case http1.Tracestate:
			if states++; states == 1 {
				state = f.Value
				continue
			}
			joined := append(append([]byte(nil), state...), ", "...)
			state = append(joined, f.Value...)
		}
	}
	if parents != 1 {
		return nil, nil
	}
	return parent, state
}

// AppendClientTrace appends the headers traceparent and tracestate as the client sent them,
// for a header section written with Settings.OmitTrace.
func AppendClientTrace(dst []byte, r *http1.Request) []byte {
	for i := range r.Headers {
		if f := &r.Headers[i]; f.ID == http1.Traceparent || f.ID == http1.Tracestate {
			dst = f.AppendLine(dst)
		}
	}
	return dst
}

// TraceID returns the trace id of a traceparent (W3C Trace Context section 3.2.2.3), 32
// lower-case hexadecimal digits; "" if it is not valid.
func TraceID(parent []byte) string {
	const begin, end, whole = len("00-"), len("00-") + 32, 55
	if len(parent) < whole || parent[begin-1] != '-' || parent[end] != '-' {
		return ""
	}
	zero := true
	for _, c := range parent[begin:end] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
		zero = zero && c == '0'
	}
	if zero {
		return ""
	}
	return string(parent[begin:end])
}
