package peers

import (
	"fmt"
	"strings"
)

// RequestText is a request line with the given header lines.
func RequestText(line string, fields ...string) string {
	return strings.Join(append([]string{line}, fields...), "\r\n") + "\r\n\r\n"
}

// PostChunked is a POST whose body comes in pieces of unknown length.
const PostChunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"

// WithoutAdded takes the fields that the proxy adds to every request off a head.
func WithoutAdded(headers string) string {
	var kept []string
	for line := range strings.SplitSeq(headers, "\r\n") {
		name, _, _ := strings.Cut(line, ":")
		switch name {
		case "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Request-Id", "X-Retryproxy-Attempt":
		default:
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\r\n")
}

// FieldOf returns the value of a header, or nothing if there is none.
func FieldOf(headers, name string) string {
	for line := range strings.SplitSeq(headers, "\r\n") {
		if n, v, ok := strings.Cut(line, ":"); ok && strings.EqualFold(n, name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Get is a GET of path.
func Get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: app.test\r\n\r\n" }

// Post is a POST with that body.
func Post(body string) string {
	return fmt.Sprintf("POST /p HTTP/1.1\r\nHost: app.test\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// An upgrade, and responses that agree to it.
var (
	UpgradeRequest = RequestText("GET /chat HTTP/1.1", "Host: a", "Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
	Switching101   = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n"
	Switched       = "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
)
