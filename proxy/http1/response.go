package http1

import "time"

// Response is a response header section. The zero value is ready; one Response read again and again keeps its slices and allocates nothing.
// All spans point into the buffer given to Parse. Not for concurrent use.
type Response struct {
	Minor   int    // 0 or 1
	Status  int    // 100 to 999
	Phrase  []byte // may be empty
	Headers []Header
	Body    Framing
	// Length is the declared Content-Length, -1 without one. It is also set where no body follows (HEAD, 304) and then
	// says how long one would have been.
	Length int64
	// Close: the upstream connection cannot carry another request: Connection: close, HTTP/1.0 without keep-alive, a body ended by
	// close, Keep-Alive: timeout=0, or a 204 that announces a body, whose bytes would pass for the next response.
	Close            bool
	KeepAliveTimeout time.Duration // Keep-Alive: timeout=, whole seconds, at most 24 h; 0 when not said
	Upgrade          []byte        // on 101: the protocol, when Connection names Upgrade; else nil
	HasHopByHopNames bool          // as on Request

	pending headerProgress
}

// phraseAt is where a phrase begins, in each status line that has one.
const phraseAt = len("HTTP/1.1 200 ")

// longestKeepAlive caps what an upstream may promise about its idle connections, so that no arithmetic with it overflows.
const longestKeepAlive = 24 * time.Hour

// Parse reads one response header section from buf as Request.Parse reads a request header section. requestMethod is the method of the
// request it answers, since HEAD changes the framing. Interim responses (1xx) are header sections of their own: read on after them.
//
// Body is BodyNone for 1xx, 204, 304 and answers to HEAD. For 101 too: what follows belongs to the new protocol. err is an *Error with
// Status 502: a response that cannot be trusted is never relayed.
//
// The refusals are those of requests with three allowances for real servers, each without effect on framing: the phrase and the
// space before it may be missing, Content-Length may have leading zeros, and all lines of the header section may end with LF alone.
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

// Reset forgets an unfinished head and all spans, and keeps the memory of Fields for the next Parse.
func (r *Response) Reset() {
	headers := clearHeaders(r.Headers)
	*r = Response{}
	r.Headers = headers
}

// Restart forgets an unfinished head, and no spans: the next Parse writes over them, or fails.
func (r *Response) Restart() { r.pending = headerProgress{} }

// Detach forgets all spans before their buffer goes, and keeps what was concluded from them.
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

// Get is the value of the first field with the given id, nil when there is none.
func (r *Response) Get(id HeaderName) []byte { return firstByID(r.Headers, id) }

// Lookup is the value of the first field with the given name, whatever its case.
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

// readLine reads the status line (RFC 9112 section 4).
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
	if b[end] == '\n' { // so must all lines of the header section end: see readHeadersLF
		return end + 1, RefusalNone
	}
	return lineEnd(b, end)
}

// interpretHeaders draws from the fields what they say about body and connection.
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

// setFraming decides the body by the order of RFC 9112 section 6.3.
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

// addKeepAlive reads timeout=N out of a Keep-Alive value (RFC 2068 section 19.7.1; no later RFC defines the field). Anything else in it
// is ignored.
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
