// Package http2 is HTTP/2 with clients and with upstreams (RFC 9113, RFC 7541, RFC 8441).
//
// A [Conn] is the connection of a client, and an [Upstream] the one to an upstream. What they share is a link,
// and what their streams share a flow. A Conn reads frames on one goroutine. Each request becomes a [Stream],
// which a worker serves; a request to an upstream is an [UpstreamStream].
//
// A stream reads as records of header sections, which http1.Request.Compose and http1.Response.Compose read,
// and the bytes of the body. Header sections are written as blocks (wire.Block).
//
// What is promised:
//
//   - A slow stream holds up no other: the window of the connection is as large as it can be, and that of
//     a stream is credited as its reader takes bytes.
//   - A message that was cut off is never ended properly, and a value with CR, LF or NUL ends the stream.
//   - Whatever the client sends, a connection holds a bounded amount of memory: header blocks, bodies up
//     to their windows, and frames that wait to be written.
//   - A worker holds the place of its stream until it has ended, also if the client has reset the stream.
package http2
