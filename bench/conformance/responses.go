package conformance

import "strings"

// The responses, by what they test; the upstream closes after each.
const (
	ok        = "HTTP/1.1 200 OK\r\n"
	okChunked = ok + "Transfer-Encoding: chunked\r\n\r\n"
)

var responseFamilies = []family{
	{"9112 4", "status line", mustForward, hole + "\r\nContent-Length: 2\r\n\r\nok", []string{"HTTP/1.1 200 OK", "HTTP/1.1 200 ", "HTTP/1.0 200 OK", "HTTP/1.1 299 x", "HTTP/1.1 404 Not Found", "HTTP/1.1 500 \xe9", "HTTP/1.1 200 a\tb", "HTTP/1.1 599 x", "HTTP/1.1 418 I'm a teapot"}},
	{"9110 15", "status codes from 600 to 999", mustForward, "HTTP/1.1 " + hole + "\r\nContent-Length: 2\r\n\r\nok", []string{"600 x", "999 Request denied", "700"}},
	{"9112 4", "status line: lenient forms", mayEither, hole + "\r\nContent-Length: 2\r\n\r\nok", []string{"HTTP/1.1 200", "HTTP/1.1  200 OK", "HTTP/1.2 200 OK", "HTTP/1.1\t200 OK", "HTTP/1.1 200\tOK"}},
	{"9112 4", "status line: malformed", mustRefuse, hole + "\r\nContent-Length: 2\r\n\r\nok",
		[]string{"HTTP/1.1", "HTTP/1.1 ", "HTTP/1.1 20 OK", "HTTP/1.1 2000 OK", "HTTP/1.1 abc OK", "HTTP/1.1 -20 OK", "HTTP/1.1 +20 OK", "HTTP/1.1 2 0 OK", "http/1.1 200 OK", "HTTP/2.0 200 OK", "HTTP/3 200 OK", "HTTP/0.9 200 OK", "HTTP/1.1 000 x", "HTTP/1.1 099 x", "200 OK", "hello", "\x00", "GET / HTTP/1.1", "HTTP/1.1 200 a\x00b", "HTTP/1.1 200 a\rb", "HTTP /1.1 200 OK", " HTTP/1.1 200 OK", "HTTP/1.x 200 OK", "ICY 200 OK"}},
	{"9110 5.1", "field name: not a token", mustRefuse, ok + "X" + hole + "A: v\r\nContent-Length: 2\r\n\r\nok", []string{"(", ")", ",", "/", ";", "=", "@", "[", "{", `"`, " ", "\t", "\x00", "\x01", "\x7f", "\x80"}},
	{"9112 5.1", "field line: malformed", mustRefuse, ok + hole + "\r\nContent-Length: 2\r\n\r\nok", []string{": v", "X-A", "X-A v", " X-A: v", "X-A: a\rb", "X-A: a\r"}},
	{"9112 5.1", "white space before the colon", mayEither, ok + hole + "\r\n\r\nok", []string{"X-A : v\r\nContent-Length: 2", "Content-Length : 2", "Transfer-Encoding : chunked"}},
	{"9110 5.5", "field value: control bytes", mayEither, ok + "X-A: a" + hole + "b\r\nContent-Length: 2\r\n\r\nok", controls},
	{"9112 5.2", "folded lines", mayEither, ok + hole + "\r\nContent-Length: 2\r\n\r\nok", []string{"X: a\r\n b", "X: a\r\n\tb", "X:\r\n a"}},
	{"9112 6.3", "Content-Length", mustForward, ok + "Content-Length:" + hole + "\r\n\r\nok", []string{"2", " 2 ", "\t2"}},
	{"9112 6.3", "Content-Length: doubtful values", mayEither, ok + "Content-Length: " + hole + "\r\n\r\nok", []string{"02", "2, 2", "2\r\nContent-Length: 2"}},
	{"9112 6.3", "Content-Length: not a number", mustRefuse, ok + "Content-Length: " + hole + "\r\n\r\nok", []string{"+2", "-2", "2,3", "2 2", "0x2", "2.0", "", "a", "2a", "9223372036854775808", "99999999999999999999999", "2\r\nContent-Length: 3", "3\r\nContent-Length: 2", `"2"`, "2;"}},
	{"9112 6.3", "Transfer-Encoding", mustForward, ok + "Transfer-Encoding:" + hole + "\r\n\r\n2\r\nok\r\n0\r\n\r\n", []string{"chunked", " Chunked", "  chunked  "}},
	{"9112 6.3", "Transfer-Encoding: others", mayEither, ok + "Transfer-Encoding: " + hole + "\r\n\r\n2\r\nok\r\n0\r\n\r\n", []string{"gzip", "gzip, chunked", "identity", "chunked, gzip", "chunked, chunked", "xchunked", "chunked;q=1", "", "chunked\r\nTransfer-Encoding: chunked", "chunked\r\nTransfer-Encoding: identity", "\x0bchunked"}},
	{"9112 6.3", "Transfer-Encoding and Content-Length", mayEither, ok + hole + "\r\n\r\n2\r\nok\r\n0\r\n\r\n", []string{"Transfer-Encoding: chunked\r\nContent-Length: 2", "Content-Length: 2\r\nTransfer-Encoding: chunked", "Content-Length: 12\r\nTransfer-Encoding: chunked"}},
	{"9112 6.1", "Transfer-Encoding from HTTP/1.0", mayEither, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", nil},
	{"9112 7.1", "chunks", mustForward, okChunked + hole, []string{"2\r\nok\r\n0\r\n\r\n", "02\r\nok\r\n0\r\n\r\n", "0\r\n\r\n", "1\r\no\r\n1\r\nk\r\n0\r\n\r\n", "2;a=b\r\nok\r\n0\r\n\r\n", "2\r\nok\r\n0\r\nX-T: 1\r\n\r\n"}},
	{"9112 7.1", "chunks: malformed (the body is cut off)", mustCut, okChunked + hole + "\r\nok\r\n0\r\n\r\n", []string{"g", "0x2", "+2", "-2", "", "FFFFFFFFFFFFFFFFF", "2,", "2\x00"}},
	{"9112 7.1", "chunks: line ends (the body is cut off)", mustCut, okChunked + hole, []string{"2\nok\r\n0\r\n\r\n", "2\r\nok\n0\r\n\r\n", "2\r\nokx\r\n0\r\n\r\n", "2\r\nok0\r\n\r\n", "2\r\nok\r\n", "2\r\no", "2\r\nok\r\n0\r\n", "2\r\nok\r\n0\r\nX T: 1\r\n\r\n"}},
	{"9112 6.3", "body that ends with the connection", mustForward, hole + "\r\nok", []string{ok, "HTTP/1.0 200 OK\r\n", ok + "Connection: close\r\n"}},
	{"9112 8", "body that is cut off", mustCut, ok + "Content-Length: " + hole + "\r\n\r\nok", words("3 1000")},
	{"9112 6.3", "responses without a body", mustForward, "HTTP/1.1 " + hole + "\r\n\r\n", []string{"204 No Content", "304 Not Modified", "304 Not Modified\r\nContent-Length: 5", "205 Reset\r\nContent-Length: 0"}},
	{"9110 15.2", "informational responses first", mustForward, hole + ok + "Content-Length: 2\r\n\r\nok", []string{"HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 x\r\n\r\n"}},
	{"9110 15.2.2", "upgrade that was not requested", mustRefuse, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", nil},
	{"9112 2.2", "all lines end with LF alone", mustForward, hole, []string{"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "HTTP/1.1 200 OK\nX:  a \nContent-Length: 2\n\nok", "HTTP/1.1 404\nTransfer-Encoding: chunked\n\n2\r\nok\r\n0\r\n\r\n", "HTTP/1.0 200 OK\n\nok"}},
	{"9112 2.2", "some lines end with LF alone", mayEither, hole, []string{"HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\nok", "HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nX: a\nY: b\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\nX: a\n b\nContent-Length: 2\n\nok", "HTTP/1.1 200 OK\nX: a\rb\nContent-Length: 2\n\nok", "HTTP/1.1 200 OK\nX: a\nContent-Length: 2\n\r\nok"}},
	{"9112 8", "headers that are cut off", mustRefuse, hole, []string{"HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 200", "", ok, ok + "Content-Length: 2\r\n"}},
	{"9110 5.4", "limits", mustRefuse, ok + hole + "\r\n\r\n", []string{strings.Repeat("X-A: v\r\n", 300) + "Content-Length: 0", "X-A: " + strings.Repeat("v", 1<<18)}},
	{"9110 7.6.1", "Connection and the headers that it names", mustForward, ok + hole + "\r\nContent-Length: 2\r\n\r\nok", []string{"Connection: X-A\r\nX-A: 1", "Keep-Alive: timeout=5", "Proxy-Authenticate: x", "Trailer: X", "Connection: content-length", "Upgrade: h2c\r\nConnection: upgrade"}},
	{"9112 9.2", "bytes after the response", mustForward, ok + "Content-Length: 2\r\n\r\nok" + hole, []string{"x", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", "\r\n"}},
}
