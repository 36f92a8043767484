package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

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

// http2 begins a connection of HTTP/2.
func (s *strike) http2(settings ...http2.Setting) (*frames, error) {
	nc, err := s.dial(s.addr)
	if err != nil {
		return nil, err
	}
	out := bufio.NewWriterSize(nc, 16*kib)
	f := &frames{Framer: http2.NewFramer(out, nc), out: out, nc: nc, next: 1}
	f.AllowIllegalWrites = true
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.enc = hpack.NewEncoder(&f.head)
	_, _ = out.WriteString(http2.ClientPreface)
	_ = f.WriteSettings(settings...)
	_ = f.WriteSettingsAck() // of what it has not said yet
	return f, out.Flush()    // and the error of all these
}

// listen reads what the proxy sends until the connection ends. It counts the frames that turn the attacker away:
// resets, and responses with 4xx and 5xx.
func (s *strike) listen(f *frames) {
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

// block is the header block of a request, with more fields if given (name, value).
func (f *frames) block(method, path string, more ...string) []byte {
	return f.fields(append([]string{":method", method, ":path", path, ":scheme", "http", ":authority", "bench.test"}, more...))
}

// fields is a header block of names and values in turn, whatever they are.
func (f *frames) fields(pairs []string) []byte {
	f.head.Reset()
	for i := 0; i < len(pairs); i += 2 {
		_ = f.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return f.head.Bytes()
}

// begin opens a stream and returns its number. What cannot be written, f.out.Flush says in the end.
func (f *frames) begin(block []byte, end bool) uint32 {
	id := f.next
	f.next += 2
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: end, EndHeaders: true})
	return id
}

// fill opens as many streams as may be.
func (f *frames) fill(path string) {
	for range atOnce {
		f.begin(f.block("GET", path), true)
	}
}

// perConnection is how many requests one connection is used for by askByHTTP2: their
// answers are not to fill its window, which never opens again.
const perConnection = 30

// askByHTTP2 sends requests, each as its fields (name, value) and a body, one after the
// other over one connection, and calls got for each response. A request that ends the connection ends the rest.
func (s *strike) askByHTTP2(next func() (pairs []string, body string), got func(r *http.Response)) error {
	f, err := s.http2()
	if err != nil {
		return err
	}
	defer f.nc.Close()
	for range perConnection {
		pairs, body := next()
		id := f.begin(f.fields(pairs), body == "")
		if body != "" {
			_ = f.WriteData(id, true, []byte(body))
		}
		if f.out.Flush() != nil {
			return nil // the one before has ended the connection
		}
		s.sent.Add(1)
		r, err := f.answer(id)
		if err != nil {
			return nil
		}
		if r != nil {
			got(r)
		}
	}
	return nil
}

// answer waits for the final response headers of a stream; nil: the stream was refused.
func (f *frames) answer(id uint32) (*http.Response, error) {
	_ = f.nc.SetReadDeadline(time.Now().Add(patience))
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return nil, err
		}
		switch frame := frame.(type) {
		case *http2.GoAwayFrame:
			return nil, io.EOF
		case *http2.RSTStreamFrame:
			if frame.StreamID == id {
				return nil, nil
			}
		case *http2.MetaHeadersFrame:
			r := &http.Response{Header: http.Header{}}
			r.StatusCode, _ = strconv.Atoi(frame.PseudoValue("status"))
			for _, field := range frame.RegularFields() {
				r.Header.Add(field.Name, field.Value)
			}
			if frame.StreamID == id && r.StatusCode >= 200 {
				return r, nil
			}
		}
	}
}
