// Package exchange serves one request of a client: the loop of attempts, waits, hedging, the
// fallback and the relay of the response. Package proxy reads the request's headers from a
// downstream.Conn and hands both to an Exchange, which the connection reuses for its next request.
//
// The way of a request: Exchange.Serve finds the route; loop.go asks for admission, makes an
// attempt, reads its response headers and lets the policy decide; wait.go waits on the client's
// connection; relay.go sends the response; report.go counts one outcome.
package exchange
