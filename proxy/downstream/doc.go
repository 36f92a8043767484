// Package downstream has the connections of clients as bytes: the read buffer, deadlines, waits
// without a buffer, and the ways to end one. It parses nothing and knows no requests; package proxy
// reads requests from a Conn, and answers on it.
package downstream
