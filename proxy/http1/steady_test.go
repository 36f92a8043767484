package http1

import (
	"strings"
	"testing"
)

// The promise of the package comment: nothing is allocated in steady state.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	request, response, get := []byte(typicalRequest), []byte(typicalResponse), []byte("GET")
	ipv6 := []byte("GET http://[2001:db8::1]:80/a?b HTTP/1.1\r\nHost: [::ffff:1.2.3.4]\r\nConnection: close, x\r\nTE: trailers\r\n\r\n")
	refused := []byte("GET / HTTP/1.1\r\nHost: a b\r\n\r\n")
	body := []byte("5;a\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n")
	var req Request
	var res Response
	var c Chunked
	var out []byte
	for name, f := range map[string]func(){
		"request":           func() { mustParse(t, &req, request) },
		"request by pieces": func() { _, _ = req.Parse(request[:100], Limits{}); mustParse(t, &req, request) },
		"request, IPv6":     func() { mustParse(t, &req, ipv6) },
		"request, refused":  func() { _, _ = req.Parse(refused, Limits{}) },
		"requests, two":     func() { mustParse(t, &req, request); mustParse(t, &req, ipv6) },
		"request reset":     func() { req.Reset(); mustParse(t, &req, request) },
		"response":          func() { _, _ = res.Parse(response, Limits{}, get) },
		"lookups": func() {
			_, _ = req.Lookup("x-request-id")
			_ = req.Get(Cookie)
			_ = HasToken(typicalList, "close")
		},
		"names": func() { _ = LookupHeaderName(twinName) },
		"chunked": func() {
			c.Reset(Limits{})
			for p := body; !c.Done(); {
				n, _, err := c.Next(p)
				if err != nil || n == 0 {
					t.Fatal(n, err)
				}
				p = p[n:]
			}
		},
		"written": func() {
			out = AppendStatusLine(out[:0], 200, "OK")
			out = AppendHeader(out, "Server", response)
			out = AppendFraming(out, Framing{BodyLength, 5})
			out = AppendChunk(out, body)
			out = AppendLastChunk(out, req.Headers)
		},
	} {
		f()
		if n := testing.AllocsPerRun(200, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

var (
	typicalList = []byte("keep-alive, upgrade")
	twinName    = []byte("X_Forwarded_For")
)

func mustParse(t *testing.T, r *Request, buf []byte) {
	if n, err := r.Parse(buf, Limits{}); n != len(buf) || err != nil {
		t.Fatal(n, err)
	}
}

// Trickled bytes cost linear work. Work is counted as bytes read again from the start of the header section, not as time.
func TestTrickledHeadersAreParsedInLinearTime(t *testing.T) {
	buf := largestHeaders()
	var p headerProgress
	read := 0
	for k := 1; k <= len(buf); k++ {
		if p.shouldParse(buf[:k]) {
			read += k
			p.incomplete(buf[:k])
		}
	}
	if read > 4*len(buf) {
		t.Errorf("%d bytes read for a head of %d", read, len(buf))
	}
}

// Between readings Parse only searches: what it remembers says which call read.
func TestParseWaitsForTwiceTheBytes(t *testing.T) {
	head := []byte("GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	var req Request
	var res Response
	for k, want := range map[int]int32{10: 10, 11: 10, 19: 10, 20: 20, 39: 20, 40: 40} {
		req.Reset()
		for _, n := range []int{10, 20, 40} {
			if _, err := req.Parse(head[:min(n, k)], Limits{}); err != nil {
				t.Fatal(err)
			}
		}
		if req.pending != (headerProgress{searched: int32(k), lastParsed: want}) {
			t.Errorf("request of %d bytes: %+v, want it read at %d", k, req.pending, want)
		}
	}
	if _, err := res.Parse([]byte("HTTP/1.1 200 OK\r\n"), Limits{}, nil); err != nil || res.pending != (headerProgress{17, 17}) {
		t.Errorf("response: %+v, %v", res.pending, err)
	}
}

// A fault that trickles in is found before as many bytes again have come.
func TestTrickledFaultIsFoundWithinTwiceItsBytes(t *testing.T) {
	for _, c := range refusedRequests {
		k := 1
		for ; k <= len(c.head); k++ {
			if _, err := new(Request).Parse([]byte(c.head[:k]), Limits{}); err != nil {
				break
			}
		}
		padded := c.head[:k] + strings.Repeat("a", k)
		var r Request
		for n := 1; ; n++ {
			if n > len(padded) {
				t.Errorf("%s: shows after %d bytes, not found after %d", c.name, k, len(padded))
				break
			}
			if _, err := r.Parse([]byte(padded[:n]), Limits{}); err != nil {
				break
			}
		}
	}
}

// The end of a header section is noticed at its last byte, wherever the earlier reading stopped.
func TestProgressNoticesTheEnd(t *testing.T) {
	for _, end := range []string{"\r\n\r\n", "\n\n", "\r\n\n", "\n\r\n"} {
		head := "GET / HTTP/1.1\r\nHost: a" + end
		for cut := 1; cut < len(head); cut++ {
			var p headerProgress
			p.incomplete([]byte(head[:cut]))
			if !p.shouldParse([]byte(head)) {
				t.Errorf("end %q not noticed after a reading of %d bytes", end, cut)
			}
		}
	}
}

// A Request that was left in the middle of a header section and not Reset may be late, and must not be wrong.
func TestForgottenResetIsOnlyLate(t *testing.T) {
	var r Request
	if n, err := r.Parse([]byte("GET /one HTTP/1.1\r\nHost: a\r\nX: y"), Limits{}); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	other := "GET /2 HTTP/1.1\r\nHost: b\r\n\r\n"
	if n, err := r.Parse([]byte(other), Limits{}); n != len(other) || err != nil || string(r.Path) != "/2" {
		t.Fatalf("n=%d err=%v path=%s", n, err, r.Path)
	}
}
