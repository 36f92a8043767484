package http1

import "sync/atomic"

// A memory holds what was read last of an accepted head, so that it need not be read again when the same bytes come again. On
// connections that are kept they mostly do: a caller sends the same fields with each request, an upstream with many an answer, its Date
// for a second. To compare 150 bytes and to cut them into fields costs a third of reading them and of what is concluded from them:
// a small GET's two heads take 1300 instructions instead of 2950.
//
// Only equality of bytes lets work be skipped, and all spans are of the buffer being parsed: a head reads the same with any
// memory and with none, which FuzzMemory holds.
//
// So it does not matter whose memory it is, and there are a few for all. A connection costs nothing, nobody has to give one
// back, and a connection that is new or was long idle finds what another one left. Each Request and Response has its place
// among them, shared with others when there are more; one that finds its memory in use does without.
//
// Comparing line by line, which would know the rest of a head with one line changed, was tried and costs as much as it saves: a known
// name is found by two comparisons anyway.
type memory struct {
	busy atomic.Bool
	patience
	size  int // of text; 0: there is none
	count int // of fields
	text  [memoryBytes]byte
	lines [memoryFields]fieldLine
}

const (
	memories     = 64
	memoryBytes  = 1024 // what is larger is not remembered: most clients send some 100, a browser 500 to 1000
	memoryFields = 24
)

// place is a Request's or Response's place among the memories, or 0 before its first head.
type place uint8

var lastPlace atomic.Uint32

// index is the place counted from 0. They are dealt out in turn.
func (p *place) index() int {
	if *p == 0 {
		*p = place(lastPlace.Add(1)%memories) + 1
	}
	return int(*p-1) % memories
}

// claim takes the memory for one reading, unless it is in use. release ends that.
func (m *memory) claim() bool { return m.busy.CompareAndSwap(false, true) }
func (m *memory) release()    { m.busy.Store(false) }

// comesAgain reports whether b[i:] begins with the text, in which there are no more fields than allowed.
func (m *memory) comesAgain(b []byte, i, maxFields int) bool {
	end := i + m.size
	return m.size > 0 && end <= len(b) && string(b[i:end]) == string(m.text[:m.size]) && m.count <= maxFields
}

// fields cuts b, which begins with the text, into its fields, in the memory of fields.
func (m *memory) fields(fields []Field, b []byte) []Field {
	if cap(fields) < m.count {
		fields = make([]Field, m.count)
	}
	fields = fields[:m.count]
	for k := range fields {
		l, f := &m.lines[k], &fields[k]
		f.ID, f.Name, f.Value = l.id, b[l.start:l.colon:l.end], b[l.value:l.valueEnd:l.valueEnd]
	}
	return fields
}

// keep remembers text, which ends with the given fields and an empty line. False: it is too large.
func (m *memory) keep(text []byte, fields []Field) bool {
	if len(text) > memoryBytes || len(fields) > memoryFields {
		return false
	}
	end := len(text) - len("\r\n")
	for k := len(fields) - 1; k >= 0; k-- {
		end = m.lines[k].set(&fields[k], end)
	}
	m.size, m.count = copy(m.text[:], text), len(fields)
	return true
}

// fieldLine is where the parts of a field line are in the text. end is behind its CRLF.
type fieldLine struct {
	start, colon, value, valueEnd, end uint16
	id                                 Name
}

// set notes the parts of f, whose line ends at end, and returns where it begins.
func (l *fieldLine) set(f *Field, end int) (start int) {
	line := f.Name[:cap(f.Name)]
	value := len(f.Name) + 1
	for line[value] == ' ' || line[value] == '\t' {
		value++
	}
	start = end - len(line)
	l.start, l.colon, l.end = uint16(start), uint16(start+len(f.Name)), uint16(end)
	l.value, l.valueEnd, l.id = uint16(start+value), uint16(start+value+len(f.Value)), f.ID
	return start
}

// patience says when to give up what is remembered for what came instead: at once when it had its use, as with a Date of
// the last second, and ever later when it had none, so that where nothing comes again next to nothing is spent on it.
type patience struct {
	misses, limit uint8
	used          bool
}

const mostPatience = 63

func (p *patience) hit() { p.misses, p.used = 0, true }

// ends notes a miss, and reports whether it was one too many.
func (p *patience) ends() bool {
	if p.misses++; p.misses < p.limit {
		return false
	}
	if p.limit = min(2*p.limit+1, mostPatience); p.used {
		p.limit = 0
	}
	p.misses, p.used = 0, false
	return true
}
