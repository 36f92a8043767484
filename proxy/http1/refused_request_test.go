package http1

import "testing"

// refusedRequests is what must never reach an upstream, with the section that says so.
var refusedRequests = []struct {
	name string
	head string
	want Refusal
}{
	// RFC 9112 section 3: method SP request-target SP HTTP-version CRLF, single spaces.
	{"tls client hello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", RefusalTLSBytes},
	{"first byte is NUL", "\x00", RefusalBadRequestLine},
	{"first byte is a space", " GET / HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadRequestLine},
	{"tab after method", "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadRequestLine},
	{"method not a token", "G(T / HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadRequestLine},
	{"method only", "GET\r\n\r\n", RefusalBadRequestLine},
	{"HTTP/0.9 request", "GET /\r\n", RefusalBadRequestLine},
	{"two spaces before target", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadRequestLine},
	{"two spaces before version", "GET /  HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadRequestLine},
	{"space in target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadRequestLine},
	{"space after version", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", RefusalBadRequestLine},
	{"nine empty lines first", "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadRequestLine},
	{"method of 33 letters", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1\r\nHost: a\r\n\r\n", RefusalMethodTooLong},
	{"method without end", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", RefusalMethodTooLong},

	// RFC 9112 section 2.3 and RFC 9110 section 15.6.6: versions.
	{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", RefusalBadVersion},
	{"HTTP/0.9 named", "GET / HTTP/0.9\r\n\r\n", RefusalBadVersion},
	{"HTTP/3.0", "GET / HTTP/3.0\r\nHost: a\r\n\r\n", RefusalBadVersion},
	{"version without minor", "GET / HTTP/2\r\n\r\n", RefusalBadRequestLine},
	{"two-digit major", "GET / HTTP/11.1\r\nHost: a\r\n\r\n", RefusalBadRequestLine},
	{"two-digit minor", "GET / HTTP/1.10\r\nHost: a\r\n\r\n", RefusalBadRequestLine},
	{"lower-case http", "GET / http/1.1\r\nHost: a\r\n\r\n", RefusalBadRequestLine},
	{"other protocol", "GET / ICAP/1.0\r\nHost: a\r\n\r\n", RefusalBadRequestLine},
	{"letter as version", "GET / HTTP/1.x\r\nHost: a\r\n\r\n", RefusalBadRequestLine},

	// RFC 9112 section 3.2: the target.
	{"CONNECT", "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", RefusalConnect},
	{"authority form without CONNECT", "GET a:443 HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"asterisk with GET", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"asterisk with lower-case options", "options * HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"asterisk and more", "OPTIONS *a HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"fragment", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"fragment behind UTF-8", "GET /\xc3\xa9#x HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"NUL in target", "GET /a\x00 HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"tab in target", "GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"DEL in target", "GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"Latin-1 in target", "GET /\xe9 HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"Latin-1 in query", "GET /?\xe9 HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"overlong slash in target", "GET /\xc0\xaf HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"UTF-8 cut off in target", "GET /aaaaaaaaaaa\xe2\x82 HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"surrogate in target", "GET /\xed\xa0\x80 HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"control character of two bytes in target", "GET /\xc2\x85 HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"raw UTF-8 in the host of a target", "GET http://caf\xc3\xa9/ HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"broken escape", "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"cut escape", "GET /a%2 HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"cut escape before query", "GET /a%?aa HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"relative target", "GET a/b HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"query alone", "GET ?a HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"other scheme", "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"scheme without slashes", "GET http:a HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"absolute form with empty host", "GET http:///a HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"absolute form with nothing", "GET http:// HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"absolute form with port only", "GET http://:80/ HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"absolute form with userinfo", "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},
	{"absolute form with backslash authority", "GET http://a\\b/ HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBadTarget},

	// RFC 9112 section 2.2: line ends.
	{"bare LF first", "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBareLF},
	{"bare LF after method", "GET\n / HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBareLF},
	{"bare LF in target", "GET /\n HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBareLF},
	{"bare LF after request line", "GET / HTTP/1.1\nHost: a\r\n\r\n", RefusalBareLF},
	{"bare LF after name", "GET / HTTP/1.1\r\nHost\n: a\r\n\r\n", RefusalBareLF},
	{"bare LF after field", "GET / HTTP/1.1\r\nHost: a\n\r\n", RefusalBareLF},
	{"bare LF as empty line", "GET / HTTP/1.1\r\nHost: a\r\n\n", RefusalBareLF},
	{"bare CR first", "\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBareCR},
	{"bare CR in target", "GET /\r HTTP/1.1\r\nHost: a\r\n\r\n", RefusalBareCR},
	{"bare CR after request line", "GET / HTTP/1.1\rHost: a\r\n\r\n", RefusalBareCR},
	{"bare CR in name", "GET / HTTP/1.1\r\nHo\rst: a\r\n\r\n", RefusalBareCR},
	{"bare CR in value", "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", RefusalBareCR},
	{"CR CR LF", "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", RefusalBareCR},
	{"bare CR before the empty line", "GET / HTTP/1.1\r\nHost: a\r\n\r\r\n", RefusalBareCR},

	// RFC 9112 section 5, RFC 9110 section 5: fields.
	{"no colon", "GET / HTTP/1.1\r\nHost: a\r\nfoo\r\n\r\n", RefusalBadHeader},
	{"empty name", "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", RefusalBadHeader},
	{"quote in name", "GET / HTTP/1.1\r\nHost: a\r\n\"x\": b\r\n\r\n", RefusalBadHeader},
	{"raw UTF-8 in name", "GET / HTTP/1.1\r\nHost: a\r\n\xc3\xa9: b\r\n\r\n", RefusalBadHeader},
	{"underscore Content_Length", "POST / HTTP/1.1\r\nHost: a\r\nContent_Length: 5\r\n\r\n", RefusalBadHeader},
	{"dot Content.Length", "POST / HTTP/1.1\r\nHost: a\r\nContent.Length: 5\r\n\r\n", RefusalBadHeader},
	{"dot Transfer.Encoding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer.Encoding: chunked\r\n\r\n", RefusalBadHeader},
	{"underscore Transfer_Encoding", "POST / HTTP/1.1\r\nHost: a\r\ntransfer_encoding: chunked\r\n\r\n", RefusalBadHeader},
	{"space before colon", "GET / HTTP/1.1\r\nHost : a\r\n\r\n", RefusalSpaceBeforeColon},
	{"tab before colon", "GET / HTTP/1.1\r\nHost\t: a\r\n\r\n", RefusalSpaceBeforeColon},
	{"space in name", "GET / HTTP/1.1\r\nHost: a\r\nX Y: b\r\n\r\n", RefusalSpaceBeforeColon},
	{"obs-fold with space", "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", RefusalObsFold},
	{"obs-fold with tab", "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\tz\r\n\r\n", RefusalObsFold},
	{"space before the first field", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", RefusalObsFold},
	{"line of one space", "GET / HTTP/1.1\r\nHost: a\r\n \r\n\r\n", RefusalObsFold},
	{"NUL in value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n", RefusalControlByte},
	{"NUL in name", "GET / HTTP/1.1\r\nHost: a\r\nX\x00: b\r\n\r\n", RefusalControlByte},
	{"escape byte in value", "GET / HTTP/1.1\r\nHost: a\r\nX: \x1b[0m\r\n\r\n", RefusalControlByte},
	{"DEL in value", "GET / HTTP/1.1\r\nHost: a\r\nX: abcdefghijk\x7f\r\n\r\n", RefusalControlByte},
	{"vertical tab in value", "GET / HTTP/1.1\r\nHost: a\r\nX: \x0bchunked\r\n\r\n", RefusalControlByte},

	// RFC 9112 section 3.2: Host.
	{"no Host", "GET / HTTP/1.1\r\n\r\n", RefusalMissingHost},
	{"no Host with absolute form", "GET http://a/ HTTP/1.1\r\n\r\n", RefusalMissingHost},
	{"two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", RefusalDuplicateHost},
	{"two equal Hosts", "GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", RefusalDuplicateHost},
	{"two Hosts in HTTP/1.0", "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", RefusalDuplicateHost},
	{"empty Host beside an authority", "GET http://a/ HTTP/1.1\r\nHost:\r\n\r\n", RefusalBadHost},
	{"empty Host twice", "GET / HTTP/1.1\r\nHost:\r\nHost:\r\n\r\n", RefusalDuplicateHost},
	{"Host with port only", "GET / HTTP/1.1\r\nHost: :80\r\n\r\n", RefusalBadHost},
	{"Host with space", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", RefusalBadHost},
	{"Host with userinfo", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", RefusalBadHost},
	{"Host with path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", RefusalBadHost},
	{"Host list", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", RefusalBadHost},
	{"Host port not a number", "GET / HTTP/1.1\r\nHost: a:x\r\n\r\n", RefusalBadHost},
	{"Host port too large", "GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", RefusalBadHost},
	{"Host with two ports", "GET / HTTP/1.1\r\nHost: a:1:2\r\n\r\n", RefusalBadHost},
	{"Host IPv6 without brackets", "GET / HTTP/1.1\r\nHost: ::1\r\n\r\n", RefusalBadHost},
	{"Host IPv6 unclosed", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", RefusalBadHost},
	{"Host IPv6 with zone", "GET / HTTP/1.1\r\nHost: [fe80::1%25eth0]\r\n\r\n", RefusalBadHost},
	{"Host IPv6 and letters", "GET / HTTP/1.1\r\nHost: [::1]a\r\n\r\n", RefusalBadHost},
	{"malformed Host beside absolute form", "GET http://a/ HTTP/1.1\r\nHost: a b\r\n\r\n", RefusalBadHost},
	{"malformed Host in HTTP/1.0", "GET / HTTP/1.0\r\nHost: a b\r\n\r\n", RefusalBadHost},

	// RFC 9112 section 6: framing.
	{"CL with TE", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", RefusalCLWithTE},
	{"TE with CL", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", RefusalCLWithTE},
	{"CL with unknown TE", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\nContent-Length: 0\r\n\r\n", RefusalCLWithTE},
	{"differing CLs", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", RefusalDifferingContentLength},
	{"CLs that differ in zeros", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 05\r\n\r\n", RefusalDifferingContentLength},
	{"CL list", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n", RefusalBadContentLength},
	{"empty CL", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", RefusalBadContentLength},
	{"CL with plus", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n", RefusalBadContentLength},
	{"CL with minus", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n", RefusalBadContentLength},
	{"CL with inner space", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5 5\r\n\r\n", RefusalBadContentLength},
	{"CL in hexadecimal", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\n", RefusalBadContentLength},
	{"CL with fraction", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5.0\r\n\r\n", RefusalBadContentLength},
	{"CL with leading zero", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 010\r\n\r\n", RefusalBadContentLength},
	{"CL of 2^63", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\n", RefusalBadContentLength},
	{"CL of 2^64+5", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551621\r\n\r\n", RefusalBadContentLength},
	{"TE in HTTP/1.0", "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", RefusalTransferEncodingIn10},
	{"TE gzip", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", RefusalBadTransferEncoding},
	{"TE identity", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n", RefusalBadTransferEncoding},
	{"TE chunked not last", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", RefusalBadTransferEncoding},
	{"TE chunked twice", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", RefusalBadTransferEncoding},
	{"TE chunked in two lines", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", RefusalBadTransferEncoding},
	{"TE chunked then identity line", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", RefusalBadTransferEncoding},
	{"TE empty", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n", RefusalBadTransferEncoding},
	{"TE with parameter", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;q=1\r\n\r\n", RefusalBadTransferEncoding},
	{"TE with empty element", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: , chunked\r\n\r\n", RefusalBadTransferEncoding},
	{"TE in quotes", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n", RefusalBadTransferEncoding},
	{"TE xchunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", RefusalUnknownTransferEncoding},
	{"TE unknown", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: cow\r\n\r\n", RefusalUnknownTransferEncoding},
	{"TE unknown before chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: cow, chunked\r\n\r\n", RefusalUnknownTransferEncoding},
	{"TE unknown after chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n\r\n", RefusalUnknownTransferEncoding},
	{"TE unknown with CL", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: cow\r\nContent-Length: 0\r\n\r\n", RefusalCLWithTE},
	{"TE unknown in HTTP/1.0", "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: cow\r\n\r\n", RefusalTransferEncodingIn10},
	{"TE with obs-text", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\xa0\r\n\r\n", RefusalBadTransferEncoding},
	{"TE gzip, chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", RefusalUnknownTransferEncoding},
	{"TE gzip line, chunked line", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n", RefusalUnknownTransferEncoding},

	// RFC 9110 section 10.1.1: Expect.
	{"other expectation", "GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n", RefusalBadExpect},
	{"expectation list", "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue, x\r\n\r\n", RefusalBadExpect},
	{"second expectation", "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nExpect: x\r\n\r\n", RefusalBadExpect},
}

func TestRequestRefused(t *testing.T) {
	for _, c := range refusedRequests {
		t.Run(c.name, func(t *testing.T) {
			var r Request
			n, err := r.Parse([]byte(c.head), Limits{})
			wantRefusal(t, n, err, c.want, c.want.Status())
			trickled := new(Request)
			wantTrickle(t, c.head, n, err, func(b []byte) (int, error) { return trickled.Parse(b, Limits{}) })
		})
	}
}

// Everything after the byte that shows a fault is irrelevant, so each case must be refused at that byte.
func TestRequestRefusedWithoutWaiting(t *testing.T) {
	for _, c := range []struct {
		name, head string
		want       Refusal
	}{
		{"tls", "\x16", RefusalTLSBytes},
		{"binary", "\x80", RefusalBadRequestLine},
		{"h2 preface", "PRI * HTTP/2.0", RefusalBadVersion},
		{"control byte in target", "GET /\x01", RefusalBadTarget},
		{"not a version", "GET / X", RefusalBadRequestLine},
		{"fold", "GET / HTTP/1.1\r\n ", RefusalObsFold},
		{"space in name", "GET / HTTP/1.1\r\nHost ", RefusalSpaceBeforeColon},
		{"control byte in value", "GET / HTTP/1.1\r\nHost: \x00", RefusalControlByte},
		{"lf", "GET / HTTP/1.1\r\nHost: a\n", RefusalBareLF},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r Request
			n, err := r.Parse([]byte(c.head), Limits{})
			wantRefusal(t, n, err, c.want, c.want.Status())
			r.Reset()
			if n, err := r.Parse([]byte(c.head[:len(c.head)-1]), Limits{}); n != 0 || err != nil {
				t.Fatalf("one byte earlier: n=%d err=%v, want to be asked for more", n, err)
			}
		})
	}
}
