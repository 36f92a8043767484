package conformance

import (
	"strings"
)

// The requests, by what they test. hole stands for each variant in turn.
const (
	get   = "GET / HTTP/1.1\r\nHost: a.example\r\n"
	post  = "POST / HTTP/1.1\r\nHost: a.example\r\n"
	chunk = post + "Transfer-Encoding: chunked\r\n\r\n"
	hello = "5\r\nhello\r\n0\r\n\r\n"
)

var controls = strings.Split("\x00 \x01 \x02 \x03 \x04 \x05 \x06 \x07 \x08 \x0b \x0c \x0e \x0f \x10 \x11 \x12 \x13 \x14 \x15 \x16 \x17 \x18 \x19 \x1a \x1b \x1c \x1d \x1e \x1f \x7f", " ")

var requestFamilies = []family{
	{"9110 9.1", "method: any token", mustForward, hole + " / HTTP/1.1\r\nHost: a.example\r\n\r\n",
		words("GET POST PUT DELETE OPTIONS TRACE PATCH PROPFIND M-SEARCH get Get X !#$%&'*+-.^_`|~ VERSION-CONTROL")},
	{"9110 9.1", "method: what is no token", mustRefuse, hole + " / HTTP/1.1\r\nHost: a.example\r\n\r\n",
		[]string{"", "G@T", "GE(T", "GE)T", "G\x00T", "G\x7fT", "G\xc9T", `"GET"`, "GET/", "G,T", "G;T", "{GET}", "[GET]", "G:T", "<GET>", "G=T", "G?T", `G\T`}},
	{"9110 9.3.6", "CONNECT: no tunnel to elsewhere", mustRefuse, "CONNECT " + hole + " HTTP/1.1\r\nHost: a.example\r\n\r\n", words("a.example:443 a.example / http://a.example/ [::1]:80")},
	{"9112 3", "request line: one SP between its parts", mayEither, hole + "\r\nHost: a.example\r\n\r\n",
		[]string{"GET  / HTTP/1.1", "GET\t/ HTTP/1.1", "GET /  HTTP/1.1", "GET /\tHTTP/1.1", "GET / HTTP/1.1 ", "GET / HTTP/1.1\t", "GET /\x0bHTTP/1.1", "GET /\x0cHTTP/1.1", " GET / HTTP/1.1", "\tGET / HTTP/1.1"}},
	{"9112 3", "request line: three parts", mustRefuse, hole + "\r\nHost: a.example\r\n\r\n", []string{"GET / x HTTP/1.1", "GET /", "GET HTTP/1.1", "GET", "/ HTTP/1.1", "GET / HTTP/1.1 x", ":", "GET /a b HTTP/1.1"}},
	{"9112 2.3", "version", mustRefuse, "GET / " + hole + "\r\nHost: a.example\r\n\r\n",
		[]string{"HTTP/2.0", "HTTP/3.0", "HTTP/0.9", "http/1.1", "HTTP/1", "HTTP/1.", "HTTP/1.10", "HTTP/01.1", "HTTP/1,1", "HTTP/1.x", "HTTPS/1.1", "HTTP/1.1x", "HTTP/-1.1", "HTP/1.1", "HTTP/11", "HTTP-1.1", "HTTP/ 1.1", "HTTP/1.1.1", "HTTP/.1", "HTTP/9.9"}},
	{"9112 2.3", "version: a higher minor", mayEither, "GET / HTTP/1." + hole + "\r\nHost: a.example\r\n\r\n", words("2 3 9")},
	{"9112 2.3", "version 1.0", mustForward, "GET / HTTP/1.0\r\n" + hole + "\r\n", []string{"", "Host: a.example\r\n", "Host: a.example\r\nConnection: keep-alive\r\n", "Connection: close\r\n"}},
	{"9112 3.2", "target", mustForward, "GET " + hole + " HTTP/1.1\r\nHost: a.example\r\n\r\n",
		words("/a/b /? /?q=1 /a;b=c /%41 /%e2%82%ac /~u /a//b /. /a/../b /%2e%2e/ /!$&'()*+,;=:@ /?a=/?&b // /a?b?c http://a.example/ http://a.example HTTP://a.example/x http://a.example:80/ http://a.example?q")},
	{"9112 3.2", "target: bytes that are no URI's and have one reading", mustForward, "GET /" + hole + " HTTP/1.1\r\nHost: a.example\r\n\r\n", []string{`"`, "<x>", "{x}", "|", "^", "`", "[x]", `?q={"a":["b",1]}`, "caf\xc3\xa9", "?q=\xc3\xa9", "\xe4\xb8\xad/\xf0\x9f\x98\x80"}},
	{"9112 3.2", "target: other bytes that are no URI's", mayEither, "GET /" + hole + " HTTP/1.1\r\nHost: a.example\r\n\r\n", []string{`\`, "\xff", "%", "%4", "%zz", "%00", "#frag", "a#", "\xc3\xa9#", "\xe9", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xe2\x82", "\xc2\x85"}},
	{"9112 3.2", "target: control bytes", mustRefuse, "GET /" + hole + " HTTP/1.1\r\nHost: a.example\r\n\r\n", controls},
	{"9112 3.2", "target: in none of the forms", mustRefuse, "GET " + hole + " HTTP/1.1\r\nHost: a.example\r\n\r\n",
		[]string{"a", "*", "?q", "a.example:80", "ftp://a.example/", "http:///x", "http://", "mailto:x", "http:/x", "http://a.example:x/", "http://a.example:99999/", "http://[::1/", "://x", "http//a.example/"}},
	{"9110 4.2.4", "target: user information", mayEither, "GET http://" + hole + "a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", words("u@ u:p@ @ a.example@")},
	{"9112 3.2.4", "target: asterisk", mustForward, "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", nil},
	{"9112 3.2.2", "absolute target and another Host", mustForward, "GET http://a.example/x HTTP/1.1\r\nHost: " + hole + "\r\n\r\n", words("b.example a.example:81 A.EXAMPLE")},
	{"9112 3.2", "Host: exactly one", mustRefuse, "GET / HTTP/1.1\r\n" + hole + "\r\n",
		[]string{"", "Host: a.example\r\nHost: a.example\r\n", "Host: a.example\r\nHost: b.example\r\n", "Host: a.example\r\nX: y\r\nhOST: b.example\r\n", "Host : a.example\r\n", "Host a.example\r\n", "Hosts: a.example\r\n"}},
	{"9112 3.2", "Host: value", mustForward, "GET / HTTP/1.1\r\nHost: " + hole + "\r\n\r\n", words("A.Example a.example:8080 127.0.0.1 [::1] [::1]:80 a_b xn--bcher-kva.example a.example. localhost")},
	{"9112 3.2", "Host: a value that is none", mustRefuse, "GET / HTTP/1.1\r\nHost: " + hole + "\r\n\r\n",
		[]string{"a b", "a/b", "a?b", "a#b", "u@a.example", "a.example:x", "a.example:99999", "a,b", "a.example, b.example", "[::1", "::1", "a\tb", "http://a", "a\\b", "<a>", "a\"b", "{a}", "[::1]x", "a:80:80"}},
	{"9112 3.2", "Host: doubtful values", mayEither, "GET / HTTP/1.1\r\nHost: " + hole + "\r\n\r\n", []string{"", "a.example:", "%61.example", "a..b", "-a", "\xc3\xa9", "a|b", "a^b", "[x]", "*"}},
	{"9110 5.1", "field name: any token", mustForward, get + hole + ": v\r\n\r\n", words("X-A x 1 ! # $ % & ' * + . ^ _ ` | ~ a.b-c_d")},
	{"9110 5.1", "field name: what is no token", mustRefuse, get + "X" + hole + "A: v\r\n\r\n",
		append([]string{"(", ")", ",", "/", ";", "<", "=", ">", "?", "@", "[", `\`, "]", "{", "}", `"`, " ", "\t", "\x80", "\xc3\xa9"}, controls[:6]...)},
	{"9112 5.1", "field line: no white space before the colon", mustRefuse, get + hole + "\r\n\r\n", []string{"X-A : v", "X-A\t: v", "X-A  : v", "Content-Length : 5", "Transfer-Encoding : chunked", "Transfer-Encoding\x0b: chunked"}},
	{"9112 5", "field line: a name and a colon", mustRefuse, get + hole + "\r\n\r\n", []string{": v", "X-A", "X-A v", " X-A", ":", "=", "\x00"}},
	{"9110 5.5", "field value", mustForward, get + "X-A:" + hole + "\r\n\r\n", []string{"v", "  v  ", "", " ", "\tv\t", " a b", " a\tb", " \xc3\xa9", " \xff", " a:b", ` "q"`, " a,b", " " + strings.Repeat("v", 8000)}},
	{"9110 5.5", "field value: control bytes", mustRefuse, get + "X-A: a" + hole + "b\r\n\r\n", controls},
	{"9112 2.2", "a CR that no LF follows", mustRefuse, get + hole + "\r\n\r\n", []string{"X-A: a\rb", "X-A: a\r", "X-A\r: a", "X-A: a\rTransfer-Encoding: chunked", "\rX-A: a", "X-A: \r", "X-A: a\r\r"}},
	{"9112 5.2", "folded lines", mayEither, "POST / HTTP/1.1\r\nHost: a.example\r\n" + hole + "\r\n\r\n",
		[]string{"X: a\r\n b", "X: a\r\n\tb", "X: a\r\n \r\nY: b", "X:\r\n a", "Content-Length:\r\n 0", "Transfer-Encoding:\r\n chunked\r\nX: y", "X: a\r\n Content-Length: 5", "X: a\r\n\tTransfer-Encoding: chunked"}},
	{"9112 2.2", "white space before the first field", mustRefuse, "GET / HTTP/1.1\r\n" + hole + "\r\n\r\n", []string{" Host: a.example", "\tHost: a.example", " X: y\r\nHost: a.example", " \r\nHost: a.example"}},
	{"9112 2.2", "line ends by LF alone", mayEither, hole, []string{"GET / HTTP/1.1\nHost: a.example\r\n\r\n", "GET / HTTP/1.1\r\nHost: a.example\n\r\n", "GET / HTTP/1.1\r\nHost: a.example\r\n\n", "GET / HTTP/1.1\nHost: a.example\n\n",
		"GET / HTTP/1.1\r\nHost: a.example\r\nX: a\nContent-Length: 5\r\n\r\n", "GET / HTTP/1.1\r\nHost: a.example\n\n"}},
	{"9112 2.2", "empty lines before a request", mayEither, hole + get + "\r\n", []string{"\r\n", "\r\n\r\n", "\n", "\n\n", "\r\n\r\n\r\n\r\n\r\n\r\n", "\r", " \r\n"}},
	{"9112 6.2", "Content-Length", mustForward, post + "Content-Length:" + hole + "\r\n\r\nhello", []string{"5", " 5", "  5  ", "\t5\t"}},
	{"9112 6.3", "Content-Length: the same value more than once", mustForward, post + "Content-Length: 5\r\n" + hole + "\r\n\r\nhello", []string{"Content-Length: 5", "X: y\r\ncontent-length:5", "Content-Length: 5\r\nContent-Length: 5"}},
	{"9112 6.3", "Content-Length: values that differ", mustRefuse, post + "Content-Length: 5\r\nContent-Length: " + hole + "\r\n\r\nhello", []string{"05", "+5", "5, 5", ""}},
	{"9112 6.2", "Content-Length: doubtful values", mayEither, post + "Content-Length: " + hole + "\r\n\r\nhello", []string{"05", "0000000000000000000000005", "5, 5", "5,5"}},
	{"9112 6.2", "Content-Length: no number", mustRefuse, post + "Content-Length: " + hole + "\r\n\r\nhello",
		[]string{"+5", "-5", "-0", "5 5", "5,6", "5, 6", "0x5", "5.0", "5e0", "", "a", "5a", "a5", "\xd9\xa5", "9223372036854775808", "18446744073709551616", "18446744073709551621", "99999999999999999999999", "5;", `"5"`, "5\x0b", "\x0b5", "5\x00", "5_0", "5,", ",5", "5/5", "''5", "5\r\nContent-Length: 6", "6\r\nContent-Length: 5", "5\r\ncontent-length: 0"}},
	{"9110 8.6", "Content-Length of methods without a meaning for a body", mustForward, hole + " / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello", words("GET DELETE OPTIONS PUT PATCH BREW")},
	{"9112 6.1", "Transfer-Encoding: chunked", mustForward, post + "Transfer-Encoding:" + hole + "\r\n\r\n" + hello, []string{"chunked", " chunked", " Chunked", " CHUNKED", "  chunked  ", "\tchunked\t"}},
	{"9112 6.1", "Transfer-Encoding: what is not chunked at the end, once", mustRefuse, post + "Transfer-Encoding: " + hole + "\r\n\r\n" + hello,
		[]string{"chunked, chunked", "chunked, identity", "identity", "gzip", "chunked, gzip", "xchunked", "chunkedx", "chunked;q=1", `"chunked"`, "chunked\x00", "\x0bchunked", "chunked\x0b", "\x0cchunked", "", "chunk", "c hunked", "chunked chunked", "trailers", "ch\xadunked", "chunked\r\nTransfer-Encoding: identity", "identity\r\nTransfer-Encoding: chunked", "chunked\r\nTransfer-Encoding: chunked", "chunked\r\nTransfer-Encoding: x", "x\r\nTransfer-Encoding: chunked", "cow", "chunked, cow", "'chunked'", "\\chunked", "chunked=1"}},
	{"9112 6.1", "Transfer-Encoding: other codings first, empty elements", mayEither, post + "Transfer-Encoding: " + hole + "\r\n\r\n" + hello, []string{"gzip, chunked", "identity, chunked", ",chunked", "chunked,", ", chunked ,", "deflate,chunked"}},
	{"9112 6.3", "Transfer-Encoding and Content-Length", mustRefuse, post + hole + "\r\n\r\n" + hello,
		[]string{"Transfer-Encoding: chunked\r\nContent-Length: 5", "Content-Length: 5\r\nTransfer-Encoding: chunked", "Content-Length: 0\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 15", "Content-Length: 6\r\nTransfer-Encoding: xchunked", "Content-Length: 3\r\ntransfer-encoding: CHUNKED", "Content-Length: x\r\nTransfer-Encoding: chunked"}},
	{"9112 6.1", "Transfer-Encoding from an HTTP/1.0 client", mustRefuse, "POST / HTTP/1.0\r\nHost: a.example\r\n" + hole + "\r\n" + hello, []string{"Transfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n"}},
	{"9112 6", "names that CGI takes for framing", mayEither, post + hole + "\r\n\r\n", []string{"Content_Length: 5", "Transfer_Encoding: chunked", "content_length: 9", "Content.Length: 5", "Content-Length-: 5", "X-Content-Length: 5", "Transfer-Encodings: chunked"}},
	{"9112 7.1", "chunk size", mustForward, chunk + hole, []string{"05\r\nhello\r\n0\r\n\r\n", "a\r\n0123456789\r\n0\r\n\r\n", "A\r\n0123456789\r\n0\r\n\r\n", "0\r\n\r\n", "1\r\nh\r\n4\r\nello\r\n0\r\n\r\n", "5\r\nhello\r\n000\r\n\r\n"}},
	{"9112 7.1", "chunk size: none", mustRefuse, chunk + hole + "\r\nhello\r\n0\r\n\r\n",
		[]string{"", "0x5", "+5", "-5", "g", "5g", "5 5", "FFFFFFFFFFFFFFFF", "FFFFFFFFFFFFFFFFF", "10000000000000005", "8000000000000000", "5\x00", "\x005", "5,", "5.", "\xd9\xa5", "h5", "5h", "0X5", "5\x0b"}},
	{"9112 7.1", "chunk size: white space around it", mayEither, chunk + hole + "\r\nhello\r\n0\r\n\r\n", []string{" 5", "5 ", "5\t", "\t5", "5  "}},
	{"9112 7.1.1", "chunk extensions", mustForward, chunk + "5;" + hole + "\r\nhello\r\n0\r\n\r\n", []string{"a", "a=b", `a="b"`, "a=b;c=d", `a="b;c"`, `a="x\"y"`, "a;b"}},
	{"9112 7.1.1", "chunk extensions: malformed", mayEither, chunk + "5" + hole + "\r\nhello\r\n0\r\n\r\n", []string{";", ";;", ";=b", `;a="b`, " ;a", ";a ;b", ";a=\x01", ";a=b c", ";\xff", ";a\x7f"}},
	{"9112 7.1", "chunk: ends of its lines", mustRefuse, chunk + hole,
		[]string{"5\nhello\r\n0\r\n\r\n", "5\rhello\r\n0\r\n\r\n", "5\r\r\nhello\r\n0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", "5\r\nhello0\r\n\r\n", "5\r\nhellox\r\n0\r\n\r\n", "5\r\nhello\r0\r\n\r\n", "5\r\nhello\n\r0\r\n\r\n", "5\r\nhello\r\n0\n\r\n", "5\r\nhello\r\n0\r\n\n", "5\r\nhello\r\n0\n\n", "5;a\nb\r\nhello\r\n0\r\n\r\n", "5;a\rb\r\nhello\r\n0\r\n\r\n", "5;\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n\r\n0\r\n\r\n", "4\r\nhello\r\n0\r\n\r\n"}},
	{"9112 7.1.2", "trailers", mustForward, chunk + "5\r\nhello\r\n0\r\n" + hole + "\r\n\r\n", []string{"X-T: 1", "X-T:", "X-T: 1\r\nX-U: 2", "etag: \"x\""}},
	{"9110 6.5.1", "trailers that must not be", mayEither, chunk + "5\r\nhello\r\n0\r\n" + hole + "\r\n\r\n",
		[]string{"Content-Length: 5", "Transfer-Encoding: chunked", "Host: b.example", "Authorization: x", "Cookie: x", "X-Forwarded-For: 1.2.3.4", "Content-Type: x/y", "Connection: close", "Expect: 100-continue", "Trailer: X", "Content_Length: 5"}},
	{"9112 7.1.2", "trailers: malformed", mustRefuse, chunk + "5\r\nhello\r\n0\r\n" + hole + "\r\n\r\n", []string{"X-T : 1", "X T: 1", "X-T", " X: 1", "X-T: a\x00", "X-T: a\rb", "X(T: 1", ": 1", "X: a\nY: b", "GET / HTTP/1.1"}},
	{"9110 7.6.1", "Connection and what it names", mustForward, get + hole + "\r\n\r\n",
		[]string{"Connection: keep-alive", "Connection: X-A\r\nX-A: 1", "Connection: keep-alive, x-a\r\nX-A: 1", "Connection: host", "Connection: authorization\r\nAuthorization: x", "Connection: x-forwarded-for", "Keep-Alive: timeout=5", "Proxy-Connection: keep-alive", "TE: trailers", "Connection: TE\r\nTE: trailers", "TE: gzip", "Proxy-Authorization: x", "Trailer: X", "Connection: ,", "Connection: @"}},
	{"9110 7.6.1", "Connection names the framing", mustForward, post + "Connection: " + hole + "\r\nContent-Length: 5\r\n\r\nhello", words("content-length transfer-encoding,content-length")},
	{"9110 10.1.1", "Expect", mustForward, post + "Expect: " + hole + "\r\nContent-Length: 5\r\n\r\nhello", words("100-continue 100-Continue")},
	{"9110 10.1.1", "Expect: another expectation", mayEither, post + "Expect: " + hole + "\r\nContent-Length: 5\r\n\r\nhello", words("200-ok 100-continue,x x=y")},
	{"9110 7.8", "Upgrade that nobody takes up", mustForward, get + "Connection: upgrade\r\nUpgrade: " + hole + "\r\n\r\n", words("foo/1 websocket h2c")},
	{"9110 7.6.2", "Max-Forwards", mustForward, hole + "\r\n\r\n", []string{"GET / HTTP/1.1\r\nHost: a.example\r\nMax-Forwards: 0", "OPTIONS / HTTP/1.1\r\nHost: a.example\r\nMax-Forwards: 3", "OPTIONS / HTTP/1.1\r\nHost: a.example\r\nMax-Forwards: x"}},
	{"9110 5.4", "limits", mustRefuse, get + hole + "\r\n\r\n", []string{strings.Repeat("X-A: v\r\n", 200) + "Y: z", "X-A: " + strings.Repeat("v", 1<<17), strings.Repeat("a", 1<<17) + ": v"}},
	{"9112 9.3.2", "pipelining", mustForward, strings.Repeat(get+"\r\n", 3) + hole, []string{"", post + "Content-Length: 5\r\n\r\nhello", chunk + hello}},
	{"9112 11.2", "a second request in what one parser takes for a body", mustRefuse, post + hole + "\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.example\r\n\r\n",
		[]string{"Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 50", "Transfer-Encoding: chunked\r\nTransfer-Encoding: x", "Transfer-Encoding:\x0bchunked", "X: y\rTransfer-Encoding: chunked", "Transfer-Encoding : chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\nContent-Length: 6"}},
}

// The responses, by what they test; the upstream closes after each.
const (
	ok        = "HTTP/1.1 200 OK\r\n"
	okChunked = ok + "Transfer-Encoding: chunked\r\n\r\n"
)

var responseFamilies = []family{
	{"9112 4", "status line", mustForward, hole + "\r\nContent-Length: 2\r\n\r\nok", []string{"HTTP/1.1 200 OK", "HTTP/1.1 200 ", "HTTP/1.0 200 OK", "HTTP/1.1 299 x", "HTTP/1.1 404 Not Found", "HTTP/1.1 500 \xe9", "HTTP/1.1 200 a\tb", "HTTP/1.1 599 x", "HTTP/1.1 418 I'm a teapot"}},
	{"9110 15", "status codes from 600 to 999", mustForward, "HTTP/1.1 " + hole + "\r\nContent-Length: 2\r\n\r\nok", []string{"600 x", "999 Request denied", "700"}},
	{"9112 4", "status line: lenient forms", mayEither, hole + "\r\nContent-Length: 2\r\n\r\nok", []string{"HTTP/1.1 200", "HTTP/1.1  200 OK", "HTTP/1.2 200 OK", "HTTP/1.1\t200 OK", "HTTP/1.1 200\tOK"}},
	{"9112 4", "status line: none", mustRefuse, hole + "\r\nContent-Length: 2\r\n\r\nok",
		[]string{"HTTP/1.1", "HTTP/1.1 ", "HTTP/1.1 20 OK", "HTTP/1.1 2000 OK", "HTTP/1.1 abc OK", "HTTP/1.1 -20 OK", "HTTP/1.1 +20 OK", "HTTP/1.1 2 0 OK", "http/1.1 200 OK", "HTTP/2.0 200 OK", "HTTP/3 200 OK", "HTTP/0.9 200 OK", "HTTP/1.1 000 x", "HTTP/1.1 099 x", "200 OK", "hello", "\x00", "GET / HTTP/1.1", "HTTP/1.1 200 a\x00b", "HTTP/1.1 200 a\rb", "HTTP /1.1 200 OK", " HTTP/1.1 200 OK", "HTTP/1.x 200 OK", "ICY 200 OK"}},
	{"9110 5.1", "field name: what is no token", mustRefuse, ok + "X" + hole + "A: v\r\nContent-Length: 2\r\n\r\nok", []string{"(", ")", ",", "/", ";", "=", "@", "[", "{", `"`, " ", "\t", "\x00", "\x01", "\x7f", "\x80"}},
	{"9112 5.1", "field line: malformed", mustRefuse, ok + hole + "\r\nContent-Length: 2\r\n\r\nok", []string{": v", "X-A", "X-A v", " X-A: v", "X-A: a\rb", "X-A: a\r"}},
	{"9112 5.1", "white space before the colon is to be removed", mayEither, ok + hole + "\r\n\r\nok", []string{"X-A : v\r\nContent-Length: 2", "Content-Length : 2", "Transfer-Encoding : chunked"}},
	{"9110 5.5", "field value: control bytes", mayEither, ok + "X-A: a" + hole + "b\r\nContent-Length: 2\r\n\r\nok", controls},
	{"9112 5.2", "folded lines", mayEither, ok + hole + "\r\nContent-Length: 2\r\n\r\nok", []string{"X: a\r\n b", "X: a\r\n\tb", "X:\r\n a"}},
	{"9112 6.3", "Content-Length", mustForward, ok + "Content-Length:" + hole + "\r\n\r\nok", []string{"2", " 2 ", "\t2"}},
	{"9112 6.3", "Content-Length: doubtful values", mayEither, ok + "Content-Length: " + hole + "\r\n\r\nok", []string{"02", "2, 2", "2\r\nContent-Length: 2"}},
	{"9112 6.3", "Content-Length: no number", mustRefuse, ok + "Content-Length: " + hole + "\r\n\r\nok", []string{"+2", "-2", "2,3", "2 2", "0x2", "2.0", "", "a", "2a", "9223372036854775808", "99999999999999999999999", "2\r\nContent-Length: 3", "3\r\nContent-Length: 2", `"2"`, "2;"}},
	{"9112 6.3", "Transfer-Encoding", mustForward, ok + "Transfer-Encoding:" + hole + "\r\n\r\n2\r\nok\r\n0\r\n\r\n", []string{"chunked", " Chunked", "  chunked  "}},
	{"9112 6.3", "Transfer-Encoding: others", mayEither, ok + "Transfer-Encoding: " + hole + "\r\n\r\n2\r\nok\r\n0\r\n\r\n", []string{"gzip", "gzip, chunked", "identity", "chunked, gzip", "chunked, chunked", "xchunked", "chunked;q=1", "", "chunked\r\nTransfer-Encoding: chunked", "chunked\r\nTransfer-Encoding: identity", "\x0bchunked"}},
	{"9112 6.3", "Transfer-Encoding and Content-Length", mayEither, ok + hole + "\r\n\r\n2\r\nok\r\n0\r\n\r\n", []string{"Transfer-Encoding: chunked\r\nContent-Length: 2", "Content-Length: 2\r\nTransfer-Encoding: chunked", "Content-Length: 12\r\nTransfer-Encoding: chunked"}},
	{"9112 6.1", "Transfer-Encoding from HTTP/1.0", mayEither, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", nil},
	{"9112 7.1", "chunks", mustForward, okChunked + hole, []string{"2\r\nok\r\n0\r\n\r\n", "02\r\nok\r\n0\r\n\r\n", "0\r\n\r\n", "1\r\no\r\n1\r\nk\r\n0\r\n\r\n", "2;a=b\r\nok\r\n0\r\n\r\n", "2\r\nok\r\n0\r\nX-T: 1\r\n\r\n"}},
	{"9112 7.1", "chunks: malformed, so that the body is cut off", mustCut, okChunked + hole + "\r\nok\r\n0\r\n\r\n", []string{"g", "0x2", "+2", "-2", "", "FFFFFFFFFFFFFFFFF", "2,", "2\x00"}},
	{"9112 7.1", "chunks: line ends, so that the body is cut off", mustCut, okChunked + hole, []string{"2\nok\r\n0\r\n\r\n", "2\r\nok\n0\r\n\r\n", "2\r\nokx\r\n0\r\n\r\n", "2\r\nok0\r\n\r\n", "2\r\nok\r\n", "2\r\no", "2\r\nok\r\n0\r\n", "2\r\nok\r\n0\r\nX T: 1\r\n\r\n"}},
	{"9112 6.3", "a body that ends with the connection", mustForward, hole + "\r\nok", []string{ok, "HTTP/1.0 200 OK\r\n", ok + "Connection: close\r\n"}},
	{"9112 8", "a body that is cut off", mustCut, ok + "Content-Length: " + hole + "\r\n\r\nok", words("3 1000")},
	{"9112 6.3", "answers that have no body", mustForward, "HTTP/1.1 " + hole + "\r\n\r\n", []string{"204 No Content", "304 Not Modified", "304 Not Modified\r\nContent-Length: 5", "205 Reset\r\nContent-Length: 0"}},
	{"9110 15.2", "informational answers first", mustForward, hole + ok + "Content-Length: 2\r\n\r\nok", []string{"HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 x\r\n\r\n"}},
	{"9110 15.2.2", "an upgrade that nobody asked for", mustRefuse, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", nil},
	{"9112 2.2", "all lines end with LF alone", mustForward, hole, []string{"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "HTTP/1.1 200 OK\nX:  a \nContent-Length: 2\n\nok", "HTTP/1.1 404\nTransfer-Encoding: chunked\n\n2\r\nok\r\n0\r\n\r\n", "HTTP/1.0 200 OK\n\nok"}},
	{"9112 2.2", "some lines end with LF alone", mayEither, hole, []string{"HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\nok", "HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nX: a\nY: b\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\nX: a\n b\nContent-Length: 2\n\nok", "HTTP/1.1 200 OK\nX: a\rb\nContent-Length: 2\n\nok", "HTTP/1.1 200 OK\nX: a\nContent-Length: 2\n\r\nok"}},
	{"9112 8", "a head that is cut off", mustRefuse, hole, []string{"HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 200", "", ok, ok + "Content-Length: 2\r\n"}},
	{"9110 5.4", "limits", mustRefuse, ok + hole + "\r\n\r\n", []string{strings.Repeat("X-A: v\r\n", 300) + "Content-Length: 0", "X-A: " + strings.Repeat("v", 1<<18)}},
	{"9110 7.6.1", "Connection and what it names", mustForward, ok + hole + "\r\nContent-Length: 2\r\n\r\nok", []string{"Connection: X-A\r\nX-A: 1", "Keep-Alive: timeout=5", "Proxy-Authenticate: x", "Trailer: X", "Connection: content-length", "Upgrade: h2c\r\nConnection: upgrade"}},
	{"9112 9.2", "bytes after the response", mustForward, ok + "Content-Length: 2\r\n\r\nok" + hole, []string{"x", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", "\r\n"}},
}
