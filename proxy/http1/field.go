package http1

import (
	"bytes"
	"slices"
)

// Field is one field line as it came: spans into the parsed buffer, name in its original case, value without the white space
// around it. It is valid as long as the buffer is unchanged. To change a field, make another one.
type Field struct {
	Name, Value []byte // of a field that was parsed, Name's capacity goes to the end of its line: see AppendLine
	ID          Name
}

// AppendLine appends what AppendField does. Most lines came like that and are copied in one piece, at a third of the cost.
func (f *Field) AppendLine(dst []byte) []byte {
	n := len(f.Name)
	line := f.Name[:cap(f.Name)]
	if len(line) != n+len(": ")+len(f.Value)+len("\r\n") || line[n+1] != ' ' {
		return AppendField(dst, f.Name, f.Value)
	}
	return append(dst, line...)
}

// MakeField makes a field of its own bytes, for fields that did not come off the wire. It allocates.
func MakeField(name, value string) Field {
	f := Field{Name: slices.Clip([]byte(name)), Value: []byte(value)}
	f.ID = LookupName(f.Name)
	return f
}

// Limits bound a head. A zero in either means its default.
type Limits struct {
	HeadBytes int // start line, fields and the final empty line together; default DefaultHeadBytes
	Fields    int // field lines; default DefaultFields
}

// Defaults of Limits, from the product's own settings; RFC 9112 section 3 asks for at least 8000 bytes of request line.
const (
	DefaultHeadBytes = 64 << 10
	DefaultFields    = 100
)

func (l Limits) orDefaults() Limits {
	if l.HeadBytes <= 0 {
		l.HeadBytes = DefaultHeadBytes
	}
	if l.Fields <= 0 {
		l.Fields = DefaultFields
	}
	return l
}

// readFields reads field lines from b[i:] up to and including the empty line, and appends them to fields. next is the offset after
// the empty line; next == 0 without a refusal means that b ends before it. Bytes of an unfinished line are checked as well, so a
// refusal never waits for more bytes than it needs.
//
// A peer tends to send the same fields in the same order again. So the id that is left in a place of fields from the last head is the first
// one tried.
func readFields(fields []Field, b []byte, i, limit int) (_ []Field, next int, why Refusal) {
	b = b[:len(b):len(b)]
	for i < len(b) && b[i] != '\r' {
		n := len(fields)
		if n >= limit {
			return fields, 0, RefusalTooManyFields
		}
		fields = slices.Grow(fields, 1)[:n+1]
		f := &fields[n]
		last := &nameLines[f.ID]
		colon := i + last.length
		if !last.begins(b, i) {
			if colon, why = f.readName(b, i); colon == 0 {
				return fields[:n], 0, why
			}
		}
		start := colon + 1
		for start < len(b) && (b[start] == ' ' || b[start] == '\t') {
			start++
		}
		end := controlAt(b, start)
		if end == len(b) {
			return fields[:n], 0, RefusalNone
		}
		if next, why = lineEnd(b, end); next == 0 {
			return fields[:n], 0, why
		}
		for end > start && (b[end-1] == ' ' || b[end-1] == '\t') {
			end--
		}
		f.Name, f.Value = b[i:colon:next], b[start:end:end]
		i = next
	}
	next = 0
	if i < len(b) {
		next, why = lineEnd(b, i)
	}
	return fields, next, why
}

// readFieldsByLF is readFields for a response head of which each line ends with LF alone, as those of some small servers do. CRs are
// refused: where ends of both kinds stand in one head, an LF may be part of a value that somebody else chose.
func readFieldsByLF(fields []Field, b []byte, i, limit int) (_ []Field, next int, why Refusal) {
	for {
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			return fields, 0, RefusalNone
		}
		line := b[i : i+n]
		if i += n + 1; n == 0 {
			return fields, i, RefusalNone
		}
		if len(fields) >= limit {
			return fields, 0, RefusalTooManyFields
		}
		f, why := readLineByLF(line)
		if why != RefusalNone {
			return fields, 0, why
		}
		fields = append(fields, f)
	}
}

// readLineByLF reads one of these lines, without its end.
func readLineByLF(line []byte) (f Field, why Refusal) {
	if at := controlAt(line, 0); at < len(line) {
		if line[at] == '\r' {
			return f, RefusalBareLF
		}
		return f, RefusalControlByte
	}
	colon, why := f.readName(line, 0)
	switch {
	case why != RefusalNone:
		return f, why
	case colon == 0:
		return f, RefusalBadField
	}
	f.Name, f.Value = line[:colon:colon], slices.Clip(TrimOWS(line[colon+1:]))
	return f, RefusalNone
}

// readName finds the colon behind the name that begins at b[i] (RFC 9112 section 5), and sets the id. colon is 0 when b ends before it
// or the name is refused. A known name is a token and needs no other look; in all others each byte is looked at, and the first one
// that is not of a token decides.
func (f *Field) readName(b []byte, i int) (colon int, why Refusal) {
	colon = colonAt(b, i)
	if f.ID = lookupExact(b[i:colon]); f.ID != NameOther && colon < len(b) {
		return colon, RefusalNone
	}
	if colon = tokenEnd(b, i); colon == len(b) {
		return 0, RefusalNone
	}
	if b[colon] != ':' || colon == i {
		return 0, badName(b, i, colon)
	}
	f.ID = lookupRelated(b[i:colon])
	return colon, RefusalNone
}

// badName says what is wrong with the byte at b[at], the first one of a field line's name that cannot be part of it.
func badName(b []byte, start, at int) Refusal {
	switch c := b[at]; {
	case (c == ' ' || c == '\t') && at == start:
		return RefusalObsFold
	case c == ' ' || c == '\t':
		return RefusalSpaceBeforeColon
	case c == '\r' && at+1 == len(b):
		return RefusalNone // a line without colon or a bare CR: the next byte tells
	case c == '\r' && b[at+1] == '\n':
		return RefusalBadField
	case c < 0x20, c == 0x7f:
		_, why := lineEnd(b, at)
		return why
	}
	return RefusalBadField
}

// lineEnd reads CRLF at b[i], where b[i] is a control byte. next is the offset after it, 0 when b ends too early or when
// it is refused.
func lineEnd(b []byte, i int) (next int, why Refusal) {
	switch {
	case b[i] == '\r' && i+1 < len(b) && b[i+1] == '\n':
		return i + 2, RefusalNone
	case b[i] == '\n':
		return 0, RefusalBareLF
	case b[i] != '\r':
		return 0, RefusalControlByte
	case i+1 < len(b):
		return 0, RefusalBareCR
	}
	return 0, RefusalNone
}

// forget takes the spans out of all fields ever read, which come one after another, and leaves the ids for readFields to try.
func forget(fields []Field) []Field {
	fields = fields[:cap(fields)]
	for i := 0; i < len(fields) && fields[i].Name != nil; i++ {
		fields[i].Name, fields[i].Value = nil, nil
	}
	return fields[:0]
}

// firstByID is the value of the first field with the id, or nil. A present but empty value is not nil.
func firstByID(fields []Field, id Name) []byte {
	for i := range fields {
		if fields[i].ID == id {
			return fields[i].Value
		}
	}
	return nil
}

func firstByName(fields []Field, name string) ([]byte, bool) {
	for i := range fields {
		if EqualFold(fields[i].Name, name) {
			return fields[i].Value, true
		}
	}
	return nil, false
}

// ConnectionNames reports whether any Connection field among fields lists the given field name, which then must not be
// forwarded (RFC 9110 section 7.6.1). Ask only when HopNames says that there is something to find. No allocation.
func ConnectionNames(fields []Field, name []byte) bool {
	for i := range fields {
		if fields[i].ID != Connection {
			continue
		}
		for e, rest := NextToken(fields[i].Value); e != nil; e, rest = NextToken(rest) {
			if EqualFoldBytes(e, name) {
				return true
			}
		}
	}
	return false
}

func eachSpan(fields []Field, f func([]byte)) {
	for i := range fields {
		f(fields[i].Name)
		f(fields[i].Value)
	}
}
