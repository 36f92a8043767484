package main

import "strings"

// rule is a rule of HTTP, or a limit, and a request that breaks it. The proxy
// must answer with one of the statuses and close, and send nothing upstream.
type rule struct {
	name   string
	head   string // @ stands for the fields that name the request
	status []int
}

// rules that clients break. Every head is sent whole.
var rules = []rule{
	{"length and chunked", "POST /plain/x HTTP/1.1\r\nHost: soak.test\r\n@Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []int{400}},
	{"two lengths", "POST /plain/x HTTP/1.1\r\nHost: soak.test\r\n@Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", []int{400}},
	{"signed length", "POST /plain/x HTTP/1.1\r\nHost: soak.test\r\n@Content-Length: +5\r\n\r\nabcde", []int{400}},
	{"unknown coding", "POST /plain/x HTTP/1.1\r\nHost: soak.test\r\n@Transfer-Encoding: gzip\r\n\r\n", []int{400, 501}},
	{"chunked in 1.0", "POST /plain/x HTTP/1.0\r\nHost: soak.test\r\n@Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []int{400}},
	{"bare LF", "GET /plain/x HTTP/1.1\nHost: soak.test\n@\n", []int{400}},
	{"folded line", "GET /plain/x HTTP/1.1\r\nHost: soak.test\r\n@X-A: b\r\n c\r\n\r\n", []int{400}},
	{"NUL", "GET /plain/x HTTP/1.1\r\nHost: soak.test\r\n@X-A: \x00\r\n\r\n", []int{400}},
	{"space before colon", "GET /plain/x HTTP/1.1\r\nHost: soak.test\r\n@X-A : b\r\n\r\n", []int{400}},
	{"no Host", "GET /plain/x HTTP/1.1\r\n@\r\n", []int{400}},
	{"two Hosts", "GET /plain/x HTTP/1.1\r\nHost: soak.test\r\nHost: soak.test\r\n@\r\n", []int{400}},
	{"fragment", "GET /plain/x#y HTTP/1.1\r\nHost: soak.test\r\n@\r\n", []int{400}},
	{"CONNECT", "CONNECT soak.test:80 HTTP/1.1\r\nHost: soak.test:80\r\n@\r\n", []int{400, 405, 501}},
	{"asterisk", "GET * HTTP/1.1\r\nHost: soak.test\r\n@\r\n", []int{400}},
	{"version", "GET /plain/x HTTP/2.0\r\nHost: soak.test\r\n@\r\n", []int{400, 505}},
	{"expectation", "GET /plain/x HTTP/1.1\r\nHost: soak.test\r\n@Expect: a-miracle\r\n\r\n", []int{417}},
	{"long head", "GET /plain/x HTTP/1.1\r\nHost: soak.test\r\n@X-A: " + strings.Repeat("a", 70<<10) + "\r\n\r\n", []int{431}},
	{"many fields", "GET /plain/x HTTP/1.1\r\nHost: soak.test\r\n@" + strings.Repeat("X-A: b\r\n", 120) + "\r\n", []int{431}},
	{"other route's path", "GET /plain/../unsafe/x HTTP/1.1\r\nHost: soak.test\r\n@\r\n", []int{400}},
}
