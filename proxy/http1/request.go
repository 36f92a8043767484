package http1

// longestMethod limits the method. The longest one registered with IANA has 17 letters
// (UPDATEREDIRECTREF).
const longestMethod = 32

// Request is a request header section. The zero value is ready to use. A Request that is
// reused keeps its slices and does not allocate. All spans point into the buffer passed to
// Parse, except a shared Path (see there). It is not safe for concurrent use.
type Request struct {
	Method []byte // a token of 1 to 32 bytes, case preserved; never CONNECT; a usual one is no span
	Target []byte // the request target as received
	Scheme []byte // "http" or "https" in the client's case for the absolute form, else nil
	// Authority is the host[:port] of the absolute form, which replaces Host (RFC 9112
	// section 3.2.2), else the Host value. It is nil only for an HTTP/1.0 request without
	// Host.
	Authority []byte
	// Path begins with "/" and is as received: nothing is decoded or normalised. It is "*"
	// for the asterisk form and for OPTIONS with an absolute form that has neither path nor
	// query. It may be shared: do not change its bytes.
	Path    []byte
	Query   []byte // without "?"
	Minor   int    // 0 or 1. HTTP/1.2 and above, which do not exist, count as 1.1 (RFC 9110 section 2.5)
	Headers []Header
	Body    Framing // never BodyClose; BodyStream only by Compose
	// Upgrade is the Upgrade value (the first, if there are several) if Connection lists it
	// and the version is 1.1. It is nil if the list contains h2c.
	Upgrade []byte

	Form     Form
	HasQuery bool // distinguishes "/a?" from "/a"
	Close    bool // the connection ends after this exchange: Connection: close, or HTTP/1.0 without keep-alive
	// ExpectContinue means that the client waits for 100 before it sends the body. It is
	// never set for HTTP/1.0 or without a body.
	ExpectContinue  bool
	AcceptsTrailers bool // TE: trailers
	// HasHopByHopNames means that Connection lists something besides close, keep-alive and
	// upgrade. The headers that it lists must not be forwarded (RFC 9110 section 7.6.1).
	HasHopByHopNames bool

	lineRead bool // the request line was complete at the last parse

	pending headerProgress
}

// Parse parses one request header section from buf, which may contain more bytes after it.
//
// n is the length of the header section with its final empty line, and with up to eight empty
// lines that are tolerated before the request line (RFC 9112 section 2.2). n == 0 with err ==
// nil means that more bytes are needed: call again with the same bytes and more after them,
// in the same or another buffer. A header section that cannot become valid, or fit, is
// refused as early as possible, at the latest when the number of bytes has doubled.
//
// err is an *Error; then the connection cannot be used further, since the start of the next
// request is unknown. The fields of r are valid only if n > 0. After a refusal only Method,
// Target and Headers are, as far as they were parsed, for logging.
//
// Calls with a growing buffer cost time linear in its total length, however small the
// steps. If a header section is abandoned before Parse returned n > 0 or an error, call
// Reset before the next one.
func (r *Request) Parse(buf []byte, lim Limits) (n int, err error) {
	lim = lim.orDefaults()
	if len(buf) < lim.HeaderBytes && !r.pending.shouldParse(buf) {
		return 0, nil
	}
	b := buf[:min(len(buf), lim.HeaderBytes)]
	n, why := r.read(b, lim.Headers)
	if n == 0 && why == RefusalNone {
		if len(b) < lim.HeaderBytes {
			r.pending.incomplete(b)
			return 0, nil
		}
		why = RefusalHeadersTooLarge
		if !r.lineRead {
			why = RefusalTargetTooLong
		}
	}
	r.pending = headerProgress{}
	if why != RefusalNone {
		return 0, why.Err()
	}
	return n, nil
}

// Reset drops an unfinished header section and all spans, and keeps the memory of Headers
// for the next Parse.
func (r *Request) Reset() {
	headers := clearHeaders(r.Headers)
	*r = Request{}
	r.Headers = headers
}

// Detach drops all spans before their buffer is released, and keeps the values derived from
// them.
func (r *Request) Detach() {
	r.Method, r.Target, r.Scheme, r.Authority, r.Path, r.Query, r.Upgrade = nil, nil, nil, nil, nil, nil, nil
	r.Headers = r.Headers[:0]
}

// Spans calls f with every span.
func (r *Request) Spans(f func([]byte)) {
	for _, span := range [...][]byte{r.Method, r.Target, r.Scheme, r.Authority, r.Path, r.Query, r.Upgrade} {
		f(span)
	}
	eachSpan(r.Headers, f)
}

// Get returns the value of the first header with the given id, or nil.
func (r *Request) Get(id HeaderName) []byte { return firstByID(r.Headers, id) }

// Lookup returns the value of the first header with the given name, ignoring case.
func (r *Request) Lookup(name string) (value []byte, ok bool) { return firstByName(r.Headers, name) }

// emptyLines is how many empty lines before a request are ignored (RFC 9112 section 2.2). Old clients
// send one or two after a body.
const emptyLines = 8

// read parses a header section from the start of b. n == 0 without a refusal means that b
// ends before the header section.
func (r *Request) read(b []byte, maxHeaders int) (n int, why Refusal) {
	headers, pending := r.Headers[:0], r.pending
	*r = Request{} // in place; a literal with both fields would be built elsewhere and copied
	r.Headers, r.pending = headers, pending
	i := 0
	for lines := 0; i < len(b) && b[i] == '\r' && lines < emptyLines; lines++ {
		end, why := lineEnd(b, i)
		if end == 0 {
			return 0, why
		}
		i = end
	}
	next, why := r.readLine(b, i)
	if next == 0 {
		return 0, why
	}
	r.lineRead = true
	if r.Headers, n, why = readHeaders(r.Headers, b, next, maxHeaders); n == 0 {
		return 0, why
	}
	return n, r.interpretHeaders(AsDeclared)
}

// readLine parses the request line at b[i:] (RFC 9112 section 3).
func (r *Request) readLine(b []byte, i int) (next int, why Refusal) {
	space := tokenEnd(b, i)
	if space-i > longestMethod {
		return 0, RefusalMethodTooLong
	}
	r.Method = b[i:space:space]
	if space == len(b) {
		return 0, RefusalNone
	}
	if b[space] != ' ' || space == i {
		return 0, badMethod(b, i, space)
	}
	start := space + 1
	end, ascii := targetEnd(b, start)
	r.Target = b[start:end:end]
	if end == len(b) {
		return 0, RefusalNone
	}
	if b[end] != ' ' || end == start {
		return 0, badTargetByte(b, start, end)
	}
	if !ascii && !utf8OK(r.Target) {
		return 0, RefusalBadTarget
	}
	if r.Minor, next, why = readVersion(b, end+1); next == 0 {
		return 0, why
	}
	if string(r.Method) == "CONNECT" {
		return 0, RefusalConnect
	}
	if why = r.readTarget(); why != RefusalNone {
		return 0, why
	}
	return next, RefusalNone
}

// badMethod returns why b[at], which cannot be part of a method that begins at start, is
// refused.
func badMethod(b []byte, start, at int) Refusal {
	switch {
	case at == start && b[at] == 0x16: // handshake record, RFC 8446 section 5.1
		return RefusalTLSBytes
	case b[at] == '\n':
		return RefusalBareLF
	}
	return RefusalBadRequestLine
}

// badTargetByte returns why b[at], which cannot be part of a target that begins at start,
// is refused.
func badTargetByte(b []byte, start, at int) Refusal {
	switch c := b[at]; {
	case c == '\r' && at+1 == len(b):
		return RefusalNone // a line without version, or a bare CR
	case c == '\r' && b[at+1] != '\n':
		return RefusalBareCR
	case c == '\n':
		return RefusalBareLF
	case c == '\r', at == start && c == ' ':
		return RefusalBadRequestLine
	}
	return RefusalBadTarget
}

// readVersion parses "HTTP/1.x" CRLF at b[i:] (RFC 9112 section 2.3). It refuses another
// major version as early as possible, including the HTTP/2 preface ("PRI * HTTP/2.0").
func readVersion(b []byte, i int) (minor, next int, why Refusal) {
	if rest := b[i:]; len(rest) >= 10 && string(rest[:10]) == "HTTP/1.1\r\n" {
		return 1, i + 10, RefusalNone
	}
	minor, ok, why := readProtocol(b, i)
	if !ok {
		if why == RefusalBadStatusLine {
			why = RefusalBadRequestLine
		}
		return 0, 0, why
	}
	if i+8 == len(b) {
		return 0, 0, RefusalNone
	}
	if c := b[i+8]; c != '\r' && c != '\n' {
		return 0, 0, RefusalBadRequestLine
	}
	next, why = lineEnd(b, i+8)
	return minor, next, why
}

// readProtocol parses the eight bytes "HTTP/1.x" at b[i:]. If ok is false without a
// refusal, b ends before them.
func readProtocol(b []byte, i int) (minor int, ok bool, why Refusal) {
	if end := i + len("HTTP/1.1"); end <= len(b) && string(b[i:end]) == "HTTP/1.1" { // the usual case
		return 1, true, RefusalNone
	}
	const shape = "HTTP/0.0"
	for k := range len(shape) {
		if i+k == len(b) {
			return 0, false, RefusalNone
		}
		if c := b[i+k]; c != shape[k] && !(shape[k] == '0' && isDigit(c)) {
			return 0, false, RefusalBadStatusLine
		}
	}
	if b[i+5] != '1' {
		return 0, false, RefusalBadVersion
	}
	return min(int(b[i+7]-'0'), 1), true, RefusalNone
}

// usualMethods do not point into the buffer of their request. The method is read again when the request has ended. By
// then its buffer has left the processor's cache, which cost 1 % of the CPU of h2c to h2c.
var usualMethods = [...][]byte{[]byte("GET"), []byte("POST"), []byte("PUT")}

// usualMethod returns m, or the usual method that is equal.
func usualMethod(m []byte) []byte {
	for _, usual := range usualMethods {
		if string(m) == string(usual) {
			return usual
		}
	}
	return m
}

// interpretHeaders derives host, body and connection properties from the headers. An empty Host means
// that the target has no authority (RFC 9112 section 3.2).
func (r *Request) interpretHeaders(mark BodyMark) Refusal {
	var s messageInfo
	hosts, hostOK := 0, true
	headers := r.Headers
	r.Method = usualMethod(r.Method)
	for i := range headers {
		f := &headers[i]
		if !f.ID.isParsed() {
			continue
		}
		switch f.ID {
		case Host:
			hosts++
			hostOK = hostOK && (validAuthority(f.Value) || len(f.Value) == 0 && r.Form != Absolute)
			if r.Form != Absolute {
				r.Authority = f.Value
			}
		case Expect:
			if r.Minor > 0 && !EqualFold(f.Value, "100-continue") {
				return RefusalBadExpect
			}
			r.ExpectContinue = r.Minor > 0
		case TE:
			r.AcceptsTrailers = r.AcceptsTrailers || HasToken(f.Value, "trailers")
		case FramingLookalike:
			return RefusalBadHeader
		default:
			s.addHeader(f)
		}
	}
	switch {
	case hosts > 1:
		return RefusalDuplicateHost
	case hosts == 0 && r.Minor > 0:
		return RefusalMissingHost
	case !hostOK:
		return RefusalBadHost
	}
	r.Close, r.HasHopByHopNames, r.Upgrade = s.closesConnection(r.Minor), s.hopByHopNames, s.upgradeProtocol(r.Minor)
	return r.setFraming(&s, mark)
}

// setFraming determines the body (RFC 9112 section 6.3). Content-Length may be repeated
// with equal values; one of them is forwarded. A list in one header ("5, 5") and leading
// zeros are refused: no client sends those, and a server in front of us may read them
// differently.
func (r *Request) setFraming(s *messageInfo, mark BodyMark) Refusal {
	if why := s.checkFraming(r.Minor); why != RefusalNone {
		return why
	}
	switch {
	case s.codings.seen:
		r.Body.Kind = BodyChunked
	case s.lengths > 0:
		if s.leadingZero {
			return RefusalBadContentLength
		}
		r.Body = Framing{Kind: BodyLength, Length: s.length}
	case mark == EndsStream:
		r.Body.Length = -1
	}
	if mark == EndsStream {
		r.Body.Kind = BodyStream
	}
	r.ExpectContinue = r.ExpectContinue && !r.Body.Empty()
	return RefusalNone
}
