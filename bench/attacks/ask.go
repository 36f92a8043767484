package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// heard is the head of a response.
type heard struct {
	status int
	fields http.Header
}

// asked is the target that the upstream says it answers; "": the proxy answered itself.
func (h *heard) asked() string { return h.fields.Get(askedField) }

// ask sends bytes over a connection of its own and tells of each final response, until
// the connection ends or is quiet for so long.
func (s *strike) ask(addr, raw string, quiet time.Duration, tell func(h *heard)) error {
	nc, err := s.dialTo(addr)
	if err != nil {
		return err
	}
	written := make(chan struct{})
	go func() { defer close(written); _, _ = io.WriteString(nc, raw) }()
	defer func() { _ = nc.Close(); <-written }()
	s.sent.Add(1)
	r := bufio.NewReader(&patient{nc, quiet})
	for {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return nil
		}
		if res.StatusCode >= 200 {
			tell(&heard{res.StatusCode, res.Header})
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			return nil
		}
	}
}

// patient is a connection that may be quiet for so long.
type patient struct {
	net.Conn
	quiet time.Duration
}

func (p *patient) Read(b []byte) (int, error) {
	_ = p.SetReadDeadline(time.Now().Add(p.quiet))
	return p.Conn.Read(b)
}

// perConnection is how many requests one connection of HTTP/2 is used for: their
// answers are not to fill its window, which never opens again.
const perConnection = 30

// askByHTTP2 sends requests, each as its fields (name, value) and a body, one after the
// other over one connection, and tells of each response. A request that ends the connection ends the rest.
func (s *strike) askByHTTP2(next func() (pairs []string, body string), tell func(h *heard)) error {
	f, err := s.http2(false)
	if err != nil {
		return err
	}
	defer f.nc.Close()
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for range perConnection {
		pairs, body := next()
		id, err := f.begin(f.fields(pairs), body == "")
		if err == nil && body != "" {
			err = f.WriteData(id, true, []byte(body))
		}
		if err == nil {
			err = f.out.Flush()
		}
		if err != nil {
			return nil // the one before has ended the connection
		}
		s.sent.Add(1)
		h, err := f.answer(id)
		if err != nil {
			return nil
		}
		if h != nil {
			tell(h)
		}
	}
	return nil
}

// answer waits for the final head of a stream's answer; nil: the stream was refused.
func (f *frames) answer(id uint32) (*heard, error) {
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
			if h := heardOf(frame); frame.StreamID == id && h.status >= 200 {
				return h, nil
			}
		}
	}
}

func heardOf(f *http2.MetaHeadersFrame) *heard {
	h := &heard{fields: http.Header{}}
	for _, c := range f.PseudoValue("status") {
		h.status = h.status*10 + int(c-'0')
	}
	for _, field := range f.RegularFields() {
		h.fields.Add(field.Name, field.Value)
	}
	return h
}
