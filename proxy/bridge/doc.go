// Package bridge presents an HTTP/2 stream as an HTTP/1.1 connection.
//
// The retry loop reads and writes HTTP/1.1 on a net.Conn, with deadlines. A [ClientStream] is such
// a connection for one request of an http.Handler. It reads as the request in HTTP/1.1, and what
// is written to it goes to the http.ResponseWriter. An [UpstreamStream] is the same towards an
// upstream: what is written to it is sent by an http.ClientConn, and it reads as the response. So
// one loop, one parser for all headers, and one set of rules serve every protocol of the client.
// HTTP/2's framing, header compression and flow control are the standard library's.
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
