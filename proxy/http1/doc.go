// Package http1 reads and writes HTTP/1.1 messages as bytes: header sections, body framing, the chunked coding and trailers.
// It owns no socket, clock or goroutine. Bytes come in, spans of those same bytes come out.
//
// Begin with Request.Parse and Response.Parse. Both take whatever bytes have arrived so far and answer with the length of the
// head, with 0 when more bytes are needed, or with an *Error that says why the message cannot be trusted and which status to
// answer with. Framing then says how the body is delimited; for BodyChunked feed the bytes to a Chunked. To write, use the
// Append functions: they append to a slice that the client keeps, and never allocate when it has room.
//
// Three promises hold everywhere.
//
// The parser is strict. Wherever two readers of one message could disagree on where it ends (a bare LF, a folded line,
// Content-Length beside Transfer-Encoding, a space before a colon), the message is refused and never repaired; docs of
// Refusal list every case. On the same bytes it never accepts what net/http refuses and never reads another body length;
// fuzz targets hold that.
//
// Nothing is copied. Fields keep their order, case and duplicates, and every []byte in a parsed head points into the buffer
// given to Parse: it is valid until that buffer is changed. Only trailers are copied, since they may arrive in pieces.
//
// Everything is bounded and nothing is allocated in steady state: a Request, Response or Chunked that is used again keeps its slices.
// Values of these types belong to one goroutine at a time.
//
// What to avoid: holding a span after the buffer was compacted or returned to a pool; changing the bytes of Path, which may be
// shared by all requests; and forwarding Content-Length or Transfer-Encoding fields as they came instead of writing them
// from Framing with AppendFraming.
package http1
