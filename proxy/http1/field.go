package http1

// Field is one field line as it came: spans into the parsed buffer, name in its original case, value without the white space
// around it. It is valid as long as the buffer is unchanged.
type Field struct {
	Name, Value []byte
	ID          Name
}

// MakeField makes a field of its own bytes, for fields that did not come off the wire. It allocates.
func MakeField(name, value string) Field {
	f := Field{Name: []byte(name), Value: []byte(value)}
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
func readFields(fields []Field, b []byte, i, limit int) (_ []Field, next int, why Refusal) {
	for i < len(b) {
		if b[i] == '\r' {
			next, why = lineEnd(b, i)
			return fields, next, why
		}
		if len(fields) >= limit {
			return fields, 0, RefusalTooManyFields
		}
		var f Field
		if i, why = f.read(b, i); i == 0 {
			return fields, 0, why
		}
		fields = append(fields, f)
	}
	return fields, 0, RefusalNone
}

// read reads one field line that begins at b[i] (RFC 9112 section 5). next is the offset of the line after it, 0 as for readFields.
func (f *Field) read(b []byte, i int) (next int, why Refusal) {
	colon := i
	for colon < len(b) && isToken[b[colon]] {
		colon++
	}
	if colon == len(b) {
		return 0, RefusalNone
	}
	if b[colon] != ':' || colon == i {
		return 0, badName(b, i, colon)
	}
	start := colon + 1
	for start < len(b) && (b[start] == ' ' || b[start] == '\t') {
		start++
	}
	end := controlAt(b, start)
	if end == len(b) {
		return 0, RefusalNone
	}
	if next, why = lineEnd(b, end); next == 0 {
		return 0, why
	}
	for end > start && (b[end-1] == ' ' || b[end-1] == '\t') {
		end--
	}
	f.Name, f.Value = b[i:colon:colon], b[start:end:end]
	f.ID = LookupName(f.Name)
	return next, RefusalNone
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
	case b[i] == '\n':
		return 0, RefusalBareLF
	case b[i] != '\r':
		return 0, RefusalControlByte
	case i+1 == len(b):
		return 0, RefusalNone
	case b[i+1] != '\n':
		return 0, RefusalBareCR
	}
	return i + 2, RefusalNone
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
