package http1

import "time"

// Response is a response header section. The zero value is ready to use. A Response that is
// reused keeps its slices and does not allocate. All spans point into the buffer passed to
// Parse. It is not safe for concurrent use.
type Response struct {
	Minor   int    // 0 or 1
	Status  int    // 100 to 999
	Phrase  []byte // may be empty
	Headers []Header
	Body    Framing
	// Length is the declared Content-Length, -1 without one. It is also set if no body
	// follows (HEAD, 304); then it is the length that the body would have.
	Length int64
	// Close means that the upstream connection cannot carry another request: Connection:
	// close, HTTP/1.0 without keep-alive, a body ended by close, Keep-Alive: timeout=0, or
	// a 204 that announces a body, whose bytes would look like the next response.
	Close            bool
	HasHopByHopNames bool          // as in Request
	KeepAliveTimeout time.Duration // Keep-Alive: timeout=, whole seconds, at most 24 h; 0 if absent
	Upgrade          []byte        // on 101: the protocol, if Connection lists Upgrade; else nil

	pending headerProgress
}

// phraseAt is the offset of the phrase in each status line that has one.
const phraseAt = len("HTTP/1.1 200 ")

// longestKeepAlive limits the timeout that an upstream announces for idle connections, so
// that arithmetic with it cannot overflow.
const longestKeepAlive = 24 * time.Hour

// Parse parses one response header section from buf as Request.Parse parses a request
// header section. requestMethod is the method of its request, since HEAD changes the
// framing. Interim responses (1xx) are header sections of their own: continue after them.
//
// Body is BodyNone for 1xx, 204, 304 and responses to HEAD. That includes 101: the bytes
// after it belong to the new protocol. err is an *Error with Status 502: a response that
// cannot be trusted is never relayed.
//
// The refusals are those of requests with three exceptions for real servers, none of which
// affects framing. The phrase and the space before it may be missing, Content-Length may
// have leading zeros, and all lines of the header section may end with LF alone.
func (r *Response) Parse(buf []byte, lim Limits, requestMethod []byte) (n int, err error) {
	lim = lim.orDefaults()
	if len(buf) < lim.HeaderBytes && !r.pending.shouldParse(buf) {
		return 0, nil
	}
	b := buf[:min(len(buf), lim.HeaderBytes)]
	n, why := r.read(b, lim.Headers, requestMethod)
	if n == 0 && why == RefusalNone {
		if len(b) < lim.HeaderBytes {
			r.pending.incomplete(b)
			return 0, nil
		}
		why = RefusalHeadersTooLarge
	}
	r.pending = headerProgress{}
	if why != RefusalNone {
		return 0, &responseErrors[why]
	}
	return n, nil
}

// Reset drops an unfinished header section and all spans, and keeps the memory of Headers
// for the next Parse.
func (r *Response) Reset() {
	headers := clearHeaders(r.Headers)
	*r = Response{}
	r.Headers = headers
}

// Restart drops an unfinished header section but keeps the spans: the next Parse overwrites
// them, or fails.
func (r *Response) Restart() { r.pending = headerProgress{} }

// Detach drops all spans before their buffer is released, and keeps the values derived from
// them.
func (r *Response) Detach() {
	r.Phrase, r.Upgrade = nil, nil
	r.Headers = r.Headers[:0]
}

// Spans calls f with every span.
func (r *Response) Spans(f func([]byte)) {
	f(r.Phrase)
	f(r.Upgrade)
	eachSpan(r.Headers, f)
}

// Get returns the value of the first header with the given id, or nil.
func (r *Response) Get(id HeaderName) []byte { return firstByID(r.Headers, id) }

// Lookup returns the value of the first header with the given name, ignoring case.
func (r *Response) Lookup(name string) (value []byte, ok bool) { return firstByName(r.Headers, name) }

// Interim reports whether another response to the same request follows: 1xx except 101 (RFC 9110 section 15.2).
func (r *Response) Interim() bool { return r.Status < 200 && r.Status != 101 }

func (r *Response) read(b []byte, maxHeaders int, method []byte) (n int, why Refusal) {
	headers, pending := r.Headers[:0], r.pending
	*r = Response{} // as for a Request
	r.Headers, r.Length, r.pending = headers, -1, pending
	i, why := r.readLine(b)
	if i == 0 {
		return 0, why
	}
	read := readHeaders
	if b[i-2] != '\r' {
		read = readHeadersLF
	}
	if r.Headers, n, why = read(r.Headers, b, i, maxHeaders); n == 0 {
		return 0, why
	}
	return n, r.interpretHeaders(string(method) == "HEAD")
}

// readLine parses the status line (RFC 9112 section 4).
func (r *Response) readLine(b []byte) (next int, why Refusal) {
	minor, ok, why := readProtocol(b, 0)
	if !ok {
		return 0, why
	}
	r.Minor = minor
	if len(b) == 8 {
		return 0, RefusalNone
	}
	if b[8] != ' ' {
		return 0, RefusalBadStatusLine
	}
	status := 0
	for i := 9; i < 12; i++ {
		if i == len(b) {
			return 0, RefusalNone
		}
		if !isDigit(b[i]) {
			return 0, RefusalBadStatusLine
		}
		status = status*10 + int(b[i]-'0')
	}
	if r.Status = status; status < 100 {
		return 0, RefusalBadStatusLine
	}
	if len(b) == 12 {
		return 0, RefusalNone
	}
	start := 12
	if b[12] == ' ' {
		start = phraseAt
	} else if c := b[12]; c != '\r' && c != '\n' {
		return 0, RefusalBadStatusLine
	}
	end := controlAt(b, start)
	r.Phrase = b[start:end:end]
	if end == len(b) {
		return 0, RefusalNone
	}
	if b[end] == '\n' { // then all lines of the header section must end like this: see readHeadersLF
		return end + 1, RefusalNone
	}
	return lineEnd(b, end)
}

// interpretHeaders derives body and connection properties from the headers.
func (r *Response) interpretHeaders(head bool) Refusal {
	var s messageInfo
	headers := r.Headers
	for i := range headers {
		f := &headers[i]
		switch {
		case !f.ID.isParsed():
		case f.ID == KeepAlive:
			s.addKeepAlive(f.Value)
		default:
			s.addHeader(f)
		}
	}
	if why := s.checkFraming(r.Minor); why != RefusalNone {
		return why
	}
	r.Close = s.closesConnection(r.Minor) || s.keepAliveZero
	r.HasHopByHopNames, r.KeepAliveTimeout = s.hopByHopNames, s.keepAliveTimeout
	if s.lengths > 0 {
		r.Length = s.length
	}
	if r.Status == 101 {
		r.Upgrade = s.upgradeProtocol(r.Minor)
	}
	return r.setFraming(&s, head)
}

// setFraming determines the body in the order of RFC 9112 section 6.3.
func (r *Response) setFraming(s *messageInfo, head bool) Refusal {
	announced := s.codings.seen || s.lengths > 0 && s.length > 0
	switch {
	case r.Status < 200:
		if announced {
			return RefusalBodyForbidden
		}
	case r.Status == 204:
		r.Close = r.Close || announced
	case head, r.Status == 304:
	case s.codings.seen:
		r.Body.Kind = BodyChunked
	case s.lengths > 0:
		r.Body = Framing{Kind: BodyLength, Length: s.length}
	default:
		r.Body.Kind = BodyClose
		r.Close = true
	}
	return RefusalNone
}

// addKeepAlive parses timeout=N from a Keep-Alive value (RFC 2068 section 19.7.1; no later
// RFC defines the header). It ignores everything else.
func (s *messageInfo) addKeepAlive(v []byte) {
	const param = "timeout="
	for e, rest := NextToken(v); e != nil; e, rest = NextToken(rest) {
		if len(e) <= len(param) || !EqualFold(e[:len(param)], param) {
			continue
		}
		n, ok := ParseUint(e[len(param):])
		if !ok {
			continue
		}
		s.keepAliveZero = n == 0
		s.keepAliveTimeout = time.Duration(min(n, int64(longestKeepAlive/time.Second))) * time.Second
	}
}
