// Package bridge answers one question: how does an HTTP/2 stream look as an
// HTTP/1.1 connection?
//
// The retry loop reads and writes HTTP/1.1 on a net.Conn, with deadlines. A
// [Client] is such a connection for one request of an http.Handler: what is
// read from it is the request in HTTP/1.1, what is written to it goes to the
// http.ResponseWriter. A [Stream] is the same towards an upstream: what is
// written to it is sent by an http.ClientConn, and it reads as the response. So there is one loop, one parser that judges every head,
// and one set of rules, whatever the client speaks. HTTP/2's own framing,
// header compression and flow control are the standard library's.
//
// What is promised:
//
//   - Flow control reaches through: at most [bufferLimit] bytes of a body wait
//     here, then whoever writes waits.
//   - A message that was cut off is never ended properly on the other side.
//   - Nothing is written into a header section that could begin another field or another
//     request: a value with CR, LF or NUL ends the stream.
//
// The package has no clock of its own beyond deadlines, and no logger.
package bridge
