package contentcoding

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// encoders make a body of each coding.
var encoders = map[string]func(io.Writer) io.WriteCloser{
	"gzip":   func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"X-Gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"br":     func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) },
	"zstd": func(w io.Writer) io.WriteCloser {
		z, _ := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		return z
	},
	"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
	"Deflate": func(w io.Writer) io.WriteCloser {
		f, _ := flate.NewWriter(w, 6)
		return f
	},
}

func encode(t *testing.T, coding, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := encoders[coding](&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestDecode(t *testing.T) {
	const size = 100
	for coding := range encoders {
		for range 2 { // the second use is of a pooled decoder
			for _, text := range []string{"", "hello", strings.Repeat("x", size), strings.Repeat("0123456789", 100_000)} {
				if got := Decode(make([]byte, 0, size), encode(t, coding, text), []byte(coding)); string(got) != text[:min(len(text), size)] {
					t.Errorf("%s: %q of %.20q...", coding, got, text)
				}
			}
			body := encode(t, coding, "hello")
			for cut := range body {
				if got := Decode(make([]byte, 0, size), body[:cut], []byte(coding)); !strings.HasPrefix("hello", string(got)) {
					t.Errorf("%s, cut off after %d: %q", coding, cut, got)
				}
			}
			if got := Decode(make([]byte, 0, size), []byte(`{"plain":"text"}`), []byte(coding)); strings.Contains(string(got), "plain") {
				t.Errorf("%s: %q of a text", coding, got)
			}
		}
	}
	for _, coding := range []string{"", "identity", "gzip, br", "compress", "dcb"} {
		if got := Decode(make([]byte, 0, size), []byte("hello"), []byte(coding)); len(got) != 0 {
			t.Errorf("%q: %q", coding, got)
		}
	}
}

// No body makes it panic, wait or exceed the capacity.
func FuzzDecode(f *testing.F) {
	f.Add("gzip", []byte("\x1f\x8b\x08"))
	f.Add("zstd", []byte("\x28\xb5\x2f\xfd"))
	f.Add("br", []byte("\x0b\x02\x80hello\x03"))
	f.Add("deflate", []byte("\x78\x9c"))
	f.Fuzz(func(t *testing.T, coding string, body []byte) {
		if got := Decode(make([]byte, 3, 64), body, []byte(coding)); len(got) > 64 {
			t.Errorf("%d bytes", len(got))
		}
	})
}
