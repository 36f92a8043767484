package rig

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Server calls Take for each connection, in a goroutine of its own, and closes it then. It knows which ones are open.
type Server struct {
	Take func(net.Conn)

	mu   sync.Mutex // guards open
	open map[net.Conn]struct{}
}

// Accept takes the connections of l until it is closed or its deadline is over.
func (s *Server) Accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.open == nil {
			s.open = map[net.Conn]struct{}{}
		}
		s.open[c] = struct{}{}
		s.mu.Unlock()
		go func() {
			defer func() {
				_ = c.Close()
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.open, c)
			}()
			s.Take(c)
		}()
	}
}

// Each calls do for each open connection and returns their number.
func (s *Server) Each(do func(net.Conn)) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		do(c)
	}
	return len(s.open)
}

// Wait waits until no connection is open, and no longer than limit.
func (s *Server) Wait(limit time.Duration) {
	for end := time.Now().Add(limit); s.Each(func(net.Conn) {}) > 0 && time.Now().Before(end); {
		time.Sleep(200 * time.Microsecond)
	}
}

// Reset ends a connection by a reset.
func Reset(c net.Conn) {
	if t, is := c.(*tls.Conn); is {
		c = t.NetConn()
	}
	if t, is := c.(*net.TCPConn); is {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// Take receives each request on a connection, or what is none and why, with its bytes. It returns
// the response, and whether another request may follow.
type Take func(m Message, err error) (response string, again bool)

// Recorder is an upstream that reads requests as net/http does and knows their bytes.
type Recorder struct {
	Server
	// Begin is called for each connection. ended receives all its bytes at its end; if nil, they are not kept.
	Begin func() (take Take, ended func(all []byte))
}

// Record starts a Recorder on loopback.
func (b *Bed) Record(r *Recorder) (at string, err error) {
	r.Take = r.serve
	return b.Accept("127.0.0.1:0", &r.Server)
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

func readMessage(c net.Conn, in *bufio.Reader) (m Message, err error) {
	req, err := http.ReadRequest(in)
	if err != nil {
		return m, err
	}
	if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	m.Reading, err = ReadingOf(req)
	return m, err
}
