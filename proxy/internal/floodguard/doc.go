// Package floodguard bounds what an HTTP/2 client's frames may cost. net/http, which does the
// framing, limits neither frames that ask for nothing nor requests that their client ends at once.
//
// A client that sends too much is slowed down rather than disconnected, so that its other streams
// go on. One that does not stop is told to go away.
package floodguard
