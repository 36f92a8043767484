// Package http1 parses and writes HTTP/1.1 messages as bytes: header sections, body
// framing, the chunked coding and trailers. It owns no socket, clock or goroutine. It takes
// bytes and returns spans of those same bytes.
//
// Begin with Request.Parse and Response.Parse. Both take all bytes that have arrived so
// far. They return the length of the header section, 0 if more bytes are needed, or an
// *Error with the reason for the refusal and the status to respond with. Framing then tells
// how the body is delimited; for BodyChunked pass the bytes to a Chunked. To write, use the
// Append functions: they append to a slice that the caller owns, and do not allocate if it
// has room.
//
// Three promises hold everywhere.
//
// The parser is strict. If two readers of one message could disagree on where it ends (a
// bare LF, a folded line, Content-Length beside Transfer-Encoding, a space before a colon),
// the message is refused and never repaired; Refusal lists every case. On the same bytes it
// never accepts what net/http refuses and never reads another body length. Fuzz targets
// check that.
//
// Nothing is copied. Headers keep their order, case and duplicates. Every []byte in a
// parsed header section points into the buffer passed to Parse, and is valid until that
// buffer changes. Only trailers are copied, since they may arrive in pieces.
//
// Everything is limited, and nothing is allocated in steady state: a reused Request,
// Response or Chunked keeps its slices. Values of these types are not safe for concurrent
// use.
//
// What to avoid: keeping a span after the buffer was compacted or returned to a pool;
// changing the bytes of Path, which may be shared by all requests; and forwarding
// Content-Length or Transfer-Encoding headers as received instead of writing them from
// Framing with AppendFraming.
package http1
