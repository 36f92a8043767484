// Package bridge presents the HTTP/2 stream of an upstream as an HTTP/1.1 connection.
//
// The retry loop reads and writes HTTP/1.1 on a net.Conn, with deadlines. An [UpstreamStream] is such a
// connection: what is written to it is sent by an http.ClientConn, and it reads as the response. HTTP/2's
// framing, header compression and flow control towards upstreams are the standard library's.
//
// What is promised:
//
//   - Flow control passes through: at most [bufferLimit] bytes of a body wait
//     here, then the writer blocks.
//   - A message that was cut off is never ended properly on the other side.
//   - A value with CR, LF or NUL ends the stream, so it cannot begin another header or request.
//
// The package has no clock except for deadlines, and no logger.
package bridge
