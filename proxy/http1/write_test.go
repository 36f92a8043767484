package http1

import (
	"slices"
	"strings"
	"testing"
)

func TestAppend(t *testing.T) {
	x := []byte("x")
	for _, c := range []struct{ name, got, want string }{
		{"field of strings", string(AppendHeader(x, "A", "b")), "xA: b\r\n"},
		{"field of bytes", string(AppendHeader(x, []byte("A"), []byte(""))), "xA: \r\n"},
		{"field of both", string(AppendHeader(nil, "A", []byte("b"))), "A: b\r\n"},
		{"number", string(AppendIntHeader(nil, "Age", 1<<62)), "Age: 4611686018427387904\r\n"},
		{"no number", string(AppendIntHeader(x, "A", 0)), "xA: 0\r\n"},
		{"two digits", string(AppendIntHeader(x, "A", 10)), "xA: 10\r\n"},
		{"the largest number", string(AppendIntHeader(nil, "A", 1<<63-1)), "A: 9223372036854775807\r\n"},
		{"a negative number", string(AppendIntHeader(nil, "A", -1)), "A: -1\r\n"},
		{"the least number", string(AppendIntHeader(nil, "A", -1<<63)), "A: -9223372036854775808\r\n"},
		{"request line", string(AppendRequestLine(x, "GET", []byte("/a?b"))), "xGET /a?b HTTP/1.1\r\n"},
		{"status line", string(AppendStatusLine(nil, 404, "Not Found")), "HTTP/1.1 404 Not Found\r\n"},
		{"the usual status line", string(AppendStatusLine(x, 200, "OK")), "xHTTP/1.1 200 OK\r\n"},
		{"its phrase with another status", string(AppendStatusLine(nil, 201, "OK")), "HTTP/1.1 201 OK\r\n"},
		{"its status with another phrase", string(AppendStatusLine(nil, 200, "Ok")), "HTTP/1.1 200 Ok\r\n"},
		{"status line without phrase", string(AppendStatusLine(nil, 200, []byte(nil))), "HTTP/1.1 200 \r\n"},
		{"no body", string(AppendFraming(x, Framing{})), "x"},
		{"until close", string(AppendFraming(x, Framing{Kind: BodyClose})), "x"},
		{"empty body", string(AppendFraming(nil, Framing{Kind: BodyLength})), "Content-Length: 0\r\n"},
		{"length", string(AppendFraming(nil, Framing{BodyLength, 12})), "Content-Length: 12\r\n"},
		{"chunked", string(AppendFraming(nil, Framing{Kind: BodyChunked})), "Transfer-Encoding: chunked\r\n"},
		{"chunk", string(AppendChunk(x, []byte(strings.Repeat("y", 26)))), "x1a\r\n" + strings.Repeat("y", 26) + "\r\n"},
		{"empty chunk would end the body", string(AppendChunk(x, nil)), "x"},
		{"chunk size", string(AppendChunkSize(nil, 1<<63-1)), "7fffffffffffffff\r\n"},
		{"last chunk", string(AppendLastChunk(x, nil)), "x0\r\n\r\n"},
		{"last chunk with trailers", string(AppendLastChunk(nil, []Header{NewHeader("A", "b"), NewHeader("C", "d")})), "0\r\nA: b\r\nC: d\r\n\r\n"},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, c.got, c.want)
		}
	}
}

// a header section written from what was parsed is read again as the same head.
func TestWrittenHeadersReadTheSame(t *testing.T) {
	for _, c := range acceptedRequests {
		var first, second Request
		if _, err := first.Parse([]byte(c.head), Limits{}); err != nil {
			t.Fatal(c.name, err)
		}
		head := AppendRequestLine(nil, first.Method, first.Target)
		for _, f := range first.Headers {
			head = AppendHeader(head, f.Name, f.Value)
		}
		head = append(head, "\r\n"...)
		if first.Minor == 0 {
			continue // written as 1.1, where other rules hold
		}
		n, err := second.Parse(head, Limits{})
		if err != nil || n != len(head) || summary(&second) != summary(&first) || !equalHeaders(first.Headers, second.Headers) {
			t.Errorf("%s: %q: n=%d err=%v", c.name, head, n, err)
		}
	}
}

func TestFramingEmpty(t *testing.T) {
	for f, want := range map[Framing]bool{
		{}: true, {Kind: BodyLength}: true, {BodyLength, 1}: false, {Kind: BodyChunked}: false, {Kind: BodyClose}: false,
	} {
		if f.Empty() != want {
			t.Errorf("Empty of %v = %v", f, !want)
		}
	}
}

func TestKindAndFormLabels(t *testing.T) {
	for got, want := range map[string]string{
		BodyNone.String(): "none", BodyLength.String(): "length", BodyChunked.String(): "chunked", BodyClose.String(): "close", Kind(9).String(): "unknown",
		Origin.String(): "origin", Absolute.String(): "absolute", Asterisk.String(): "asterisk",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A line is copied whole only where that is what its parts would make.
func TestALineIsItsParts(t *testing.T) {
	var r Request
	lines := []string{"Host: a", "X-A: b c", "X-B:c", "X-J:c ", "X-K:", "X-L:\t", "X-C:  d", "X-D:\te", "X-E: f ", "X-F: g\t", "X-G:", "X-H: ", "X-I:\t ", "Accept: x", "accept:x", "Cookie: \tx"}
	for range 2 { // the second time into the same fields, the other way round
		slices.Reverse(lines)
		head := "GET / HTTP/1.1\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
		if n, err := r.Parse([]byte(head), Limits{}); n == 0 || err != nil {
			t.Fatal(n, err)
		}
		for i := range r.Headers {
			f := &r.Headers[i]
			if got, want := string(f.AppendLine([]byte("x"))), string(AppendHeader([]byte("x"), f.Name, f.Value)); got != want {
				t.Errorf("%q was written as %q, want %q", lines[i], got, want)
			}
		}
	}
	for n := range 20 {
		made := NewHeader("A", strings.Repeat("b", n))
		if got, want := string(made.AppendLine(nil)), string(AppendHeader(nil, "A", made.Value)); got != want {
			t.Errorf("a field that was made is written as %q, want %q", got, want)
		}
	}
}
