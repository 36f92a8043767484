package rig

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Server calls Take for each connection, in a new goroutine, and then closes the connection. It keeps
// track of the open ones.
type Server struct {
	Take func(net.Conn)

	mu   sync.Mutex // guards open
	open map[net.Conn]struct{}
}

// Accept serves the connections of l until l is closed or its deadline has passed.
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

// Each calls do for each open connection and returns the number of connections.
func (s *Server) Each(do func(net.Conn)) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		do(c)
	}
	return len(s.open)
}

// Wait waits until no connection is open, at most for limit.
func (s *Server) Wait(limit time.Duration) {
	for end := time.Now().Add(limit); s.Each(func(net.Conn) {}) > 0 && time.Now().Before(end); {
		time.Sleep(200 * time.Microsecond)
	}
}

// Reset closes a connection with a TCP reset.
func Reset(c net.Conn) {
	if t, is := c.(*tls.Conn); is {
		c = t.NetConn()
	}
	if t, is := c.(*net.TCPConn); is {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// Take receives each request of a connection with its bytes. err is not nil if they are not a whole
// request. It returns the response, and whether another request may follow.
type Take func(m Message, err error) (response string, again bool)

// Recorder is an upstream that reads requests with net/http and keeps their bytes.
type Recorder struct {
	Server
	// Begin is called for each connection. At its end, ended receives all its bytes. If ended is nil, they are
	// not kept.
	Begin func() (take Take, ended func(all []byte))
}

// Record starts a Recorder on loopback.
func (b *Bed) Record(r *Recorder) (at string) {
	r.Take = r.serve
	at, err := b.Accept("127.0.0.1:0", &r.Server)
	must(err)
	return at
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
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // for bytes after the last request
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

// Reading is a request as a server understood it.
type Reading struct {
	Method, Target, Host, Body string // Body is the body's length and hash
}

func (r Reading) String() string {
	return fmt.Sprintf("%s %.60q at %q, body %s", r.Method, r.Target, r.Host, r.Body)
}

// ReadingOf reads the body of req and returns what was understood. The error is that of the body.
func ReadingOf(req *http.Request) (Reading, error) {
	h := sha256.New()
	n, err := io.Copy(h, req.Body)
	return Reading{req.Method, req.RequestURI, req.Host, fmt.Sprintf("%d:%x", n, h.Sum(nil)[:8])}, err
}

// Message is a request with its bytes.
type Message struct {
	Reading
	Raw []byte
}

// Split splits the bytes of a connection into requests, as net/http reads them. If the last request is
// cut off, rest has its bytes. If bytes are not a request, fault is the reason and rest begins with them.
func Split(all []byte) (got []Message, rest []byte, fault error) {
	at := 0
	under := bytes.NewReader(all)
	r := bufio.NewReader(under)
	for at < len(all) {
		req, err := http.ReadRequest(r)
		if err != nil && !bytes.Contains(all[at:], []byte("\r\n\r\n")) {
			return got, all[at:], nil
		}
		if err != nil {
			return got, all[at:], err
		}
		as, err := ReadingOf(req)
		if err == io.ErrUnexpectedEOF || err != nil && !bytes.HasSuffix(all, []byte("\r\n\r\n")) { // within a body or its trailers
			return got, all[at:], nil
		}
		if err != nil {
			return got, all[at:], err
		}
		to := len(all) - under.Len() - r.Buffered()
		got = append(got, Message{as, all[at:to]})
		at = to
	}
	return got, nil, nil
}

// shards are what Mutate inserts: parsers have differed in how they read them.
var shards = []string{
	"\r\n", "\n", "\r", "\x00", "\t", " ", ":", ",", ";", "0", "\x0b", "\x85", "\xc2\xa0", "\r\n ", "\r\n\r\n", "0\r\n\r\n", "0\n\n", "%00", "%0d%0a", "#", "?", "\\", "//", "../",
	"Content-Length: 5\r\n", "Content-Length: 0\r\n", "Content-Length: 05\r\n", "Content-Length: 5, 5\r\n", "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: identity\r\n",
	"Transfer-Encoding : chunked\r\n", "Transfer-Encoding:\tchunked\r\n", "transfer_encoding: chunked\r\n", "Connection: close\r\n", "Connection: content-length\r\n", "Expect: 100-continue\r\n",
	"Host: b.example\r\n", "Upgrade: x\r\nConnection: upgrade\r\n", "TE: trailers\r\n", "Trailer: X\r\n", "HTTP/1.0", "HTTP/1.1", "GET /x HTTP/1.1\r\nHost: a\r\n\r\n", "5\r\nhello\r\n", ";a=\"b\r\n\"",
}

// Mutate changes a few places of b and returns the result. It may overwrite b.
func Mutate(r *rand.Rand, b []byte) []byte {
	for range 1 + r.IntN(3) {
		at := r.IntN(len(b) + 1)
		switch r.IntN(6) {
		case 0, 1:
			b = bytes.Join([][]byte{b[:at], []byte(shards[r.IntN(len(shards))]), b[at:]}, nil)
		case 2:
			to := min(len(b), at+1+r.IntN(4))
			b = bytes.Join([][]byte{b[:at], b[to:]}, nil)
		case 3:
			if at < len(b) {
				b[at] = byte(r.IntN(256))
			}
		case 4: // a line twice, or at another place
			lines := bytes.SplitAfter(b, []byte("\r\n"))
			i, j := r.IntN(len(lines)), r.IntN(len(lines))
			lines = append(lines[:j:j], append([][]byte{lines[i]}, lines[j:]...)...)
			b = bytes.Join(lines, nil)
		default:
			if at < len(b) {
				b[at] ^= 0x20 // the case of a letter
			}
		}
	}
	return b
}
