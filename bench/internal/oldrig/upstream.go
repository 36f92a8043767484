package oldrig

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	outside "github.com/retryproxy/retryproxy/bench/internal/command"
)

// The upstream answers what the path of a request asks for:
//
//	/small       a JSON object of 200 bytes
//	/distinct    likewise, with an X-Trace that no other answer has
//	/bytes/N     N bytes
//	/sink        reads the body to its end, then says ok
//	/fail/P      503 to P of 100 requests, drawn one by one from a fixed sequence, else ok
//	/busy/S      503 with Retry-After: S
//	/wait/MS     ok after so many milliseconds
//
// It keeps connections open. It is not strict: it reads what the proxies under
// test write.

// RoleUpstream as the first argument of a program means that it is to call
// ServeUpstream with the other ones.
const RoleUpstream = "upstream"

// Main is command.Main for a program that calls StartUpstream, which starts it once more.
func Main(name string, p outside.Program) {
	if len(os.Args) > 1 && os.Args[1] == RoleUpstream {
		fmt.Fprintf(os.Stderr, "%s upstream: %v\n", name, ServeUpstream(os.Args[2:]))
		os.Exit(outside.Failed)
	}
	outside.Main(name, p)
}

// ServeUpstream listens on the address in args[0] and serves until
// the process ends; its error says why it cannot.
func ServeUpstream(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: %s ADDRESS", RoleUpstream)
	}
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_ = (&server{conn: c.(*net.TCPConn), buf: make([]byte, 4<<10)}).serve() // a client that leaves is no error
		}()
	}
}

// server is one connection.
type server struct {
	conn *net.TCPConn
	buf  []byte
	n    int // buf[:n] is read
	out  []byte
}

var (
	headEnd = []byte("\r\n\r\n")
	padding = bytes.Repeat([]byte("x"), 1<<20)
	small   = answer("200 OK", "", `{"id":1234567,"name":"hello world","tags":["a","b","c"],"pad":"`+strings.Repeat("x", 120)+`"}`)
	plain   = answer("200 OK", "", "ok")
	failing = answer("503 Service Unavailable", "", "the upstream is busy\n")
	drawn   atomic.Uint64

	distinct atomic.Uint64 // answers
)

const trace = "abcdef0123456789"

func answer(status, fields, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %s\r\nServer: upstream\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\nX-Trace: %s\r\n\r\n%s",
		status, fields, len(body), trace, body)
}

func (s *server) serve() error {
	for {
		head, err := s.head()
		if err != nil {
			return err
		}
		path, length := string(target(head)), contentLength(head)
		s.n = copy(s.buf, s.buf[len(head):s.n])
		if err := s.skip(length); err != nil {
			return err
		}
		if err := s.respond(path); err != nil {
			return err
		}
	}
}

// head gives the next request headers, which lies in s.buf.
func (s *server) head() ([]byte, error) {
	for {
		if i := bytes.Index(s.buf[:s.n], headEnd); i >= 0 {
			return s.buf[:i+len(headEnd)], nil
		}
		if s.n == len(s.buf) {
			s.buf = append(s.buf, make([]byte, len(s.buf))...)
		}
		n, err := s.conn.Read(s.buf[s.n:])
		s.n += n
		if n == 0 {
			return nil, err
		}
	}
}

// skip is done with n bytes of body; those still in the socket are thrown away there.
func (s *server) skip(n int64) error {
	have := min(int64(s.n), n)
	s.n = copy(s.buf, s.buf[have:s.n])
	return discard(s.conn, n-have)
}

func target(head []byte) []byte {
	_, rest, _ := bytes.Cut(head, []byte(" "))
	path, _, _ := bytes.Cut(rest, []byte(" "))
	path, _, _ = bytes.Cut(path, []byte("?"))
	return path
}

func contentLength(head []byte) int64 {
	i := bytes.Index(bytes.ToLower(head), []byte("\r\ncontent-length:"))
	if i < 0 {
		return 0
	}
	value, _, _ := bytes.Cut(head[i+len("\r\ncontent-length:"):], []byte("\r"))
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
	return n
}

func (s *server) respond(path string) error {
	what, value, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	n, _ := strconv.ParseInt(value, 10, 64)
	say := plain
	switch what {
	case "small":
		say = small
	case "distinct":
		say = s.distinct()
	case "bytes":
		return s.bytes(n)
	case "fail":
		if fails(drawn.Add(1), uint64(n)) {
			say = failing
		}
	case "busy":
		say = answer("503 Service Unavailable", fmt.Sprintf("Retry-After: %d\r\n", n), "later\n")
	case "wait":
		time.Sleep(time.Duration(n) * time.Millisecond)
	}
	_, err := s.conn.Write(say)
	return err
}

// distinct is small with an X-Trace of its own.
func (s *server) distinct() []byte {
	s.out = append(s.out[:0], small...)
	copy(s.out[bytes.Index(s.out, []byte(trace)):], fmt.Sprintf("%016x", distinct.Add(1)))
	return s.out
}

// fails says whether draw number i is among the share percent that fail. It
// mixes i (splitmix64), so that failures come as if by chance.
func fails(i, percent uint64) bool {
	i *= 0x9e3779b97f4a7c15
	i = (i ^ i>>30) * 0xbf58476d1ce4e5b9
	i = (i ^ i>>27) * 0x94d049bb133111eb
	return (i^i>>31)%100 < percent
}

// bytes answers with n bytes; head and a short body go out together.
func (s *server) bytes(n int64) error {
	s.out = fmt.Appendf(s.out[:0], "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", n)
	first := min(n, 16<<10)
	s.out = append(s.out, padding[:first]...)
	if _, err := s.conn.Write(s.out); err != nil {
		return err
	}
	for n -= first; n > 0; {
		m, err := s.conn.Write(padding[:min(n, int64(len(padding)))])
		if err != nil {
			return err
		}
		n -= int64(m)
	}
	return nil
}

// StartUpstream starts this program again as the upstream, pinned to cores.
func StartUpstream(cores []int) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startListening(func(addr string) (*command, error) {
		return &command{path: self, args: []string{RoleUpstream, addr}, cores: cores, environ: os.Environ()}, nil
	})
}

// URL is where p is reached.
func (p *Process) URL(path string) string {
	return (&url.URL{Scheme: "http", Host: p.Addr, Path: path}).String()
}
