package http1

import "math"

// Limits of the chunked coding. Real messages stay within them in both directions; beyond
// them are only attempts to waste a reader's time.
const (
	MaxChunkLine     = 1 << 10 // bytes of one chunk-size line, extensions included, without CRLF
	MaxChunkOverhead = 8 << 10 // bytes of chunk lines not covered by data, see Chunked
)

// Chunked decodes the chunked transfer coding (RFC 9112 section 7.1) from pieces of any
// size. The zero value is ready for one body, with the default limits; Reset makes it ready for the
// next. Do not copy it while in use. It is not safe for concurrent use.
//
// Extensions are skipped and limited: every chunk covers 16 + 2 x size bytes of its line,
// and uncovered bytes must not exceed MaxChunkOverhead. White space around a chunk size is
// refused, including the BWS before ";" that section 7.1.1 tolerates: readers disagree
// about it, and no real sender uses it.
type Chunked struct {
	state          chunkState
	why            Refusal
	digits         uint8 // hexadecimal digits of the size so far
	line           int32 // bytes of the current chunk line
	overhead       int32
	trailerBytes   int32  // limit of the trailer section; 0: not set
	trailerLines   int32  // limit of its lines
	remaining      int64  // the size while it is read, then the bytes of the chunk still to come
	trailerSection []byte // the trailer section as received
	trailers       []Header
}

// maxKeptTrailers is the largest memory for a trailer section that Reset keeps, in bytes.
const maxKeptTrailers = 4 << 10

type chunkState uint8

const (
	atSize chunkState = iota
	atExtension
	atSizeLF
	atData
	atDataCR
	atDataLF
	atTrailers
	atEnd
	atRefused
)

// Next consumes the first n bytes of p and returns payload: data is a part of p, possibly
// empty. Call it again with the rest. n == 0 without an error means that p is empty or that
// the body is done. It never consumes a byte after the end of the body. err is an *Error,
// and every later call returns it again.
//
// A body that ends before Done is truncated; the caller must detect that.
func (c *Chunked) Next(p []byte) (n int, data []byte, err error) {
	for n < len(p) {
		switch c.state {
		case atData:
			k := len(p) - n
			if int64(k) >= c.remaining {
				k = int(c.remaining)
				c.state = atDataCR
			}
			c.remaining -= int64(k)
			return n + k, p[n : n+k : n+k], nil
		case atEnd:
			return n, nil, nil
		case atRefused:
			return n, nil, c.why.Err()
		}
		if why := c.step(p[n]); why != RefusalNone {
			c.state, c.why = atRefused, why
			return n, nil, why.Err()
		}
		n++
	}
	return n, nil, nil
}

// Done reports whether the body is complete: the last chunk and the trailer section were
// read.
func (c *Chunked) Done() bool { return c.state == atEnd }

// Trailers returns the trailers in order, once Done. Those that are not allowed in a
// trailer section are left out, see HeaderName.TrailerForbidden. They are copies, valid
// until Reset.
func (c *Chunked) Trailers() []Header { return c.trailers }

// TakeTrailers makes list the trailers, of a body without chunks whose stream had some. They have the limits
// that Reset set. err is an *Error.
func (c *Chunked) TakeTrailers(list []Header) (err error) {
	bytes := len("\r\n")
	for i := range list {
		bytes += len(list[i].Name) + len(": ") + len(list[i].Value) + len("\r\n")
	}
	if bytes > int(c.trailerBytes) || len(list) > int(c.trailerLines) {
		return RefusalTrailersTooLarge.Err()
	}
	c.trailers = list
	return nil
}

// Reset makes c ready for the next body and keeps its memory, unless that is much. Its trailers are
// limited like headers.
func (c *Chunked) Reset(l Limits) {
	if cap(c.trailerSection) > maxKeptTrailers || cap(c.trailerSection) == 0 {
		c.trailerSection, c.trailers = nil, nil
	}
	*c = Chunked{trailerSection: c.trailerSection[:0], trailers: c.trailers[:0]}
	c.limitTrailers(l)
}

func (c *Chunked) limitTrailers(l Limits) {
	l = l.orDefaults()
	c.trailerBytes, c.trailerLines = int32(min(l.HeaderBytes, math.MaxInt32)), int32(min(l.Headers, math.MaxInt32))
}

// step processes one byte that is not chunk data.
func (c *Chunked) step(b byte) Refusal {
	switch c.state {
	case atSize:
		return c.stepSize(b)
	case atExtension:
		return c.stepExtension(b)
	case atSizeLF:
		if b != '\n' {
			return RefusalBareCR
		}
		return c.beginChunk()
	case atDataCR:
		if b != '\r' {
			return RefusalBadChunk
		}
		c.state = atDataLF
	case atDataLF:
		if b != '\n' {
			return RefusalBadChunk
		}
		c.state = atSize
	case atTrailers:
		return c.stepTrailer(b)
	}
	return RefusalNone
}

func (c *Chunked) stepSize(b byte) Refusal {
	if v := hexValue(b); v >= 0 {
		c.digits++
		if c.digits > 16 || c.remaining >= 1<<59 {
			return RefusalChunkTooLarge
		}
		c.remaining = c.remaining<<4 | int64(v)
		c.line++
		return RefusalNone
	}
	switch {
	case c.digits == 0:
		return RefusalBadChunk
	case b == ';':
		c.state = atExtension
		c.line++
	case b == '\r':
		c.state = atSizeLF
	case b == '\n':
		return RefusalBareLF
	default:
		return RefusalBadChunk
	}
	return RefusalNone
}

func (c *Chunked) stepExtension(b byte) Refusal {
	switch {
	case b == '\r':
		c.state = atSizeLF
		return RefusalNone
	case b == '\n':
		return RefusalBareLF
	case b < 0x20 && b != '\t', b == 0x7f:
		return RefusalControlByte
	}
	c.line++
	if c.line > MaxChunkLine || c.overhead+c.line > MaxChunkOverhead {
		return RefusalChunkExtensions
	}
	return RefusalNone
}

// beginChunk is called after the line of a chunk, with its size in c.remaining.
func (c *Chunked) beginChunk() Refusal {
	c.overhead += c.line
	if c.remaining == 0 {
		c.state = atTrailers
		if c.trailerBytes == 0 {
			c.limitTrailers(Limits{})
		}
		return RefusalNone
	}
	// In two steps, because 2 x size may overflow.
	c.overhead = max(c.overhead-16-int32(min(c.remaining, MaxChunkOverhead))*2, 0)
	c.state, c.digits, c.line = atData, 0, 0
	return RefusalNone
}

func (c *Chunked) stepTrailer(b byte) Refusal {
	if len(c.trailerSection) >= int(c.trailerBytes) {
		return RefusalTrailersTooLarge
	}
	c.trailerSection = append(c.trailerSection, b)
	if b != '\n' {
		return RefusalNone
	}
	n := len(c.trailerSection)
	if n < 2 || c.trailerSection[n-2] != '\r' {
		return RefusalBareLF
	}
	if n > 2 && c.trailerSection[n-3] != '\n' {
		return RefusalNone
	}
	return c.finish()
}

// finish parses the complete trailer section.
func (c *Chunked) finish() Refusal {
	headers, n, why := readHeaders(c.trailers[:0], c.trailerSection, 0, int(c.trailerLines))
	switch {
	case why == RefusalTooManyHeaders:
		return RefusalTrailersTooLarge
	case why != RefusalNone, n != len(c.trailerSection):
		return RefusalBadTrailer
	}
	c.trailers = headers[:0]
	for _, f := range headers {
		if !f.ID.TrailerForbidden() {
			c.trailers = append(c.trailers, f)
		}
	}
	c.state = atEnd
	return RefusalNone
}
