package http1

import "encoding/binary"

// A header section that does not come as text, because its wire is HTTP/2, is handed over as a record: from
// the goroutine that reads the connection to the one that serves its stream, through any pieces of memory.
// A record is the lengths and the bytes of the fields, so nothing is searched for in it. Each field lies in it
// as a line of HTTP/1.1, which AppendLine copies in one piece. Compose reads it by the rules of Parse.
//
// Layout: the length of the record (4 bytes), its mark (1), the status (2), the number of fields (4), the
// lengths (4 each) of two strings, which are method and target or phrase and nothing, then both strings, then
// the fields. A field is the lengths of name and value and then "name: value" CRLF. So the head alone tells
// what is too large.

// BodyMark says what is known of a body beside its declared length.
type BodyMark uint8

// The marks.
const (
	AsDeclared BodyMark = iota // as its length says; without one there is none
	EndsStream                 // the end of its stream ends it, after trailers if there are any, whatever its length
	EndedHere                  // the stream has ended with these headers
)

const recordHead = 4 + 1 + 2 + 4 + 4 + 4

// AppendRequestRecord begins the record of a request. Target and method are checked by Compose. EndRecord
// ends it.
func AppendRequestRecord(dst []byte, method, target string, mark BodyMark) []byte {
	return appendRecord(dst, 0, method, target, mark)
}

// AppendResponseRecord begins the record of a response.
func AppendResponseRecord(dst []byte, status int, phrase string, mark BodyMark) []byte {
	return appendRecord(dst, status, phrase, "", mark)
}

func appendRecord(dst []byte, status int, first, second string, mark BodyMark) []byte {
	dst = append(dst, 0, 0, 0, 0, byte(mark), byte(status>>8), byte(status), 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(first)))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(second)))
	return append(append(dst, first...), second...)
}

// AppendRecordField adds a field. The words of the name get capitals, as most of HTTP/1.1 writes it.
func AppendRecordField[V bytestring](dst []byte, name string, value V) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(name)))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	dst = append(appendCapitals(dst, name), ": "...)
	return append(append(dst, value...), "\r\n"...)
}

// Capitals returns a name with its words in upper case.
func Capitals(name string) string { return string(appendCapitals(nil, name)) }

// appendCapitals appends a name with its words in upper case.
func appendCapitals(dst []byte, name string) []byte {
	upper := true
	for i := 0; i < len(name); i++ {
		b := name[i]
		if upper && 'a' <= b && b <= 'z' {
			b -= 'a' - 'A'
		}
		upper = b == '-'
		dst = append(dst, b)
	}
	return dst
}

// EndRecord ends the record of fields that began at dst[start].
func EndRecord(dst []byte, start, fields int) []byte {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	binary.BigEndian.PutUint32(dst[start+7:], uint32(fields))
	return dst
}

// record reads the record at the beginning of a buffer.
type record struct {
	rest   []byte // of the record, if all of it is there
	length int
	mark   BodyMark
	status int
	fields int
	first  int // length of the first string
	second int
	text   int // bytes of the section as HTTP/1.1 writes it, so far
}

// openRecord returns the record at the beginning of buf. ok is false if not even its head is there.
func openRecord(buf []byte) (c record, ok bool) {
	if len(buf) < recordHead {
		return c, false
	}
	at := func(i int) int { return int(binary.BigEndian.Uint32(buf[i:])) }
	c = record{length: at(0), mark: BodyMark(buf[4]), status: int(binary.BigEndian.Uint16(buf[5:])), fields: at(7), first: at(11), second: at(15)}
	if len(buf) >= c.length {
		c.rest = buf[recordHead:c.length:c.length]
	}
	return c, true
}

// isWhole reports whether all of the record is there. One whose head tells that it is too large is not waited
// for: the refusal is the one of the whole record if no other is found before it.
func (c *record) isWhole(lim Limits) (bool, Refusal) {
	switch {
	case c.rest != nil:
		return true, RefusalNone
	case c.fields > lim.Headers:
		return false, RefusalTooManyHeaders
	case c.length-recordHead-c.fields*2*4 > lim.HeaderBytes: // the bytes of the section, or fewer
		return false, RefusalHeadersTooLarge
	}
	return false, RefusalNone
}

// string returns the next string.
func (c *record) string(n int) []byte {
	s := c.rest[:n:n]
	c.rest = c.rest[n:]
	c.text += n
	return s
}

// headers appends the fields to headers, by the rules of readHeaders.
func (c *record) headers(headers []Header, lim Limits) ([]Header, Refusal) {
	c.text += len("\r\n")
	for range c.fields {
		n := len(headers)
		if n >= lim.Headers {
			return headers, RefusalTooManyHeaders
		}
		name, value := int(binary.BigEndian.Uint32(c.rest)), int(binary.BigEndian.Uint32(c.rest[4:]))
		line := c.rest[8 : 8+name+len(": ")+value+len("\r\n")]
		c.rest = c.rest[8+len(line):]
		if c.text += len(line); c.text > lim.HeaderBytes {
			return headers, RefusalHeadersTooLarge
		}
		f := Header{Name: line[:name:len(line)], Value: TrimOWS(line[name+2 : name+2+value : name+2+value])}
		if f.ID = lookupExact(f.Name); f.ID == OtherHeader {
			if at := tokenEnd(f.Name, 0); at < name || name == 0 {
				return headers, badFieldName(f.Name)
			}
			f.ID = lookupRelated(f.Name)
		}
		if controlAt(f.Value, 0) < len(f.Value) {
			return headers, RefusalControlByte
		}
		headers = append(headers, f)
	}
	return headers, RefusalNone
}

// badFieldName returns why a name that is no token is refused.
func badFieldName(name []byte) Refusal {
	if controlAt(name, 0) < len(name) {
		return RefusalControlByte
	}
	return RefusalBadHeader
}

// Compose reads the request whose record is at the beginning of buf, by the rules of Parse: n is the length of
// the record, and 0 without an error if not all of it is there. All spans point into buf. The version is 1.1.
func (r *Request) Compose(buf []byte, lim Limits) (n int, err error) {
	lim = lim.orDefaults()
	rec, ok := openRecord(buf)
	methodEnd := recordHead + min(rec.first, longestMethod)
	if !ok || len(buf) < methodEnd {
		return 0, nil
	}
	why := rec.refuseLine(lim)
	if why == RefusalNone {
		var whole bool
		if whole, why = rec.isWhole(lim); !whole && why == RefusalNone {
			return 0, nil
		}
	}
	headers := r.Headers[:0]
	*r = Request{}
	r.Headers, r.Minor = headers, 1
	if why == RefusalNone {
		why = r.compose(&rec, lim)
	} else if method := buf[recordHead:methodEnd:methodEnd]; why != RefusalMethodTooLong && tokenEnd(method, 0) == len(method) {
		r.Method = method // the response to HEAD has no body, whatever it is
	}
	if why != RefusalNone {
		return 0, why.Err()
	}
	return rec.length, nil
}

// refuseLine returns why the line of a request is too long.
func (c *record) refuseLine(lim Limits) Refusal {
	switch {
	case c.first > longestMethod:
		return RefusalMethodTooLong
	case c.first+c.second+len("  HTTP/1.1\r\n") > lim.HeaderBytes:
		return RefusalTargetTooLong
	}
	return RefusalNone
}

func (r *Request) compose(rec *record, lim Limits) (why Refusal) {
	r.Method, r.Target = rec.string(rec.first), rec.string(rec.second)
	rec.text += len("  HTTP/1.1\r\n")
	if why := r.checkLine(); why != RefusalNone {
		return why
	}
	if r.Headers, why = rec.headers(r.Headers, lim); why != RefusalNone {
		return why
	}
	return r.interpretHeaders(rec.mark)
}

// checkLine checks method and target as readLine does, which finds their ends.
func (r *Request) checkLine() Refusal {
	switch {
	case len(r.Method) == 0 || tokenEnd(r.Method, 0) < len(r.Method):
		return RefusalBadRequestLine
	case len(r.Target) == 0:
		return RefusalBadRequestLine
	}
	end, ascii := targetEnd(r.Target, 0)
	switch {
	case end < len(r.Target):
		return RefusalBadTarget
	case !ascii && !utf8OK(r.Target):
		return RefusalBadTarget
	case string(r.Method) == "CONNECT":
		return RefusalConnect
	}
	return r.readTarget()
}

// Compose reads the response whose record is at the beginning of buf, as Request.Compose reads a request.
// A response whose stream has ended has no body; another one without a length ends with its stream.
func (r *Response) Compose(buf []byte, lim Limits, requestMethod []byte) (n int, err error) {
	lim = lim.orDefaults()
	rec, ok := openRecord(buf)
	if !ok {
		return 0, nil
	}
	whole, why := rec.isWhole(lim)
	if !whole && why == RefusalNone {
		return 0, nil
	}
	headers := r.Headers[:0]
	*r = Response{}
	r.Headers, r.Length, r.Minor = headers, -1, 1
	if why == RefusalNone {
		why = r.compose(&rec, lim, string(requestMethod) == "HEAD")
	}
	if why != RefusalNone {
		return 0, &responseErrors[why]
	}
	return rec.length, nil
}

func (r *Response) compose(rec *record, lim Limits, head bool) (why Refusal) {
	r.Status = rec.status
	r.Phrase = rec.string(rec.first)
	rec.string(rec.second)
	rec.text += len("HTTP/1.1 200 \r\n")
	if r.Status < 100 {
		return RefusalBadStatusLine
	}
	if r.Headers, why = rec.headers(r.Headers, lim); why != RefusalNone {
		return why
	}
	if why = r.interpretHeaders(head); why != RefusalNone {
		return why
	}
	switch {
	case r.Body.Kind == BodyClose && rec.mark == EndedHere:
		r.Body, r.Close = Framing{Kind: BodyLength}, false
	case r.Body.Kind == BodyClose:
		r.Body, r.Close = Framing{Kind: BodyStream, Length: -1}, false
	case r.Body.Kind == BodyLength && rec.mark == EndsStream:
		r.Body.Kind = BodyStream
	}
	return RefusalNone
}
