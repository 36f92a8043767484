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

// frames is an HTTP/2 connection that is written frame by frame. The first error of writing is kept; f.out
// returns it.
type frames struct {
	*http2.Framer
	out  *bufio.Writer
	nc   net.Conn
	next uint32 // stream
	head bytes.Buffer
	enc  *hpack.Encoder
}

// http2 opens an HTTP/2 connection.
func (s *attacker) http2(settings ...http2.Setting) (*frames, error) {
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
func (s *attacker) listen(f *frames) {
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

// block returns the header block of a request. more are names and values of further headers.
func (f *frames) block(method, path string, more ...string) []byte {
	return f.fields(append([]string{":method", method, ":path", path, ":scheme", "http", ":authority", "bench.test"}, more...))
}

// fields returns a header block of names and values in turn, valid or not.
func (f *frames) fields(pairs []string) []byte {
	f.head.Reset()
	for i := 0; i < len(pairs); i += 2 {
		_ = f.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return f.head.Bytes()
}

// begin opens a stream and returns its number.
func (f *frames) begin(block []byte, end bool) uint32 {
	id := f.next
	f.next += 2
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: end, EndHeaders: true})
	return id
}

// fill opens as many streams as are allowed.
func (f *frames) fill(path string) {
	for range atOnce {
		f.begin(f.block("GET", path), true)
	}
}

// perConnection bounds the requests of askByHTTP2 over one connection. Their responses must fit into the
// connection's window, which is never updated.
const perConnection = 30

// askByHTTP2 sends requests over one connection, each after the response to the one before, and calls got
// for each response. next returns the headers, as names and values in turn, and the body. If a request
// ends the connection, askByHTTP2 returns.
func (s *attacker) askByHTTP2(next func() (pairs []string, body string), got func(r *http.Response)) error {
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

// answer waits for the final response headers of a stream. It returns nil if the stream was refused.
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
