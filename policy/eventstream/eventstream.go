// Package eventstream reads the beginning of a text/event-stream response (WHATWG HTML, section 9.2
// "Server-sent events") up to its first event with content. Start with Reader.Read.
//
// The API of a language model answers 200 before it knows whether it can generate anything. An
// overload is then an event of the stream. Nothing has reached a user before the first content, so
// the request may be retried like any other that was rejected.
//
// Unknown events count as content, so other streams are not held back.
package eventstream

import "bytes"

// MaxHeld is the maximum number of bytes of a stream that are held back. The events before the first
// content usually have some hundred bytes each. But those of OpenAI's Responses API repeat the
// request's instructions and tools, once in response.created and once in response.in_progress.
const MaxHeld = 256 << 10

// Verdict is what the beginning of a stream has shown so far.
type Verdict uint8

// The verdicts, a closed set.
const (
	Pending Verdict = iota // no content and no error yet
	Content                // an event with content, or of an unknown kind
	Failed                 // an error before any content
)

// maxRead is how many bytes of a stream a Reader reads: MaxHeld and the piece that exceeds it.
const maxRead = MaxHeld + 64<<10

// Reader scans the events of one stream, up to maxRead. It is small, because each connection has
// one. The zero value is ready for a new stream. It is not safe for concurrent use.
//
// It reads each byte a fixed number of times, however the stream is split.
type Reader struct {
	event, line uint32 // start of the incomplete event, after comments, and of its incomplete line
	searched    uint32 // where the search for the end of that line continues
	start, end  uint32 // the data of the failed event
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
		r.begin(uint32(len(byteOrderMark)))
	}
	for r.findEnd(stream) {
		begin := r.event
		r.event = r.line
		if v := r.judge(parse(stream[begin:r.event]), begin); v != Pending {
			return v
		}
	}
	return Pending
}

// ReadEnd takes the whole stream, after it has ended and Read has returned Pending. It returns Failed
// for an error that an empty line should have followed, or that is a JSON text without the form of an
// event. Any other stream counts as one with content.
func (r *Reader) ReadEnd(stream []byte) Verdict {
	stream = stream[:min(len(stream), maxRead)]
	rest := stream[r.event:]
	e := parse(rest)
	if text := bytes.TrimSpace(rest); len(e.data) == 0 && len(text) > 0 && (text[0] == '{' || text[0] == '[') {
		e.data, e.start = text, bytes.IndexByte(rest, text[0])
		e.end = e.start + len(text)
	}
	if r.judge(e, r.event) == Failed {
		return Failed
	}
	return Content
}

// judge returns what the event that begins at begin shows. If it is an error, judge keeps its
// position and status.
func (r *Reader) judge(e event, begin uint32) Verdict {
	verdict, status := e.judge()
	if verdict == Failed {
		r.status, r.start, r.end = uint16(status), begin+uint32(e.start), begin+uint32(e.end)
	}
	return verdict
}

// begin sets the start of the next event.
func (r *Reader) begin(at uint32) { r.event, r.line, r.searched = at, at, at }

// IsBetweenEvents reports whether the stream, as passed to Read, ends between two events or with a
// comment. Nothing that it has shown so far can then become an error.
func (r *Reader) IsBetweenEvents(stream []byte) bool {
	return int(r.event) == len(stream)
}

// findEnd moves r.line past the empty line that ends the event. It returns false if that is
// missing. It also moves r.event past the comments before the event.
func (r *Reader) findEnd(stream []byte) bool {
	for {
		r.skipLF(stream)
		line, size := cutLine(stream[r.searched:])
		if size == 0 {
			r.searched += uint32(len(line))
			return false
		}
		begin, empty := r.line, r.searched == r.line && len(line) == 0
		r.searched += uint32(size)
		r.line = r.searched
		if empty {
			return true
		}
		if r.event == begin && stream[begin] == ':' {
			r.event = r.line
		}
	}
}

// skipLF skips the second half of a CRLF whose first half has ended a line already.
func (r *Reader) skipLF(stream []byte) {
	if at := r.line; at > 0 && r.searched == at && int(at) < len(stream) && stream[at-1] == '\r' && stream[at] == '\n' {
		if r.event == at {
			r.event++
		}
		r.line, r.searched = at+1, at+1
	}
}

// event is one event. The lines of its data are joined by newlines.
type event struct {
	name, data []byte
	start, end int  // position of the data
	joined     bool // data is a copy, because it has several lines
}

// parse returns the event b. Its last line may lack its end.
func parse(b []byte) event {
	var e event
	for n := 0; n < len(b); {
		line, size := cutLine(b[n:])
		e.add(line, n)
		if size == 0 { // cut off by the end of the stream
			break
		}
		n += size
	}
	return e
}

var byteOrderMark = []byte("\ufeff")

// cutLine returns the first line of b and its length with the line end; 0 if the end is missing. A
// CR at the end of b ends the line. If a LF follows, it belongs to the same line end.
func cutLine(b []byte) (line []byte, size int) {
	i := bytes.IndexAny(b, "\r\n")
	switch {
	case i < 0:
		return b, 0
	case b[i] == '\r' && i+1 < len(b) && b[i+1] == '\n':
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
