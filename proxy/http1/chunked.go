package http1

// Bounds of the chunked coding. A body that keeps to them in both directions passes for an honest one; outside them lie only attempts to make
// a reader work for nothing.
const (
	MaxChunkLine     = 1 << 10  // bytes of one chunk-size line, extensions included, without CRLF
	MaxChunkOverhead = 8 << 10  // bytes of chunk lines not paid for by data, see Chunked
	MaxTrailerBytes  = 16 << 10 // the whole trailer section with its final empty line
	MaxTrailers      = 64
)

// Chunked decodes the chunked transfer coding (RFC 9112 section 7.1) from pieces of any size. The zero value is ready for one body; Reset
// makes it ready for the next. Do not copy it while in use. Not for concurrent use.
//
// Extensions are skipped and bounded: every chunk pays for its line with 16 + 2 x size bytes, and unpaid bytes may not exceed
// MaxChunkOverhead. White space around a chunk size is refused, also the BWS that section 7.1.1 wants tolerated before ";":
// readers disagree about it, and nobody sends it.
type Chunked struct {
	state          chunkState
	why            Refusal
	digits         int   // hexadecimal digits of the size so far
	remaining      int64 // size being read, then bytes of the chunk still to come
	line           int   // bytes of the current chunk line
	overhead       int64
	trailerSection []byte // the trailer section as it came
	trailers       []Header
}

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

// Next consumes the first n bytes of p and yields payload: data is a part of p, possibly empty. Call it again with the rest. n == 0 without
// an error means that p is empty or that the body is done. It never consumes a byte after the end of the body. err is an *Error and
// stays.
//
// A body that ends before Done is cut off: to notice that is the client's part.
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

// Done reports whether the body is whole: the last chunk and the trailer section were read.
func (c *Chunked) Done() bool { return c.state == atEnd }

// Trailers are the trailer fields in their order, once Done. Those that must not stand in a trailer are left out, see
// Name.TrailerForbidden. They are copies, valid until Reset.
func (c *Chunked) Trailers() []Header { return c.trailers }

// Reset makes c ready for the next body and keeps its memory.
func (c *Chunked) Reset() {
	*c = Chunked{trailerSection: c.trailerSection[:0], trailers: c.trailers[:0]}
}

// step takes one byte that is not chunk data.
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
	if c.line > MaxChunkLine || c.overhead+int64(c.line) > MaxChunkOverhead {
		return RefusalChunkExtensions
	}
	return RefusalNone
}

// beginChunk is called after the line of a chunk, with its size in c.left.
func (c *Chunked) beginChunk() Refusal {
	c.overhead += int64(c.line)
	if c.remaining == 0 {
		c.state = atTrailers
		return RefusalNone
	}
	// Subtracted in two steps: 2 x size may not fit.
	c.overhead = max(c.overhead-16-min(c.remaining, MaxChunkOverhead)*2, 0)
	c.state, c.digits, c.line = atData, 0, 0
	return RefusalNone
}

func (c *Chunked) stepTrailer(b byte) Refusal {
	if len(c.trailerSection) == MaxTrailerBytes {
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

// finish reads the whole trailer section.
func (c *Chunked) finish() Refusal {
	headers, n, why := readHeaders(c.trailers[:0], c.trailerSection, 0, MaxTrailers)
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
