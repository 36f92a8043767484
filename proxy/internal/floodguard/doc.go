// Package floodguard bounds the cost of an HTTP/2 client's frames. net/http, which does the
// framing, limits neither frames that request nothing nor requests that their client ends at once.
//
// A client that sends too much is slowed down rather than disconnected, so that its other streams
// continue. A client that does not stop gets GOAWAY.
package floodguard
