package main

import (
	"io"
	"strings"
	"time"
)

// perSlow is a caller of HTTP/1.1 with a request in flight, and its connection upstream.
const perSlow = 2 * 160 * kib

// http1Attacks are made by HTTP/1.1.
var http1Attacks = []attack{
	{name: "HTTP/1.1: heads byte by byte", conns: 200, ends: true, bound: atEase + 200*perConn/4, why: "200 clients", strike: drip("GET /ok HTTP/1.1\r\nX-A: ", "a", 50*time.Millisecond)},
	{name: "HTTP/1.1: bodies byte by byte", conns: 100, bound: atEase + 100*perSlow, why: "100 requests",
		strike: drip("POST /ok HTTP/1.1\r\nHost: bench.test\r\nContent-Length: 1000000\r\n\r\n", "a", 50*time.Millisecond)},
	{name: "HTTP/1.1: answers unread", conns: 20, bound: atEase + 20*perSlow, why: "20 requests",
		strike: func(s *strike) error {
			nc, err := s.dial()
			if err != nil {
				return err
			}
			if _, err := io.WriteString(nc, "GET /large HTTP/1.1\r\nHost: bench.test\r\n\r\n"); err != nil {
				return err
			}
			s.sent.Add(1)
			<-s.Done()
			return nil
		}},
	{name: "HTTP/1.1: connections that say nothing", conns: 400, bound: atEase + 400*perConn/4, why: "400 clients",
		strike: func(s *strike) error {
			nc, err := s.dial()
			if err != nil {
				return err
			}
			s.sent.Add(1)
			return s.held(nc)
		}},
	{name: "HTTP/1.1: heads without end", conns: 4, ends: true, bound: atEase + 4*perHead, why: "4 heads of 64 KiB",
		strike: drip("GET /ok HTTP/1.1\r\nHost: bench.test\r\nX-A: ", strings.Repeat("a", 4*kib), 0)},
	{name: "HTTP/1.1: fields without end", conns: 4, ends: true, bound: atEase + 4*perHead, why: "4 heads of 64 KiB",
		strike: drip("GET /ok HTTP/1.1\r\nHost: bench.test\r\n", strings.Repeat("a: b\r\n", 100), 0)},
	{name: "HTTP/1.1: chunk extensions", conns: 4, ends: true, bound: atEase + 4*perSlow, why: "4 requests",
		strike: drip("POST /ok HTTP/1.1\r\nHost: bench.test\r\nTransfer-Encoding: chunked\r\n\r\n1;", strings.Repeat("a", 4*kib), 0)},
	{name: "HTTP/1.1: chunks of a byte", conns: 4, bound: atEase + 4*(perSlow+2*mib), why: "4 requests and their bodies kept for a retry",
		strike: drip("POST /ok HTTP/1.1\r\nHost: bench.test\r\nTransfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\na\r\n", 500), 0)},
	{name: "HTTP/1.1: pipelined requests, answers unread", conns: 8, bound: atEase + 8*perSlow, why: "8 requests",
		strike: drip("", strings.Repeat("GET /ok HTTP/1.1\r\nHost: bench.test\r\n\r\n", 50), 0)},
}

// drip sends a begin, then one piece after another.
func drip(begin, piece string, d time.Duration) func(*strike) error {
	return func(s *strike) error {
		nc, err := s.dial()
		if err != nil {
			return err
		}
		if _, err := io.WriteString(nc, begin); err != nil {
			return err
		}
		return s.every(d, func() error { _, err := io.WriteString(nc, piece); return err })
	}
}
