// Package eventstream reads the beginning of a text/event-stream response (WHATWG HTML, section
// 9.2 "Server-sent events") up to its first event with content. Start with Reader.Read.
//
// The API of a language model answers 200 before it knows whether it can generate anything. An
// overload is then an event of the stream. Until the first content nothing has reached a user, so
// the request may be retried like any other that was rejected.
//
// An event that is not known to be without content has content, so no other stream is held back.
package eventstream

import (
	"bytes"
	"math"
)

// MaxHeld is how much of a stream is held back at most, in bytes. What comes before the first
// content is a few events of some hundred bytes each.
const MaxHeld = 16 << 10

// Verdict is what the beginning of a stream has shown so far.
type Verdict uint8

// The verdicts, a closed set.
const (
	Pending Verdict = iota // no content and no error yet
	Content                // an event with content, or of a kind that is not known
	Failed                 // an error before any content
)

// maxRead is how far into a stream a Reader looks, in bytes.
const maxRead = math.MaxUint16

// Reader goes through the events of one stream. What is beyond maxRead does not exist for it. It is
// small, as each connection has one. The zero value is ready for a new stream. It is not safe for
// concurrent use.
//
// Whatever the pieces in which a stream comes, it looks at each byte a fixed number of times.
type Reader struct {
	event, line uint16 // where the event and the line begin that are not yet whole
	searched    uint16 // where the search for the end of that line goes on
	start, end  uint16 // the data of the failed event
	status      uint16 // that it stands for
}

// Status returns the status that the error stands for, in [400, 599]. Call it after Failed.
func (r *Reader) Status() int { return int(r.status) }

// Error returns the part of the stream that is the data of the failed event. If the data has several
// lines, line ends, field names and comments are in it. Call it after Failed.
func (r *Reader) Error(stream []byte) []byte { return stream[r.start:r.end] }

// Read takes all that has come of the stream, from its first byte on, and returns what that shows.
// Each call must give at least what the last one gave. Events that are not whole count as not come.
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

// findEnd moves r.line behind the empty line that ends the event. It reports false if that has not come.
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

// event is one event. Its data has the lines joined by newlines.
type event struct {
	name, data []byte
	start, end int  // the span of the data
	joined     bool // data is a copy, as it has several lines
}

// parse returns the event b, whose lines are whole.
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

// cutLine returns the first line of b and its length with its end; 0 if the end has not come. A
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

// add adds a line that stands at the offset at. Comments and fields that are not known mean nothing.
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
