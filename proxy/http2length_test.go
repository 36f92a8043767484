package proxy

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// net/http takes a content-length of HTTP/2 that is no number for 0: the request
// would go on as a whole one without the body that its caller sends. And a length with a stream that
// ended with its head is a body that never comes.
func TestHTTP2LengthsThatAreNoneAreRefused(t *testing.T) {
	p := startProxy(t, startUpstream(t, script(ok200)), speakHTTP2)
	for _, tc := range []struct {
		lengths string // with blanks between those of several fields
		ended   bool   // with its head
		status  string
	}{
		{"5", false, "200"}, {"", false, "200"}, {"-1", false, "400"}, {"+5", false, "400"}, {"5,5", false, "400"}, {"0x5", false, "400"}, {"99999999999999999999", false, "400"},
		{"a", false, "400"}, {"5 5", false, "400"}, {"5 6", false, "400"},
		{"0", true, "200"}, {"", true, "200"}, {"5", true, "400"}, {"0 5", true, "400"}, {"5 0", true, "400"}, {"-1", true, "400"},
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
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true, EndStream: tc.ended})
		if tc.status == "200" && !tc.ended {
			_ = f.WriteData(1, true, []byte("hello"))
		}
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatalf("%q, ended %v: %v", tc.lengths, tc.ended, err)
			}
			if m, is := frame.(*http2.MetaHeadersFrame); is {
				if got := m.PseudoValue("status"); got != tc.status {
					t.Errorf("%q, ended %v: %s, want %s", tc.lengths, tc.ended, got, tc.status)
				}
				break
			}
		}
	}
}
