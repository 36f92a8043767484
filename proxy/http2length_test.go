package proxy

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// net/http takes a content-length of HTTP/2 that is no number for 0: the request
// would go on as a whole one without the body that its caller sends.
func TestHTTP2LengthsThatAreNoneAreRefused(t *testing.T) {
	p := startProxy(t, startUpstream(t, script(ok200)), speakHTTP2)
	for _, tc := range []struct {
		lengths string // with blanks between those of several fields
		status  string
	}{
		{"5", "200"}, {"", "200"}, {"-1", "400"}, {"+5", "400"}, {"5,5", "400"}, {"0x5", "400"}, {"99999999999999999999", "400"}, {"a", "400"}, {"5 5", "400"}, {"5 6", "400"},
	} {
		c := p.dial()
		f := http2.NewFramer(c.Conn, c.r)
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		var head bytes.Buffer
		enc := hpack.NewEncoder(&head)
		for _, field := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		for length := range strings.FieldsSeq(tc.lengths) {
			_ = enc.WriteField(hpack.HeaderField{Name: "content-length", Value: length})
		}
		c.send(http2.ClientPreface)
		_ = f.WriteSettings()
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true})
		if tc.status == "200" {
			_ = f.WriteData(1, true, []byte("hello"))
		}
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatalf("%q: %v", tc.lengths, err)
			}
			if m, is := frame.(*http2.MetaHeadersFrame); is {
				if got := m.PseudoValue("status"); got != tc.status {
					t.Errorf("%q: %s, want %s", tc.lengths, got, tc.status)
				}
				break
			}
		}
	}
}
