// Package exchange serves one request of a client: the retry loop, the waits, hedging, the
// fallback and the relay of the response. Package proxy reads the request's headers from a
// downstream.Conn and hands both to an Exchange, which the connection reuses for its next request.
//
// The parts of an exchange, each with its own state:
//
//   - Exchange begins and ends the request (exchange.go, fallback.go), and has the retry loop (loop.go).
//   - permit.Admitter gets the attempts admitted.
//   - sender connects the running attempt (connect.go) and sends its request (sender.go). It alone
//     changes which attempt that is.
//   - attempts makes one attempt after another (attempts.go): it reads the response (receive.go), as
//     far as the retry rules must see its body (firstcontent.go), beside a hedge (hedge.go,
//     hedgerace.go).
//   - upload.Upload sends the body and watches the client.
//   - bufferedResponse keeps a failed response while a better one is sought.
//   - relay sends the response that the client gets, by response.Writer.
//
// memory.go has what all of them must do before a buffer goes back to its pool.
package exchange
