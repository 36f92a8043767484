// Package eventstream reads the beginning of a text/event-stream response (WHATWG HTML, section 9.2
// "Server-sent events") up to its first event with content. Start with Reader.Read.
//
// The API of a language model answers 200 before it knows whether it can generate anything. An
// overload is then an event of the stream. Nothing has reached a user before the first content, so
// the request may be retried like any other that was rejected.
//
// Unknown events count as content, so other streams are not held back.
package eventstream

import (
	"bytes"
	"math"
)

// MaxHeld is the maximum number of bytes of a stream that are held back. A few events of some
// hundred bytes each precede the first content.
const MaxHeld = 16 << 10

// Verdict is what the beginning of a stream has shown so far.
type Verdict uint8

// The verdicts, a closed set.
const (
	Pending Verdict = iota // no content and no error yet
	Content                // an event with content, or of an unknown kind
	Failed                 // an error before any content
)

// maxRead is how many bytes of a stream a Reader reads.
const maxRead = math.MaxUint16

// Reader scans the events of one stream, up to maxRead. It is small, because each connection has
// one. The zero value is ready for a new stream. It is not safe for concurrent use.
//
// It reads each byte a fixed number of times, however the stream is split.
type Reader struct {
	event, line uint16 // start of the incomplete event and of its incomplete line
	searched    uint16 // where the search for the end of that line continues
	start, end  uint16 // the data of the failed event
	status      uint16 // the status that the error stands for
}

// Status returns the status that the error stands for, in [400, 599]. Call it after Failed.
func (r *Reader) Status() int { return int(r.status) }

// Error returns the data of the failed event as a part of the stream. If the data has several
// lines, this includes line ends, field names and comments. Call it after Failed.
func (r *Reader) Error(stream []byte) []byte { return stream[r.start:r.end] }

// Read takes everything received so far, from the first byte of the stream, and returns what it
// shows. Each call must pass at least the bytes of the previous call. Incomplete events are
// ignored.
func (r *Reader) Read(stream []byte) Verdict {
	stream = stream[:min(len(stream), maxRead)]
	if r.line == 0 && bytes.HasPrefix(stream, byteOrderMark) {
		r.event, r.line = uint16(len(byteOrderMark)), uint16(len(byteOrderMark))
		r.searched = r.line
	}
	for r.findEnd(stream) {
		begin := r.event
		r.event = r.line
		e := parse(stream[begin:r.event])
		switch verdict, status := e.judge(); verdict {
		case Content:
			return Content
		case Failed:
			r.status, r.start, r.end = uint16(status), begin+uint16(e.start), begin+uint16(e.end)
			return Failed
		}
	}
	return Pending
}

// IsBetweenEvents reports whether the stream, as passed to Read, ends between two events or with a
// comment. Nothing that it has shown so far can then become an error.
func (r *Reader) IsBetweenEvents(stream []byte) bool {
	if len(stream) > maxRead {
		return false
	}
	for rest := stream[r.event:]; len(rest) > 0; {
		_, size := cutLine(rest)
		if size == 0 || rest[0] != ':' {
			return false
		}
		rest = rest[size:]
	}
	return true
}

// findEnd moves r.line past the empty line that ends the event. It returns false if that is
// missing.
func (r *Reader) findEnd(stream []byte) bool {
	for {
		line, size := cutLine(stream[r.searched:])
		if size == 0 {
			r.searched += uint16(len(line))
			return false
		}
		empty := r.searched == r.line && len(line) == 0
		r.searched += uint16(size)
		r.line = r.searched
		if empty {
			return true
		}
	}
}

// event is one event. The lines of its data are joined by newlines.
type event struct {
	name, data []byte
	start, end int  // position of the data
	joined     bool // data is a copy, because it has several lines
}

// parse returns the event b, which ends with a complete line.
func parse(b []byte) event {
	var e event
	for n := 0; n < len(b); {
		line, size := cutLine(b[n:])
		if size == 0 { // the CR of an empty line
			break
		}
		e.add(line, n)
		n += size
	}
	return e
}

var byteOrderMark = []byte("\ufeff")

// cutLine returns the first line of b and its length with the line end; 0 if the end is missing. A
// CR at the end of b may be half of a CRLF.
func cutLine(b []byte) (line []byte, size int) {
	i := bytes.IndexAny(b, "\r\n")
	switch {
	case i < 0:
		return b, 0
	case b[i] == '\r' && i+1 == len(b):
		return b[:i], 0
	case b[i] == '\r' && b[i+1] == '\n':
		return b[:i], i + 2
	}
	return b[:i], i + 1
}

// add adds a line that begins at offset at. Comments and unknown fields are ignored.
func (e *event) add(line []byte, at int) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		e.name = value
	case "data":
		e.end = at + len(line)
		if e.data == nil {
			e.data, e.start = value, e.end-len(value)
			return
		}
		if !e.joined {
			e.data, e.joined = bytes.Clone(e.data), true
		}
		e.data = append(append(e.data, '\n'), value...)
	}
}
