package rig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// The upstream of loads answers what the path of a request asks for:
//
//	/small       a JSON object of 200 bytes
//	/distinct    the same, with an X-Trace that no other response has
//	/bytes/N     N bytes
//	/sink        reads the body to its end, then says ok
//	/fail/P      503 to P of 100 requests, drawn one by one from a fixed sequence, else ok
//	/busy/S      503 with Retry-After: S
//
// It keeps connections open, costs little, and reads only what the proxies under test write.

const roleUpstream = "upstream"

func init() {
	Role(roleUpstream, func(args []string) (func(string) (string, error), error) {
		l, err := net.Listen("tcp", args[0])
		if err != nil {
			return nil, err
		}
		go (&Server{Take: func(c net.Conn) { _ = (&upstream{conn: c, buf: make([]byte, 64<<10)}).serve() }}).Accept(l)
		return func(string) (string, error) { return "", errors.New("it takes no orders") }, nil
	})
}

// StartUpstream starts the upstream on some cores and returns its address.
func (b *Bed) StartUpstream(cores []int) (addr string, err error) {
	own, err := OwnAddresses(1)
	if err != nil {
		return "", err
	}
	_, err = b.StartRole(roleUpstream, nil, cores, own[0])
	return own[0], err
}

// upstream is one connection.
type upstream struct {
	conn net.Conn
	buf  []byte
	n    int // buf[:n] is read
	out  []byte
}

var (
	headEnd = []byte("\r\n\r\n")
	padding = bytes.Repeat([]byte("x"), 1<<20)
	small   = response("200 OK", "", `{"id":1234567,"name":"hello world","tags":["a","b","c"],"pad":"`+strings.Repeat("x", 120)+`"}`)
	plain   = response("200 OK", "", "ok")
	failing = response("503 Service Unavailable", "", "the upstream is busy\n")

	drawn, distinct atomic.Uint64 // of /fail and /distinct
)

const trace = "abcdef0123456789"

func response(status, headers, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %s\r\nServer: upstream\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\nX-Trace: %s\r\n\r\n%s",
		status, headers, len(body), trace, body)
}

func (s *upstream) serve() error {
	for {
		head, err := s.head()
		if err != nil {
			return err
		}
		path, length := target(head), contentLength(head)
		s.n = copy(s.buf, s.buf[len(head):s.n])
		for length > int64(s.n) {
			length -= int64(s.n)
			if s.n, err = s.conn.Read(s.buf); err != nil {
				return err
			}
		}
		s.n = copy(s.buf, s.buf[length:s.n])
		if err := s.respond(path); err != nil {
			return err
		}
	}
}

// head reads the next request headers, which lie in s.buf.
func (s *upstream) head() ([]byte, error) {
	for {
		if i := bytes.Index(s.buf[:s.n], headEnd); i >= 0 {
			return s.buf[:i+len(headEnd)], nil
		}
		if s.n == len(s.buf) {
			return nil, io.ErrShortBuffer
		}
		n, err := s.conn.Read(s.buf[s.n:])
		if s.n += n; n == 0 {
			return nil, err
		}
	}
}

func target(head []byte) string {
	_, rest, _ := bytes.Cut(head, []byte(" "))
	path, _, _ := bytes.Cut(rest, []byte(" "))
	path, _, _ = bytes.Cut(path, []byte("?"))
	return string(path)
}

func contentLength(head []byte) int64 {
	const name = "\r\ncontent-length:"
	i := bytes.Index(bytes.ToLower(head), []byte(name))
	if i < 0 {
		return 0
	}
	value, _, _ := bytes.Cut(head[i+len(name):], []byte("\r"))
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
	return n
}

func (s *upstream) respond(path string) error {
	what, value, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	n, _ := strconv.ParseInt(value, 10, 64)
	say := plain
	switch what {
	case "small":
		say = small
	case "distinct":
		s.out = append(s.out[:0], small...)
		copy(s.out[bytes.Index(s.out, []byte(trace)):], fmt.Sprintf("%016x", distinct.Add(1)))
		say = s.out
	case "bytes":
		return s.bytes(n)
	case "fail":
		if fails(drawn.Add(1), uint64(n)) {
			say = failing
		}
	case "busy":
		say = response("503 Service Unavailable", fmt.Sprintf("Retry-After: %d\r\n", n), "later\n")
	}
	_, err := s.conn.Write(say)
	return err
}

// fails reports whether draw number i is among the share percent that fail. It mixes i (splitmix64),
// so that failures come as if by chance.
func fails(i, percent uint64) bool {
	i *= 0x9e3779b97f4a7c15
	i = (i ^ i>>30) * 0xbf58476d1ce4e5b9
	i = (i ^ i>>27) * 0x94d049bb133111eb
	return (i^i>>31)%100 < percent
}

// bytes sends a response of n bytes; headers and a short body go out together.
func (s *upstream) bytes(n int64) error {
	s.out = fmt.Appendf(s.out[:0], "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", n)
	first := min(n, 16<<10)
	_, err := s.conn.Write(append(s.out, padding[:first]...))
	for n -= first; n > 0 && err == nil; {
		var m int
		m, err = s.conn.Write(padding[:min(n, int64(len(padding)))])
		n -= int64(m)
	}
	return err
}

// AnswersOK reports whether path is answered with 200 at addr.
func AnswersOK(addr, path string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: bench.test\r\n\r\n", path); err != nil {
		return false
	}
	var b [16]byte
	n, _ := c.Read(b[:])
	return n > 12 && string(b[9:12]) == "200"
}
