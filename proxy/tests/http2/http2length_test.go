package http2

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// net/http reads a content-length of HTTP/2 that is not a number as 0: the request would be
// forwarded as a complete one, without the body that its client sends. A length on a stream that
// ended with its headers announces a body that never arrives.
func TestHTTP2LengthsThatAreNoneAreRefused(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, peers.SpeakHTTP2)
	for _, tc := range []struct {
		lengths string // with blanks between those of several fields
		ended   bool   // with its head
		status  string
	}{
		{"5", false, "200"}, {"", false, "200"}, {"-1", false, "400"}, {"+5", false, "400"}, {"5,5", false, "400"}, {"0x5", false, "400"}, {"99999999999999999999", false, "400"}, {"05", false, "400"}, {"005", false, "400"}, {"00", true, "400"},
		{"a", false, "400"}, {"5 5", false, "200"}, {"5 5", true, "400"}, {"5 05", false, "400"}, {"5 6", false, "400"},
		{"0", true, "200"}, {"", true, "200"}, {"5", true, "400"}, {"0 5", true, "400"}, {"5 0", true, "400"}, {"-1", true, "400"},
	} {
		before := u.Sends()
		c := p.Dial()
		f := http2.NewFramer(c.Conn, c.Reader)
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		var headers bytes.Buffer
		enc := hpack.NewEncoder(&headers)
		for _, field := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		for length := range strings.FieldsSeq(tc.lengths) {
			_ = enc.WriteField(hpack.HeaderField{Name: "content-length", Value: length})
		}
		c.Send(http2.ClientPreface)
		_ = f.WriteSettings()
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes(), EndHeaders: true, EndStream: tc.ended})
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
				if sent := u.Sends() > before; sent != (tc.status == "200") {
					t.Errorf("%q, ended %v: the upstream got it: %v", tc.lengths, tc.ended, sent)
				}
				break
			}
		}
	}
}

// A body that is declared to be empty and is not is never sent upstream: over HTTP/1.1 its bytes
// would be another request. The end of the stream is awaited.
func TestHTTP2BodiesThatAreDeclaredEmptyHaveToBe(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200, peers.OK200))
	p := proxytest.Start(t, u, peers.SpeakHTTP2)
	c := p.DialFrames(t)
	id := c.Begin("POST", "/", false, "content-length", "0")
	_ = c.WriteData(id, true, []byte("GET /smuggled HTTP/1.1\r\n\r\n"))
	if code := <-c.Resets; code != http2.ErrCodeProtocol {
		t.Errorf("reset with %v", code)
	}
	id = c.Begin("POST", "/", false, "content-length", "0")
	c.Heard()
	if u.Sends() != 0 {
		t.Error("sent before its end")
	}
	_ = c.WriteData(id, true, nil)
	if status := <-c.Statuses; status != "200" || u.Sends() != 1 {
		t.Errorf("%s after %d sends", status, u.Sends())
	}
	c.Begin("POST", "/", true, "content-length", "0")
	if status := <-c.Statuses; status != "200" || u.Sends() != 2 {
		t.Errorf("%s after %d sends", status, u.Sends())
	}
}

// Fields about the connection or the framing in a trailer never reach the upstream, as over HTTP/1.1.
func TestHTTP2TrailersAboutTheFramingAreNotForwarded(t *testing.T) {
	for _, name := range []string{"transfer-encoding", "connection", "content-length"} {
		for _, declared := range []string{"", "x-sum", name} {
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				body := c.Head()
				line, err := "", error(nil)
				for err == nil && line != "\r\n" {
					line, err = c.Reader.ReadString('\n')
					body += line
				}
				if _, behind, _ := strings.Cut(body, "\r\n\r\n"); strings.Contains(strings.ToLower(behind), name) {
					t.Errorf("%s, declared %q: sent %q", name, declared, body)
				}
				c.Say(peers.OK200)
			})
			p := proxytest.Start(t, u, peers.SpeakHTTP2)
			c := p.DialFrames(t)
			var fields []string
			if declared != "" {
				fields = []string{"trailer", declared}
			}
			id := c.Begin("POST", "/", false, fields...)
			_ = c.WriteData(id, false, []byte("hello"))
			c.Block.Reset()
			_ = c.Enc.WriteField(hpack.HeaderField{Name: name, Value: "chunked"})
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.Block.Bytes(), EndStream: true, EndHeaders: true})
			select {
			case <-c.Statuses: // it was left out
			case <-c.Resets:
			}
		}
	}
}

// The last piece of a body with a length ends the stream: no frame without content comes behind it.
func TestHTTP2BodiesEndWithTheirLastPiece(t *testing.T) {
	const length = 100_000
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("x", length))), peers.SpeakHTTP2)
	c := p.Dial()
	f := http2.NewFramer(c.Conn, c.Reader)
	var headers bytes.Buffer
	enc := hpack.NewEncoder(&headers)
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	c.Send(http2.ClientPreface)
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: length})
	_ = f.WriteWindowUpdate(0, length)
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes(), EndHeaders: true, EndStream: true})
	for got, ended := 0, false; !ended; {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if d, is := frame.(*http2.DataFrame); is {
			got, ended = got+len(d.Data()), d.StreamEnded()
			if len(d.Data()) == 0 || ended != (got == length) {
				t.Fatalf("a frame of %d bytes, %d in all; ended %v", len(d.Data()), got, ended)
			}
		}
	}
}
