package main

import (
	"io"
	"net"
	"strings"
	"time"
)

// http1Attacks are made by HTTP/1.1.
var http1Attacks = []attack{
	{name: "HTTP/1.1: heads byte by byte", conns: 200, ends: true, bound: atEase + 200*perConn/4, why: "200 clients", strike: drip("GET /ok HTTP/1.1\r\nX-A: ", "a", 50*time.Millisecond)},
	{name: "HTTP/1.1: bodies byte by byte", conns: 100, bound: atEase + 100*perSlow, why: "100 requests", strike: drip("POST /ok HTTP/1.1\r\nHost: bench.test\r\nContent-Length: 1000000\r\n\r\n", "a", 50*time.Millisecond)},
	{name: "HTTP/1.1: answers unread", conns: 20, bound: atEase + 20*perSlow, why: "20 requests", strike: func(s *strike) error {
		return s.begin(s.addr, "GET /large HTTP/1.1\r\nHost: bench.test\r\n\r\n", func(net.Conn) error {
			s.sent.Add(1)
			<-s.Done()
			return nil
		})
	}},
	{name: "HTTP/1.1: connections that say nothing", conns: 400, bound: atEase + 400*perConn/4, why: "400 clients", strike: func(s *strike) error { return s.hold(s.addr, "") }},
	{name: "HTTP/1.1: heads without end", conns: 4, ends: true, bound: atEase + 4*perHead, why: "4 heads of 64 KiB", strike: drip("GET /ok HTTP/1.1\r\nHost: bench.test\r\nX-A: ", strings.Repeat("a", 4*kib), 0)},
	{name: "HTTP/1.1: fields without end", conns: 4, ends: true, bound: atEase + 4*perHead, why: "4 heads of 64 KiB", strike: drip("GET /ok HTTP/1.1\r\nHost: bench.test\r\n", strings.Repeat("a: b\r\n", 100), 0)},
	{name: "HTTP/1.1: chunk extensions", conns: 4, ends: true, bound: atEase + 4*perSlow, why: "4 requests", strike: drip("POST /ok HTTP/1.1\r\nHost: bench.test\r\nTransfer-Encoding: chunked\r\n\r\n1;", strings.Repeat("a", 4*kib), 0)},
	{name: "HTTP/1.1: chunks of a byte", conns: 4, bound: atEase + 4*(perSlow+2*mib), why: "4 requests and their bodies kept for a retry", strike: drip("POST /ok HTTP/1.1\r\nHost: bench.test\r\nTransfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\na\r\n", 500), 0)},
	{name: "HTTP/1.1: pipelined requests, answers unread", conns: 8, bound: atEase + 8*perSlow, why: "8 requests", strike: drip("", strings.Repeat("GET /ok HTTP/1.1\r\nHost: bench.test\r\n\r\n", 50), 0)},
}

// begin connects, writes and goes on with then. The connection is closed after it.
func (s *strike) begin(addr, says string, then func(nc net.Conn) error) error {
	nc, err := s.dial(addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	if _, err := io.WriteString(nc, says); err != nil {
		return err
	}
	return then(nc)
}

// drip writes a begin, then one piece after another, d apart.
func drip(begin, piece string, d time.Duration) func(*strike) error {
	return func(s *strike) error { return s.drip(s.addr, begin, piece, d) }
}

func (s *strike) drip(addr, begin, piece string, d time.Duration) error {
	return s.begin(addr, begin, func(nc net.Conn) error {
		return s.every(d, func() error { _, err := io.WriteString(nc, piece); return err })
	})
}

// hold writes something and reads until the connection ends.
func (s *strike) hold(addr, says string) error {
	return s.begin(addr, says, func(nc net.Conn) error {
		s.sent.Add(1)
		_, err := io.Copy(io.Discard, nc)
		if err == nil {
			err = io.EOF
		}
		return err
	})
}
