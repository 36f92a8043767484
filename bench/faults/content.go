//go:build linux

package main

import (
	"crypto/sha256"
	"fmt"
)

// Fields with which clients and upstream speak of a request.
const (
	fieldID    = "X-Fault-Id"
	fieldSum   = "X-Fault-Sum"   // of a request's body
	fieldWait  = "X-Fault-Wait"  // how long the upstream is to take
	fieldShort = "X-Fault-Short" // of a response: it is announced to be shorter than it is
)

// goodBody is what a request is answered with: it follows from the request alone.
func goodBody(id string) string { return id + " " + sum([]byte(id)) + "\n" }

func sum(body []byte) string { return fmt.Sprintf("%x", sha256.Sum256(body)) }

// framing is how the end of a response is told.
type framing int

const (
	byLength framing = iota
	byChunks
	byClose
	framings
)

// render is a good answer to request id. The chunks are of 16 bytes.
func (f framing) render(id string) []byte {
	head, body := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n", goodBody(id)
	switch f {
	case byChunks:
		out := []byte(head + "Transfer-Encoding: chunked\r\n\r\n")
		for len(body) > 0 {
			n := min(16, len(body))
			out = fmt.Appendf(out, "%x\r\n%s\r\n", n, body[:n])
			body = body[n:]
		}
		return append(out, "0\r\n\r\n"...)
	case byClose:
		return []byte(head + "Connection: close\r\n\r\n" + body)
	}
	return fmt.Appendf(nil, "%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
}
