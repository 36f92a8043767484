package main

import (
	"bufio"
	"bytes"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames is a connection of HTTP/2, frame by frame.
type frames struct {
	*http2.Framer
	out  *bufio.Writer
	nc   net.Conn
	next uint32 // stream
	head bytes.Buffer
	enc  *hpack.Encoder
}

// hear says whether what the proxy says is read at all.
type hear bool

// http2 begins a connection of HTTP/2.
func (s *strike) http2(reads hear, settings ...http2.Setting) (*frames, error) {
	nc, err := s.dial()
	if err != nil {
		return nil, err
	}
	out := bufio.NewWriterSize(nc, 16*kib)
	f := &frames{Framer: http2.NewFramer(out, nc), out: out, nc: nc, next: 1}
	f.AllowIllegalWrites = true
	f.enc = hpack.NewEncoder(&f.head)
	if _, err := out.WriteString(http2.ClientPreface); err != nil {
		return nil, err
	}
	if err := f.WriteSettings(settings...); err != nil {
		return nil, err
	}
	if err := f.WriteSettingsAck(); err != nil { // of what it has not said yet
		return nil, err
	}
	if reads {
		go s.listen(http2.NewFramer(nil, nc))
	}
	return f, out.Flush()
}

// listen reads what the proxy says and counts what turns the attacker away: resets, and answers of 4xx and 5xx.
func (s *strike) listen(f *http2.Framer) {
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			s.resets.Add(1)
		case *http2.MetaHeadersFrame:
			if frame.PseudoValue("status") > "4" {
				s.resets.Add(1)
			}
		}
	}
}

// block is the fields of a request, with more if given (name, value).
func (f *frames) block(method, path string, more ...string) []byte {
	return f.fields(append([]string{":method", method, ":path", path, ":scheme", "http", ":authority", "bench.test"}, more...))
}

// fields is a head of names and values in turn, whatever they are.
func (f *frames) fields(pairs []string) []byte {
	f.head.Reset()
	for i := 0; i < len(pairs); i += 2 {
		_ = f.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return f.head.Bytes()
}

// begin opens a stream and gives its number.
func (f *frames) begin(block []byte, end bool) (uint32, error) {
	id := f.next
	f.next += 2
	return id, f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: end, EndHeaders: true})
}
