package testbed

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/streams"
)

// Take is told of each request on a connection, or of what is none and why, with its bytes. It
// returns the response, and whether another request may follow.
type Take func(m streams.Message, err error) (response string, again bool)

// Recorder is an upstream that reads requests as net/http does and knows their bytes.
type Recorder struct {
	Server
	// Begin is called for each connection. ended is given all bytes of it at its end; nil: they are not kept.
	Begin func() (take Take, ended func(all []byte))
}

// Record starts a Recorder on loopback.
func (b *Bed) Record(r *Recorder) (at string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	b.Later(func() { _ = l.Close() })
	r.Take = r.serve
	go r.Accept(l)
	return l.Addr().String(), nil
}

func (r *Recorder) serve(c net.Conn) {
	var bytes bytes.Buffer
	in, at := bufio.NewReader(io.TeeReader(c, &bytes)), 0
	take, ended := r.Begin()
	for again := true; again; {
		m, err := readMessage(c, in)
		to := bytes.Len()
		if err == nil {
			to -= in.Buffered()
		}
		if m.Raw = bytes.Bytes()[at:to]; len(m.Raw) == 0 {
			break
		}
		var response string
		response, again = take(m, err)
		if err != nil {
			break
		}
		if _, err := io.WriteString(c, response); err != nil {
			break
		}
		if at = to; ended == nil {
			bytes.Next(to)
			at = 0
		}
	}
	if t, is := c.(*net.TCPConn); is { // a close with bytes unread would be a reset
		_ = t.CloseWrite()
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // what comes unasked for is of interest too
	_, _ = io.Copy(io.Discard, in)
	if ended != nil && bytes.Len() > 0 {
		ended(bytes.Bytes())
	}
}

func readMessage(c net.Conn, in *bufio.Reader) (m streams.Message, err error) {
	req, err := http.ReadRequest(in)
	if err != nil {
		return m, err
	}
	if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	m.Reading, err = streams.ReadingOf(req)
	return m, err
}
