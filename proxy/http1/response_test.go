package http1

import (
	"strings"
	"testing"
	"time"
)

var refusedResponses = []struct {
	name string
	head string
	want Refusal
}{
	// RFC 9112 section 4: the status line.
	{"tls record", "\x15\x03\x01\x00\x02\x02\x28", RefusalBadStatusLine},
	{"empty line first", "\r\nHTTP/1.1 200 OK\r\n\r\n", RefusalBadStatusLine},
	{"shoutcast", "ICY 200 OK\r\n\r\n", RefusalBadStatusLine},
	{"body bytes", "<html>", RefusalBadStatusLine},
	{"HTTP/2", "HTTP/2.0 200 OK\r\n\r\n", RefusalBadVersion},
	{"HTTP/0.9", "HTTP/0.9 200 OK\r\n\r\n", RefusalBadVersion},
	{"no minor version", "HTTP/1 200 OK\r\n\r\n", RefusalBadStatusLine},
	{"two-digit minor version", "HTTP/1.10 200 OK\r\n\r\n", RefusalBadStatusLine},
	{"no status", "HTTP/1.1\r\n\r\n", RefusalBadStatusLine},
	{"two spaces", "HTTP/1.1  200 OK\r\n\r\n", RefusalBadStatusLine},
	{"tab", "HTTP/1.1\t200 OK\r\n\r\n", RefusalBadStatusLine},
	{"two digits", "HTTP/1.1 20 OK\r\n\r\n", RefusalBadStatusLine},
	{"four digits", "HTTP/1.1 2000 OK\r\n\r\n", RefusalBadStatusLine},
	{"sign", "HTTP/1.1 +20 OK\r\n\r\n", RefusalBadStatusLine},
	{"status 099", "HTTP/1.1 099 X\r\n\r\n", RefusalBadStatusLine},
	{"tab after status", "HTTP/1.1 200\tOK\r\n\r\n", RefusalBadStatusLine},
	{"NUL in phrase", "HTTP/1.1 200 O\x00K\r\n\r\n", RefusalControlByte},

	// RFC 9112 sections 2.2 and 5.
	{"CRLF in a head by LF", "HTTP/1.1 200 OK\nA: b\r\n\n", RefusalBareLF},
	{"empty line by CRLF in a head by LF", "HTTP/1.1 200 OK\nA: b\n\r\n", RefusalBareLF},
	{"bare CR in a head by LF", "HTTP/1.1 200 OK\nA: b\rc\n\n", RefusalBareLF},
	{"NUL in a head by LF", "HTTP/1.1 200 OK\nA: b\x00\n\n", RefusalControlByte},
	{"obs-fold in a head by LF", "HTTP/1.1 200 OK\nA: b\n c\n\n", RefusalObsFold},
	{"space before colon in a head by LF", "HTTP/1.1 200 OK\nA : b\n\n", RefusalSpaceBeforeColon},
	{"no colon in a head by LF", "HTTP/1.1 200 OK\nA\n\n", RefusalBadHeader},
	{"no name in a head by LF", "HTTP/1.1 200 OK\n: b\n\n", RefusalBadHeader},
	{"differing CLs in a head by LF", "HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length: 6\n\n", RefusalDifferingContentLength},
	{"bare LF after status", "HTTP/1.1 200\n\r\n", RefusalBareLF},
	{"bare LF after phrase", "HTTP/1.1 200 OK\n\r\n", RefusalBareLF},
	{"bare LF after field", "HTTP/1.1 200 OK\r\nA: b\n\r\n", RefusalBareLF},
	{"bare CR in phrase", "HTTP/1.1 200 O\rK\r\n\r\n", RefusalBareCR},
	{"bare CR in value", "HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", RefusalBareCR},
	{"obs-fold", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", RefusalObsFold},
	{"space before the first field", "HTTP/1.1 200 OK\r\n A: b\r\n\r\n", RefusalObsFold},
	{"space before colon", "HTTP/1.1 200 OK\r\nA : b\r\n\r\n", RefusalSpaceBeforeColon},
	{"no colon", "HTTP/1.1 200 OK\r\nfoo\r\n\r\n", RefusalBadHeader},
	{"NUL in value", "HTTP/1.1 200 OK\r\nA: \x00\r\n\r\n", RefusalControlByte},

	// RFC 9112 section 6: framing.
	{"CL with TE", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", RefusalCLWithTE},
	{"differing CLs", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", RefusalDifferingContentLength},
	{"CLs that differ in zeros", "HTTP/1.1 200 OK\r\nContent-Length: 05\r\nContent-Length: 5\r\n\r\n", RefusalDifferingContentLength},
	{"CL list", "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", RefusalBadContentLength},
	{"CL with plus", "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n", RefusalBadContentLength},
	{"empty CL", "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n", RefusalBadContentLength},
	{"CL of 2^63", "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n", RefusalBadContentLength},
	{"second CL malformed", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: x\r\n\r\n", RefusalBadContentLength},
	{"malformed CL on 304", "HTTP/1.1 304 X\r\nContent-Length: x\r\n\r\n", RefusalBadContentLength},
	{"TE in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", RefusalTransferEncodingIn10},
	{"TE gzip", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", RefusalBadTransferEncoding},
	{"TE gzip, chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", RefusalUnknownTransferEncoding},
	{"TE twice", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", RefusalBadTransferEncoding},
	{"interim with CL (RFC 9110 8.6)", "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\n", RefusalBodyForbidden},
	{"interim with TE", "HTTP/1.1 100 Continue\r\nTransfer-Encoding: chunked\r\n\r\n", RefusalBodyForbidden},
	{"101 with TE", "HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\nTransfer-Encoding: chunked\r\n\r\n", RefusalBodyForbidden},
}

func TestResponseRefused(t *testing.T) {
	for _, c := range refusedResponses {
		t.Run(c.name, func(t *testing.T) {
			var r Response
			n, err := r.Parse([]byte(c.head), Limits{}, []byte("GET"))
			wantRefusal(t, n, err, c.want, 502)
			trickled := new(Response)
			wantTrickle(t, c.head, n, err, func(b []byte) (int, error) { return trickled.Parse(b, Limits{}, []byte("GET")) })
		})
	}
}

// responseSummary is the meaning of an accepted response header section.
type responseSummary struct {
	minor, status int
	phrase        string
	body          Framing
	length        int64
	closes, hop   bool
	keep          time.Duration
	upgrade       string
}

var acceptedResponses = []struct {
	name, method, head string
	want               responseSummary
}{
	{"length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", responseSummary{1, 200, "OK", Framing{BodyLength, 5}, 5, false, false, 0, ""}},
	{"length zero", "GET", "HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n", responseSummary{1, 500, "X", Framing{BodyLength, 0}, 0, false, false, 0, ""}},
	{"equal lengths (RFC 9112 6.3 rule 5)", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", responseSummary{1, 200, "OK", Framing{BodyLength, 5}, 5, false, false, 0, ""}},
	{"leading zeros (RFC 9110 8.6)", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0012\r\n\r\n", responseSummary{1, 200, "OK", Framing{BodyLength, 12}, 12, false, false, 0, ""}},
	{"chunked", "POST", "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", responseSummary{1, 200, "OK", Framing{Kind: BodyChunked}, -1, false, false, 0, ""}},
	{"until close (6.3 rule 8)", "GET", "HTTP/1.1 200 OK\r\n\r\n", responseSummary{1, 200, "OK", Framing{Kind: BodyClose}, -1, true, false, 0, ""}},
	{"until close despite keep-alive", "GET", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", responseSummary{0, 200, "OK", Framing{Kind: BodyClose}, -1, true, false, 0, ""}},
	{"HTTP/1.0 closes", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", responseSummary{0, 200, "OK", Framing{BodyLength, 1}, 1, true, false, 0, ""}},
	{"HTTP/1.0 keep-alive", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: Keep-Alive\r\n\r\n", responseSummary{0, 200, "OK", Framing{BodyLength, 1}, 1, false, false, 0, ""}},
	{"close", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: x, close\r\n\r\n", responseSummary{1, 200, "OK", Framing{BodyLength, 1}, 1, true, true, 0, ""}},
	{"higher minor version", "GET", "HTTP/1.7 200 OK\r\nContent-Length: 1\r\n\r\n", responseSummary{1, 200, "OK", Framing{BodyLength, 1}, 1, false, false, 0, ""}},

	{"empty phrase", "GET", "HTTP/1.1 404 \r\nContent-Length: 1\r\n\r\n", responseSummary{1, 404, "", Framing{BodyLength, 1}, 1, false, false, 0, ""}},
	{"no phrase and no space", "GET", "HTTP/1.1 404\r\nContent-Length: 1\r\n\r\n", responseSummary{1, 404, "", Framing{BodyLength, 1}, 1, false, false, 0, ""}},
	{"phrase with spaces and obs-text", "GET", "HTTP/1.1 404  pas trouv\xe9 \r\nContent-Length: 1\r\n\r\n", responseSummary{1, 404, " pas trouv\xe9 ", Framing{BodyLength, 1}, 1, false, false, 0, ""}},
	{"lowest and highest status", "GET", "HTTP/1.1 599 X\r\nContent-Length: 1\r\n\r\n", responseSummary{1, 599, "X", Framing{BodyLength, 1}, 1, false, false, 0, ""}},

	{"HEAD with length (RFC 9112 6.3 rule 1)", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", responseSummary{1, 200, "OK", Framing{}, 5, false, false, 0, ""}},
	{"HEAD with chunked", "HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", responseSummary{1, 200, "OK", Framing{}, -1, false, false, 0, ""}},
	{"HEAD with neither stays open", "HEAD", "HTTP/1.1 200 OK\r\n\r\n", responseSummary{1, 200, "OK", Framing{}, -1, false, false, 0, ""}},
	{"lower-case head is another method", "head", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", responseSummary{1, 200, "OK", Framing{BodyLength, 5}, 5, false, false, 0, ""}},
	{"304 with length", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", responseSummary{1, 304, "Not Modified", Framing{}, 5, false, false, 0, ""}},
	{"204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", responseSummary{1, 204, "No Content", Framing{}, -1, false, false, 0, ""}},
	{"204 with length zero", "GET", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", responseSummary{1, 204, "No Content", Framing{}, 0, false, false, 0, ""}},
	{"204 that announces a body is not reused", "GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", responseSummary{1, 204, "No Content", Framing{}, 5, true, false, 0, ""}},
	{"204 with chunked is not reused", "HEAD", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", responseSummary{1, 204, "No Content", Framing{}, -1, true, false, 0, ""}},
	{"205 has ordinary framing", "GET", "HTTP/1.1 205 X\r\nContent-Length: 0\r\n\r\n", responseSummary{1, 205, "X", Framing{BodyLength, 0}, 0, false, false, 0, ""}},

	{"100", "POST", "HTTP/1.1 100 Continue\r\n\r\n", responseSummary{1, 100, "Continue", Framing{}, -1, false, false, 0, ""}},
	{"100 with length zero", "POST", "HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n", responseSummary{1, 100, "Continue", Framing{}, 0, false, false, 0, ""}},
	{"101", "GET", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", responseSummary{1, 101, "Switching Protocols", Framing{}, -1, false, false, 0, "websocket"}},
	{"101 without Connection", "GET", "HTTP/1.1 101 X\r\nUpgrade: websocket\r\n\r\n", responseSummary{1, 101, "X", Framing{}, -1, false, false, 0, ""}},
	{"upgrade offered on 200 is no upgrade", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", responseSummary{1, 200, "OK", Framing{BodyLength, 0}, 0, false, false, 0, ""}},

	{"keep-alive timeout", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nKeep-Alive: Timeout=5, max=100\r\n\r\n", responseSummary{1, 200, "OK", Framing{BodyLength, 0}, 0, false, false, 5 * time.Second, ""}},
	{"keep-alive timeout last", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nKeep-Alive: max=100,timeout=61\r\n\r\n", responseSummary{1, 200, "OK", Framing{BodyLength, 0}, 0, false, false, 61 * time.Second, ""}},
	{"keep-alive timeout zero closes", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nKeep-Alive: timeout=0\r\n\r\n", responseSummary{1, 200, "OK", Framing{BodyLength, 0}, 0, true, false, 0, ""}},
	{"keep-alive timeout is capped", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nKeep-Alive: timeout=9223372036854775807\r\n\r\n", responseSummary{1, 200, "OK", Framing{BodyLength, 0}, 0, false, false, 24 * time.Hour, ""}},
	{"keep-alive garbage is ignored", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nKeep-Alive: timeout=, timeout=x, timeout\r\n\r\n", responseSummary{1, 200, "OK", Framing{BodyLength, 0}, 0, false, false, 0, ""}},
}

func TestResponseAccepted(t *testing.T) {
	for _, c := range acceptedResponses {
		t.Run(c.name, func(t *testing.T) {
			var r Response
			n, err := r.Parse([]byte(c.head+"body"), Limits{}, []byte(c.method))
			if err != nil || n != len(c.head) {
				t.Fatalf("n=%d err=%v, want n=%d", n, err, len(c.head))
			}
			if got := summarizeResponse(&r); got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			var trickled Response
			wantTrickle(t, c.head, n, err, func(b []byte) (int, error) { return trickled.Parse(b, Limits{}, []byte(c.method)) })
			if got := summarizeResponse(&trickled); got != c.want {
				t.Errorf("byte by byte: got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func summarizeResponse(r *Response) responseSummary {
	return responseSummary{r.Minor, r.Status, string(r.Phrase), r.Body, r.Length, r.Close, r.HasHopByHopNames, r.KeepAliveTimeout, string(r.Upgrade)}
}

func TestResponseLimits(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nA: b\r\n\r\n"
	for _, c := range []struct {
		name string
		head string
		lim  Limits
		want Refusal
	}{
		{"exact", head, Limits{HeaderBytes: len(head), Headers: 1}, 0},
		{"one byte over", head, Limits{HeaderBytes: len(head) - 1}, RefusalHeadersTooLarge},
		{"status line over", "HTTP/1.1 200 aaaaaaaaaa", Limits{HeaderBytes: 20}, RefusalHeadersTooLarge},
		{"one field over", "HTTP/1.1 200 OK\r\nA: b\r\nC: d\r\n\r\n", Limits{Headers: 1}, RefusalTooManyHeaders},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r Response
			n, err := r.Parse([]byte(c.head), c.lim, nil)
			if c.want != 0 {
				wantRefusal(t, n, err, c.want, 502)
			} else if n != len(c.head) || err != nil {
				t.Fatalf("n=%d err=%v", n, err)
			}
		})
	}
}

func TestInterim(t *testing.T) {
	for status, want := range map[int]bool{100: true, 101: false, 102: true, 103: true, 199: true, 200: false, 500: false} {
		if got := (&Response{Status: status}).Interim(); got != want {
			t.Errorf("Interim of %d = %v", status, got)
		}
	}
}

func TestResponseForgetsTheOneBefore(t *testing.T) {
	var r Response
	for _, head := range []string{
		"HTTP/1.0 101 X\r\nConnection: upgrade, x\r\nUpgrade: y\r\nKeep-Alive: timeout=5\r\n\r\n",
		"HTTP/1.1 200 \r\nContent-Length: 7\r\n\r\n",
	} {
		if _, err := r.Parse([]byte(head), Limits{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := summarizeResponse(&r), (responseSummary{1, 200, "", Framing{BodyLength, 7}, 7, false, false, 0, ""}); got != want || len(r.Headers) != 1 {
		t.Errorf("got %+v with %d fields, want %+v", got, len(r.Headers), want)
	}
	if v, ok := r.Lookup("content-length"); string(v) != "7" || !ok || string(r.Get(ContentLength)) != "7" {
		t.Errorf("Lookup = %q, %v; Get = %q", v, ok, r.Get(ContentLength))
	}
	r.Reset()
	if len(r.Headers) != 0 || cap(r.Headers) == 0 || r.Headers[:1][0].Name != nil || r.Headers[:1][0].Value != nil || r.Headers[:1][0].ID != ContentLength {
		t.Errorf("after Reset: %+v", r)
	}
}

// a header section that never came whole must not delay the reading of the next one.
func TestRestartForgetsUnfinishedHeaders(t *testing.T) {
	var r Response
	if n, err := r.Parse([]byte("HTTP/1.1 200 OK\r\nServer: long enough\r\n"), Limits{}, nil); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	r.Restart()
	const head = "HTTP/1.1 204 None\r\n\r\n"
	if n, err := r.Parse([]byte(head+"and what follows it, to some length"), Limits{}, nil); n != len(head) || err != nil || r.Status != 204 {
		t.Fatal(n, err, r.Status)
	}
}

// a header section of which all lines end with LF alone means what it means with CRLF, and goes on with that.
func TestResponseHeadersEndedByLF(t *testing.T) {
	for _, head := range []string{
		"HTTP/1.1 200 OK\nContent-Length: 2\n\n",
		"HTTP/1.1 200\n\n",
		"HTTP/1.0 999 Request denied\nX:a\nY:  b \t\nZ:\nContent-Length: 0\n\n",
		"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nset-cookie: a\nset-cookie: b\n\n",
		"HTTP/1.1 103 Early Hints\nLink: </a>\n\n",
	} {
		var byLF, byCRLF Response
		n, err := byLF.Parse([]byte(head+"ok"), Limits{}, []byte("GET"))
		if err != nil || n != len(head) {
			t.Fatalf("%q: %d, %v", head, n, err)
		}
		trickled := new(Response)
		wantTrickle(t, head, n, err, func(b []byte) (int, error) { return trickled.Parse(b, Limits{}, []byte("GET")) })
		if _, err := byCRLF.Parse([]byte(strings.ReplaceAll(head, "\n", "\r\n")), Limits{}, []byte("GET")); err != nil {
			t.Fatal(err)
		}
		var got, want []byte
		for i := range byLF.Headers {
			got, want = byLF.Headers[i].AppendLine(got), AppendHeader(want, byCRLF.Headers[i].Name, byCRLF.Headers[i].Value)
		}
		if string(got) != string(want) || byLF.Body != byCRLF.Body || byLF.Status != byCRLF.Status || byLF.Close != byCRLF.Close || string(byLF.Phrase) != string(byCRLF.Phrase) {
			t.Errorf("%q: %+v and %q, want %+v and %q", head, byLF, got, byCRLF, want)
		}
	}
}
