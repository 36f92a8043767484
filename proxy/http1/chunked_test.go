package http1

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// decode feeds b to c in pieces: step gives the size of each next one. It stops at the end of the body, of b, or at a refusal.
func decode(c *Chunked, b []byte, step func() int) (body []byte, consumed int, err error) {
	for len(b) > 0 && !c.Done() {
		piece := b[:min(step(), len(b))]
		b = b[len(piece):]
		for len(piece) > 0 && !c.Done() {
			n, data, err := c.Next(piece)
			body = append(body, data...)
			consumed += n
			if err != nil {
				return body, consumed, err
			}
			if n == 0 && !c.Done() {
				panic("Next consumed nothing of a piece that is not empty")
			}
			piece = piece[n:]
		}
	}
	return body, consumed, nil
}

func whole() int { return 1 << 30 }
func one() int   { return 1 }

var acceptedChunked = []struct{ name, wire, body, trailers string }{
	{"empty body", "0\r\n\r\n", "", ""},
	{"one chunk", "5\r\nhello\r\n0\r\n\r\n", "hello", ""},
	{"two chunks", "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", "hello world", ""},
	{"size in either case", "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789", ""},
	{"leading zeros up to 16 digits", "0000000000000003\r\nabc\r\n0000000000000000\r\n\r\n", "abc", ""},
	{"data with line ends", "4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n", ""},
	{"extensions (RFC 9112 7.1.1)", "3;a=b;c=\"d;e\"\r\nabc\r\n0;x\r\n\r\n", "abc", ""},
	{"empty extension", "3;\r\nabc\r\n0\r\n\r\n", "abc", ""},
	{"trailers (7.1.2)", "0\r\nX-Sum: 1\r\nServer-Timing:  a \r\n\r\n", "", "X-Sum=1;Server-Timing=a;"},
	{"forbidden trailers are dropped (RFC 9110 6.5.1)",
		"0\r\nContent-Length: 5\r\nX: 1\r\nhost: b\r\nTransfer-Encoding: chunked\r\nAuthorization: x\r\ncontent_length: 9\r\nX-Retryproxy-Reason: x\r\nX-Forwarded-For: y\r\nY: 2\r\n\r\n", "", "X=1;Y=2;"},
}

var refusedChunked = []struct {
	name, wire string
	want       Refusal
}{
	{"no size", "\r\nabc", RefusalBadChunk},
	{"extension without size", ";a\r\n", RefusalBadChunk},
	{"size not hexadecimal", "g\r\n", RefusalBadChunk},
	{"0x prefix", "0x5\r\nhello\r\n", RefusalBadChunk},
	{"plus", "+5\r\nhello\r\n", RefusalBadChunk},
	{"minus", "-5\r\nhello\r\n", RefusalBadChunk},
	{"underscore", "1_0\r\n", RefusalBadChunk},
	{"space before size", " 5\r\nhello\r\n", RefusalBadChunk},
	{"space after size", "5 \r\nhello\r\n", RefusalBadChunk},
	{"space before extension", "5 ;a\r\nhello\r\n", RefusalBadChunk},
	{"comma list", "5,5\r\nhello\r\n", RefusalBadChunk},
	{"17 digits", "00000000000000005\r\nhello\r\n", RefusalChunkTooLarge},
	{"size of 2^63", "8000000000000000\r\n", RefusalChunkTooLarge},
	{"size of 2^64", "10000000000000000\r\n", RefusalChunkTooLarge},
	{"bare LF after size", "5\nhello\r\n", RefusalBareLF},
	{"bare LF in extension", "5;a\nhello\r\n", RefusalBareLF},
	{"bare CR after size", "5\rhello\r\n", RefusalBareCR},
	{"bare CR in extension", "5;a\rb\r\nhello\r\n", RefusalBareCR},
	{"NUL in extension", "5;a\x00\r\nhello\r\n", RefusalControlByte},
	{"data longer than size", "3\r\nhello\r\n", RefusalBadChunk},
	{"bare LF after data", "5\r\nhello\n0\r\n\r\n", RefusalBadChunk},
	{"another byte for CR after data", "5\r\nhellox\n0\r\n\r\n", RefusalBadChunk},
	{"bare CR after data", "5\r\nhello\r0\r\n\r\n", RefusalBadChunk},
	{"extension of 1025 bytes", "5;" + strings.Repeat("a", MaxChunkLine-1) + "\r\nhello\r\n", RefusalChunkExtensions},
	{"many extensions for little data", strings.Repeat("1;"+strings.Repeat("a", 1000)+"\r\nx\r\n", 9), RefusalChunkExtensions},
	{"bare LF in trailer", "0\r\nX: 1\n\r\n", RefusalBareLF},
	{"bare LF as last line", "0\r\n\n", RefusalBareLF},
	{"bare CR in trailer", "0\r\nX: 1\r2\r\n\r\n", RefusalBadTrailer},
	{"fold in trailer", "0\r\nX: 1\r\n 2\r\n\r\n", RefusalBadTrailer},
	{"trailer without colon", "0\r\nGET / HTTP/1.1\r\n\r\n", RefusalBadTrailer},
	{"trailers of 101 lines", "0\r\n" + strings.Repeat("X: 1\r\n", DefaultHeaders+1) + "\r\n", RefusalTrailersTooLarge},
	{"trailers of too many bytes", "0\r\nX: " + strings.Repeat("a", DefaultHeaderBytes), RefusalTrailersTooLarge},
}

func TestChunkedAccepted(t *testing.T) {
	for _, c := range acceptedChunked {
		t.Run(c.name, func(t *testing.T) {
			for _, step := range []func() int{whole, one} {
				var d Chunked
				body, n, err := decode(&d, []byte(c.wire+"NEXT"), step)
				if err != nil || !d.Done() || n != len(c.wire) || string(body) != c.body {
					t.Fatalf("body %q, %d of %d bytes, done %v, err %v", body, n, len(c.wire), d.Done(), err)
				}
				var got strings.Builder
				for _, f := range d.Trailers() {
					fmt.Fprintf(&got, "%s=%s;", f.Name, f.Value)
				}
				if got.String() != c.trailers {
					t.Errorf("trailers %q, want %q", got.String(), c.trailers)
				}
				if n, data, err := d.Next([]byte("NEXT")); n != 0 || data != nil || err != nil {
					t.Errorf("after the end: n=%d data=%q err=%v", n, data, err)
				}
			}
		})
	}
}

func TestChunkedRefused(t *testing.T) {
	for _, c := range refusedChunked {
		t.Run(c.name, func(t *testing.T) {
			for _, step := range []func() int{whole, one} {
				var d Chunked
				_, _, err := decode(&d, []byte(c.wire), step)
				wantRefusal(t, 0, err, c.want, c.want.Status())
				if _, _, again := d.Next([]byte("0\r\n\r\n")); again != err || d.Done() {
					t.Errorf("the refusal did not stay: err=%v done=%v", again, d.Done())
				}
			}
		})
	}
}

// A body is cut off unless Done, wherever it ends.
func TestChunkedCutOffIsNeverDone(t *testing.T) {
	wire := "5;a\r\nhello\r\n0\r\nX: 1\r\n\r\n"
	for k := range len(wire) {
		var d Chunked
		if _, n, err := decode(&d, []byte(wire[:k]), whole); err != nil || d.Done() || n != k {
			t.Errorf("cut at %d: consumed %d, done %v, err %v", k, n, d.Done(), err)
		}
	}
}

// Signed chunks as object stores send them have extensions on every chunk: their data pays for them, however long the body.
func TestChunkedExtensionsPaidByData(t *testing.T) {
	var c Chunked
	chunk := append([]byte("1000;chunk-signature="+strings.Repeat("a", 64)+"\r\n"), make([]byte, 4096)...)
	chunk = append(chunk, "\r\n"...)
	for range 1000 {
		if _, _, err := decode(&c, chunk, whole); err != nil {
			t.Fatal(err)
		}
	}
}

// One-byte chunks with short extensions are wasteful and legal; they must never run into the bound on extensions.
func TestChunkedSingleBytesForever(t *testing.T) {
	var c Chunked
	for range 100_000 {
		if _, _, err := decode(&c, []byte("1;a=b\r\nx\r\n"), whole); err != nil {
			t.Fatal(err)
		}
	}
}

func TestChunkedLargestChunkDoesNotOverflow(t *testing.T) {
	var c Chunked
	n, data, err := c.Next([]byte("7fffffffffffffff\r\nx"))
	if err != nil || n != 19 || string(data) != "x" || c.remaining != 1<<63-2 || c.overhead != 0 {
		t.Fatalf("n=%d data=%q err=%v left=%d unpaid=%d", n, data, err, c.remaining, c.overhead)
	}
}

func TestChunkedResetForgets(t *testing.T) {
	var c Chunked
	if _, _, err := decode(&c, []byte("0\r\nX: 1\r\n\r\n"), whole); err != nil || len(c.Trailers()) != 1 {
		t.Fatal(err, c.Trailers())
	}
	c.Reset(Limits{})
	body, _, err := decode(&c, []byte("2\r\nab\r\n0\r\n\r\n"), whole)
	if err != nil || string(body) != "ab" || !c.Done() || len(c.Trailers()) != 0 {
		t.Fatalf("body=%q err=%v trailers=%v", body, err, c.Trailers())
	}
	_, _, err = c.Next([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	c.Reset(Limits{})
	if _, _, err = c.Next([]byte("x")); err == nil {
		t.Fatal("no refusal")
	}
	c.Reset(Limits{})
	if _, _, err = c.Next([]byte("1")); err != nil {
		t.Fatalf("the refusal outlived Reset: %v", err)
	}
}

// Trailers are the one thing copied: they must survive the buffer they came in.
func TestTrailersOutliveTheBuffer(t *testing.T) {
	wire := []byte("0\r\nX-Sum: abc\r\n\r\n")
	var c Chunked
	if _, _, err := decode(&c, wire, func() int { return 3 }); err != nil {
		t.Fatal(err)
	}
	clear(wire)
	if f := c.Trailers()[0]; string(f.Name) != "X-Sum" || string(f.Value) != "abc" {
		t.Errorf("trailer became %q: %q", f.Name, f.Value)
	}
}

// What is written in any pieces is read back in any pieces, to the byte, with its trailers.
func TestChunkedRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 7))
	for range 300 {
		body := make([]byte, rng.IntN(3000))
		for i := range body {
			body[i] = byte(rng.Uint32())
		}
		var trailers []Header
		for i := range rng.IntN(4) {
			trailers = append(trailers, NewHeader(fmt.Sprintf("X-T%d", i), strings.Repeat("v", rng.IntN(9))))
		}
		var wire []byte
		for rest := body; len(rest) > 0; {
			k := 1 + rng.IntN(len(rest))
			wire = AppendChunk(wire, rest[:k])
			rest = rest[k:]
		}
		wire = AppendLastChunk(wire, trailers)
		var c Chunked
		got, n, err := decode(&c, append(wire, "rest"...), func() int { return 1 + rng.IntN(100) })
		if err != nil || !c.Done() || n != len(wire) || !bytes.Equal(got, body) || !equalHeaders(c.Trailers(), trailers) {
			t.Fatalf("%d bytes of body: %d back, %d of %d consumed, trailers %v, err %v", len(body), len(got), n, len(wire), c.Trailers(), err)
		}
	}
}

func equalHeaders(a, b []Header) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i].Name, b[i].Name) || !bytes.Equal(a[i].Value, b[i].Value) || a[i].ID != b[i].ID {
			return false
		}
	}
	return true
}

// However the bytes are split, payload, consumption and verdict are the same. Bytes are valid wire with a few of them changed.
func TestChunkedSplitInvariance(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 3))
	alphabet := []byte("0123456789abcdefg;\r\n \tX: \x00\xff")
	for range 2000 {
		wire := []byte("5;a=b\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\nX: 1\r\n\r\n")
		for range rng.IntN(4) {
			wire[rng.IntN(len(wire))] = alphabet[rng.IntN(len(alphabet))]
		}
		var a, b Chunked
		bodyA, nA, errA := decode(&a, wire, whole)
		bodyB, nB, errB := decode(&b, wire, func() int { return 1 + rng.IntN(7) })
		if !bytes.Equal(bodyA, bodyB) || nA != nB || !errors.Is(errB, errA) || a.Done() != b.Done() || !equalHeaders(a.Trailers(), b.Trailers()) {
			t.Fatalf("%q: whole %q %d %v %v, split %q %d %v %v", wire, bodyA, nA, errA, a.Done(), bodyB, nB, errB, b.Done())
		}
	}
}
