package rig

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
)

// The upstream of loads responds as the path says:
//
//	/small       a JSON object of 200 bytes
//	/distinct    the same, with a different X-Trace each time
//	/bytes/N     N bytes
//	/sink        ok, after the body
//	/fail/P      503 to P percent of requests, in a fixed pseudo-random order, else ok
//	/busy/S      503 with Retry-After: S
//
// It keeps connections open, takes little CPU, and parses only what the proxies under test send.

const (
	roleUpstream      = "upstream"
	roleHTTP2Upstream = "upstream-h2c"
)

func init() {
	Role(roleUpstream, func(args []string) (func(string) (string, error), error) {
		l, err := net.Listen("tcp", args[0])
		if err != nil {
			return nil, err
		}
		go (&Server{Take: func(c net.Conn) { _ = newUpstream(c, 64<<10).serve() }}).Accept(l)
		return func(string) (string, error) { return "", errors.New("it takes no orders") }, nil
	})
}

// StartUpstream starts the upstream on some cores and returns its address.
func (b *Bed) StartUpstream(cores []int) (addr string, err error) {
	addr = OwnAddresses(1)[0]
	_, err = b.StartRole(roleUpstream, nil, cores, addr)
	return addr, err
}

func init() {
	Role(roleHTTP2Upstream, func(args []string) (func(string) (string, error), error) {
		l, err := net.Listen("tcp", args[0])
		if err != nil {
			return nil, err
		}
		s := &http.Server{Handler: http.HandlerFunc(serveHTTP2), Protocols: new(http.Protocols)}
		s.Protocols.SetUnencryptedHTTP2(true)
		go s.Serve(l)
		return func(string) (string, error) { return "", errors.New("it takes no orders") }, nil
	})
}

// StartHTTP2Upstream starts an upstream that speaks HTTP/2 without TLS, for /small, /bytes/N and /sink.
func (b *Bed) StartHTTP2Upstream(cores []int) (addr string, err error) {
	addr = OwnAddresses(1)[0]
	_, err = b.StartRole(roleHTTP2Upstream, nil, cores, addr)
	return addr, err
}

func serveHTTP2(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	what, value, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	body := []byte("ok")
	switch what {
	case "small":
		_, body, _ = bytes.Cut(small, []byte("\r\n\r\n"))
	case "bytes":
		n, _ := strconv.Atoi(value)
		body = padding[:min(n, len(padding))]
	}
	h := w.Header()
	h.Set("Server", "upstream")
	h.Set("Content-Type", "application/json")
	h.Set("X-Trace", trace)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

// upstream is one connection.
type upstream struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

func newUpstream(c net.Conn, buffer int) *upstream {
	return &upstream{conn: c, in: bufio.NewReaderSize(c, buffer)}
}

var (
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
		path, length, err := s.request()
		if err != nil {
			return err
		}
		if _, err := s.in.Discard(length); err != nil {
			return err
		}
		if err := s.respond(path); err != nil {
			return err
		}
	}
}

// request reads request headers, and returns the path without its query and the length of the body.
func (s *upstream) request() (path string, length int, err error) {
	for {
		line, err := s.in.ReadSlice('\n')
		if err != nil {
			return "", 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case len(line) == 0:
			return path, length, nil
		case path == "":
			_, target, _ := strings.Cut(string(line), " ")
			path, _, _ = strings.Cut(target, " ")
			path, _, _ = strings.Cut(path, "?")
		case bytes.EqualFold(name, []byte("content-length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return "", 0, err
			}
		}
	}
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

// fails reports whether request i is among the percent that fail. It mixes i with splitmix64.
func fails(i, percent uint64) bool {
	i *= 0x9e3779b97f4a7c15
	i = (i ^ i>>30) * 0xbf58476d1ce4e5b9
	i = (i ^ i>>27) * 0x94d049bb133111eb
	return (i^i>>31)%100 < percent
}

// bytes sends a response of n bytes. Headers and a short body are one write.
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
