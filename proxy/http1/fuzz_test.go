package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"testing"
)

// The fuzz targets hold the package against net/http on the same bytes. Whatever we accept, net/http must accept, with the same
// meaning, the same body and the same end. We may refuse more. The differences that are meant, all of them on our side of
// strictness or named in the docs:
//
//   - Up to emptyLines empty lines before a request line are skipped here (RFC 9112 section 2.2); net/http's server skips one, ReadRequest none.
//   - HTTP/1.2 to 1.9 read as 1.1 here; net/http keeps the number.
//   - Forbidden trailer fields are dropped here (RFC 9110 section 6.5.1) and kept by net/http.
//   - A 204 that announces a body, and Keep-Alive: timeout=0, set Close here only. So does a body that ends with the connection.
//   - net/http does not send a Host of HTTP/1.0 requests anywhere else, drops Connection and fixes Pragma; such fields are not compared.

// wideReader is wide enough that no limit of bufio stands in for a limit of net/http.
func wideReader(b []byte) *bufio.Reader { return bufio.NewReaderSize(bytes.NewReader(b), 1<<17) }

func FuzzRequest(f *testing.F) {
	for _, c := range refusedRequests {
		f.Add([]byte(c.head), uint16(len(c.head)/2))
	}
	for _, c := range acceptedRequests {
		f.Add([]byte(c.head+"body"), uint16(len(c.head)-1))
	}
	for _, c := range acceptedChunked {
		f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"+c.wire), uint16(40))
	}
	f.Add([]byte("0 / HTTP/1.1\r\nHost:0\r\nTrAnsfer-EnCoding:Chunked\r\n\r\n0\r\n"), uint16(9)) // cut off in the trailers
	f.Add([]byte(typicalRequest), uint16(300))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		var r Request
		n, err := r.Parse(b, Limits{})
		checkPrefix(t, b, int(cut), n, err, func(b []byte) (int, error) { return new(Request).Parse(b, Limits{}) })
		if n == 0 || err != nil {
			return
		}
		compareRequest(t, &r, b, n)
	})
}

// checkPrefix checks what Parse says of a part of b: a verdict given early is the verdict on the whole.
func checkPrefix(t *testing.T, b []byte, cut, n int, err error, parse func([]byte) (int, error)) {
	t.Helper()
	cut = min(cut, len(b))
	pn, perr := parse(b[:cut])
	switch {
	case perr != nil && err != perr:
		t.Fatalf("first %d bytes refused as %v, the whole gave n=%d err=%v", cut, perr, n, err)
	case pn != 0 && (pn != n || err != nil):
		t.Fatalf("first %d bytes gave n=%d, the whole n=%d err=%v", cut, pn, n, err)
	case err == nil && n > 0 && cut < n && pn != 0:
		t.Fatalf("head of %d bytes was whole after %d", n, cut)
	case err == nil && n > 0 && cut >= n && pn != n:
		t.Fatalf("head of %d bytes was not whole after %d", n, cut)
	}
}

func compareRequest(t *testing.T, r *Request, b []byte, n int) {
	b, rest := bytes.TrimLeft(b, "\r\n"), b[n:] // a CR or LF alone is refused before
	br := wideReader(b)
	theirs, err := http.ReadRequest(br)
	if err != nil {
		t.Fatalf("net/http refuses %q: %v", b, err)
	}
	switch {
	case theirs.Method != string(r.Method), theirs.RequestURI != string(r.Target), theirs.Host != string(r.Authority):
		t.Fatalf("method, target or authority of %q: %q %q %q", b, r.Method, r.Target, r.Authority)
	case theirs.ProtoMajor != 1, min(theirs.ProtoMinor, 1) != r.Minor:
		t.Fatalf("version of %q: 1.%d", b, r.Minor)
	case theirs.Close != r.Close:
		t.Fatalf("Close of %q: %v", b, r.Close)
	case r.HasQuery && theirs.URL.RawQuery != string(r.Query), !r.HasQuery && theirs.URL.RawQuery != "":
		t.Fatalf("query of %q: %q", b, r.Query)
	}
	compareHeaders(t, b, r.Headers, theirs.Header)
	compareFraming(t, b, r.Body, theirs.ContentLength, theirs.TransferEncoding)
	trailer := func() http.Header { return theirs.Trailer }
	compareBody(t, b, r.Body, rest, theirs.Body, br, trailer)
}

func FuzzResponse(f *testing.F) {
	for _, c := range refusedResponses {
		f.Add([]byte(c.head), uint16(len(c.head)/2), false)
	}
	for _, c := range acceptedResponses {
		f.Add([]byte(c.head+"body"), uint16(len(c.head)-1), c.method == "HEAD")
	}
	for _, c := range acceptedChunked {
		f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+c.wire), uint16(40), false)
	}
	f.Add([]byte(typicalResponse), uint16(200), false)
	f.Fuzz(func(t *testing.T, b []byte, cut uint16, head bool) {
		method := "GET"
		if head {
			method = "HEAD"
		}
		var r Response
		n, err := r.Parse(b, Limits{}, []byte(method))
		checkPrefix(t, b, int(cut), n, err, func(b []byte) (int, error) { return new(Response).Parse(b, Limits{}, []byte(method)) })
		if n == 0 || err != nil {
			return
		}
		compareResponse(t, &r, b, n, method)
	})
}

func compareResponse(t *testing.T, r *Response, b []byte, n int, method string) {
	rest := b[n:]
	br := wideReader(b)
	theirs, err := http.ReadResponse(br, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("net/http refuses %q: %v", b, err)
	}
	switch {
	case theirs.StatusCode != r.Status, theirs.ProtoMajor != 1, min(theirs.ProtoMinor, 1) != r.Minor:
		t.Fatalf("status or version of %q: %d, 1.%d", b, r.Status, r.Minor)
	case theirs.Close && !r.Close:
		t.Fatalf("%q closes for net/http, not for us", b)
	}
	compareHeaders(t, b, r.Headers, theirs.Header)
	if r.Body.Kind == BodyLength || r.Body.Kind == BodyChunked {
		compareFraming(t, b, r.Body, theirs.ContentLength, theirs.TransferEncoding)
	}
	trailer := func() http.Header { return theirs.Trailer }
	compareBody(t, b, r.Body, rest, theirs.Body, br, trailer)
}

func FuzzChunked(f *testing.F) {
	for _, c := range acceptedChunked {
		f.Add([]byte(c.wire+"rest"), uint8(3))
	}
	for _, c := range refusedChunked {
		f.Add([]byte(c.wire), uint8(1))
	}
	const head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		var inPieces, at1 Chunked
		body1, n1, err1 := decode(&at1, b, whole)
		body2, n2, err2 := decode(&inPieces, b, func() int { return int(step) + 1 })
		if !bytes.Equal(body1, body2) || n1 != n2 || err1 != err2 || at1.Done() != inPieces.Done() || !equalHeaders(at1.Trailers(), inPieces.Trailers()) {
			t.Fatalf("%q at once: %q %d %v, by %d: %q %d %v", b, body1, n1, err1, int(step)+1, body2, n2, err2)
		}
		if !at1.Done() {
			return
		}
		var again Chunked
		wire := AppendLastChunk(AppendChunk(nil, body1), at1.Trailers())
		body3, n3, err3 := decode(&again, wire, whole)
		if err3 != nil || n3 != len(wire) || !bytes.Equal(body1, body3) || !equalHeaders(at1.Trailers(), again.Trailers()) {
			t.Fatalf("%q written again as %q reads %q, %v", b, wire, body3, err3)
		}
		br := wideReader(append([]byte(head), b...))
		theirs, err := http.ReadRequest(br)
		if err != nil {
			t.Fatal(err)
		}
		compareBody(t, b, Framing{Kind: BodyChunked}, b, theirs.Body, br, func() http.Header { return theirs.Trailer })
	})
}

// compareHeaders checks that every field of ours is there for net/http, with equal values in equal order.
func compareHeaders(t *testing.T, b []byte, ours []Header, theirs http.Header) {
	t.Helper()
	byName := map[string][]string{}
	for _, f := range ours {
		k := textproto.CanonicalMIMEHeaderKey(string(f.Name))
		byName[k] = append(byName[k], string(f.Value))
	}
	for k, values := range byName {
		switch k {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Connection":
			continue // taken out of the header, or merged, by net/http
		}
		if !slices.Equal(values, theirs[k]) {
			t.Fatalf("%s in %q: %q, net/http has %q", k, b, values, theirs[k])
		}
	}
	for k := range theirs {
		if _, ok := byName[k]; !ok && k != "Cache-Control" { // made from Pragma by net/http
			t.Fatalf("%q: net/http sees %s, we do not", b, k)
		}
	}
}

func compareFraming(t *testing.T, b []byte, ours Framing, length int64, codings []string) {
	t.Helper()
	var want Framing
	switch {
	case slices.Equal(codings, []string{"chunked"}):
		want.Kind = BodyChunked
	case length > 0:
		want = Framing{BodyLength, length}
	case length < 0:
		want.Kind = BodyClose
	}
	if ours == (Framing{Kind: BodyLength}) {
		ours.Kind = BodyNone // net/http does not tell these apart
	}
	if ours != want {
		t.Fatalf("framing of %q: %v, net/http has %v", b, ours, want)
	}
}

// compareBody reads the body from rest by our framing. When it is whole, net/http must read the same bytes and end at the same place.
func compareBody(t *testing.T, b []byte, f Framing, rest []byte, theirs io.Reader, br *bufio.Reader, trailer func() http.Header) {
	t.Helper()
	var c Chunked
	var ours []byte
	consumed := 0
	switch f.Kind {
	case BodyLength:
		if f.Length > int64(len(rest)) {
			wantCutOff(t, b, theirs)
			return
		}
		consumed = int(f.Length)
		ours = rest[:consumed]
	case BodyChunked:
		var err error
		ours, consumed, err = decode(&c, rest, whole)
		if err != nil {
			return
		}
		if !c.Done() {
			wantCutOff(t, b, theirs)
			return
		}
	case BodyClose:
		ours, consumed = rest, len(rest)
	}
	body, err := io.ReadAll(theirs)
	if err != nil || !bytes.Equal(body, ours) {
		t.Fatalf("body of %q: %q, net/http has %q, %v", b, ours, body, err)
	}
	left, _ := io.ReadAll(br)
	if !bytes.Equal(left, rest[consumed:]) {
		t.Fatalf("after the body of %q: %q, net/http has %q", b, rest[consumed:], left)
	}
	for _, f := range c.Trailers() {
		if k := textproto.CanonicalMIMEHeaderKey(string(f.Name)); !slices.Contains(trailer()[k], string(f.Value)) {
			t.Fatalf("trailer %s of %q: %q, net/http has %q", k, b, f.Value, trailer()[k])
		}
	}
}

// wantCutOff checks that a body we hold to be unfinished is not whole for net/http either. Its error may be another one than
// io.ErrUnexpectedEOF: it has one of its own inside trailers, and finds some faults earlier.
func wantCutOff(t *testing.T, b []byte, theirs io.Reader) {
	t.Helper()
	if body, err := io.ReadAll(theirs); err == nil {
		t.Fatalf("%q is cut off for us; net/http reads %q, %v", b, body, err)
	}
}
