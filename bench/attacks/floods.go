package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http2"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// script is what an HTTP/2 attacker does on each connection.
type script struct {
	deaf     bool            // reads nothing
	settings []http2.Setting // of the client
	begin    func(f *frames) // once; nil: nothing
	sends    int64           // requests, by begin
	again    func(f *frames) // then, again and again; nil: nothing, until the connection ends
	every    time.Duration   // between these, and what is written goes out at once; 0: as fast as can be
	pause    time.Duration   // before the next connection, for whom to come at once would be another attack, on the cores
}

func (c script) run(s *attacker) error {
	err := c.send(s)
	if c.pause > 0 {
		rig.Sleep(s, c.pause)
	}
	return err
}

func (c script) send(s *attacker) error {
	f, err := s.http2(c.settings...)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	if !c.deaf {
		go func() {
			defer close(ended)
			s.listen(f)
		}()
	}
	if c.begin != nil {
		c.begin(f)
		if err := f.out.Flush(); err != nil {
			return err
		}
		s.sent.Add(c.sends)
	}
	if c.again == nil {
		select {
		case <-s.Done():
		case <-ended:
		}
		return io.EOF // if the attack is not over
	}
	return s.every(c.every, func() error {
		if c.again(f); c.every > 0 {
			return f.out.Flush()
		}
		_, err := f.out.Write(nil) // of what did not fit in before
		return err
	})
}

// How much memory one connection may take, and the bounds that follow. These are estimates from the proxy's limits,
// not measurements. The factors of two are for garbage: the Go runtime allows as much of it as there is live memory.
const (
	// baseMemory is for the requests of other clients and for pooled buffers.
	baseMemory = 24 * mib
	// perConn is for a connection: its goroutine and that which writes, read and write buffers, and what was read
	// of headers.
	perConn = 128 * kib
	// perHead is for request headers of 64 KiB: as they came, as a map, and as HTTP/1.1.
	perHead = 2 * 4 * 64 * kib
	// perQueue is for what waits to be written: proxy/http2 ends a connection beyond 256 KiB of it.
	perQueue = 2 * 2 * 256 * kib
	// perStream is for a request in flight: two goroutines, the buffers of two connections, and what waits of a body.
	perStream = 2 * 256 * kib
	// perWindow is for request bodies that the upstream does not read.
	perWindow = 2 * mib
	atOnce    = 1000 // maxConcurrentStreams in internal/config/constants.go

	streams4    = baseMemory + 4*atOnce*perStream
	streams4Why = "4 connections with 1000 requests each"
	queues4     = baseMemory + 4*(perConn+perQueue)
	queues4Why  = "4 connections with 256 KiB of unread answers"
	heads4      = baseMemory + 4*(perConn+perHead)
)

// window returns settings with a window for each stream.
func window(size uint32) []http2.Setting {
	return []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: size}}
}

// http2Attacks are the floods over HTTP/2.
var http2Attacks = []attack{
	{name: "rapid reset", conns: 4, ends: true, bound: streams4, why: streams4Why, connection: script{again: func(f *frames) {
		_ = f.WriteRSTStream(f.begin(f.block("GET", "/slow"), true), http2.ErrCodeCancel)
	}}.run},
	{name: "CONTINUATION without end", conns: 4, ends: true, bound: heads4, why: "4 heads", connection: continuation(strings.Repeat("x", 8*kib), 0)},
	{name: "CONTINUATION without content", conns: 4, ends: true, bound: heads4, why: "4 heads", connection: continuation("", 0)},
	{name: "CONTINUATION byte by byte", conns: 100, ends: true, bound: baseMemory + 100*(perConn+perHead/8), why: "100 connections", connection: continuation("x", 50*time.Millisecond)},
	{name: "SETTINGS", conns: 4, ends: true, bound: queues4, why: queues4Why, connection: script{again: func(f *frames) {
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 14})
	}}.run},
	{name: "SETTINGS, answers unread", conns: 4, ends: true, bound: queues4, why: queues4Why, connection: script{deaf: true, again: func(f *frames) { _ = f.WriteSettings() }}.run},
	{name: "PING", conns: 4, ends: true, bound: queues4, why: queues4Why, connection: script{again: ping}.run},
	{name: "PING, answers unread", conns: 4, ends: true, bound: queues4, why: queues4Why, connection: script{deaf: true, again: ping}.run},
	{name: "PRIORITY", conns: 4, ends: true, bound: baseMemory + 4*perConn, why: "4 connections", connection: script{again: func(f *frames) { _ = f.WritePriority(3, http2.PriorityParam{Weight: 9}) }}.run},
	{name: "frames of an unknown kind", conns: 4, ends: true, bound: baseMemory + 4*perConn, why: "4 connections", connection: script{again: func(f *frames) { _ = f.WriteRawFrame(0x77, 0, 1, make([]byte, 1024)) }}.run},
	{name: "HPACK bomb", conns: 4, ends: true, bound: baseMemory + 4*(perConn+atOnce*perHead/4), why: "4 connections with 1000 heads of 64 KiB", connection: bomb},
	{name: "windows of zero", conns: 4, bound: streams4, why: streams4Why, connection: script{settings: window(0), sends: atOnce, begin: func(f *frames) { f.fill("/medium") }}.run},
	{name: "windows that open by a byte", conns: 4, bound: streams4, why: streams4Why,
		connection: script{settings: window(1), begin: func(f *frames) { f.fill("/medium") }, again: func(f *frames) {
			_ = f.WriteWindowUpdate(1+2*rand.Uint32N(atOnce), 1)
		}}.run},
	{name: "streams beyond the most at once", conns: 4, ends: true, bound: streams4, why: streams4Why, connection: script{again: upload}.run},
	{name: "DATA without content", conns: 4, ends: true, bound: baseMemory + 4*(perConn+perStream), why: "4 requests",
		connection: script{begin: upload, again: func(f *frames) { _ = f.WriteData(1, false, nil) }}.run},
	{name: "bodies that nobody reads", conns: 4, bound: baseMemory + 4*(perWindow+atOnce*perStream), why: "4 connections' windows of 1 MiB and 1000 requests each", connection: script{sends: atOnce, begin: unreadBodies}.run},
}

func ping(f *frames) { _ = f.WritePing(false, [8]byte{}) }

// upload begins a request with a body.
func upload(f *frames) { f.begin(f.block("POST", "/ok"), false) }

// continuation sends endless request headers, a piece every d.
func continuation(piece string, d time.Duration) func(*attacker) error {
	return func(s *attacker) error {
		field := []byte(piece)
		return script{every: d, begin: func(f *frames) {
			if len(piece) > 1 { // whole fields
				field = bytes.Clone(f.block("GET", "/ok", "x-large", piece))
			}
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block("GET", "/ok")})
		}, again: func(f *frames) { _ = f.WriteContinuation(1, false, field) }}.run(s)
	}
}

// bomb sends header blocks of a few kilobytes that decode to megabytes: one large field in the dynamic table, which
// one byte can repeat.
func bomb(s *attacker) error {
	var block []byte
	return script{begin: func(f *frames) {
		large := f.block("GET", "/ok", "x-bomb", strings.Repeat("b", 3*kib))
		block = append(bytes.Clone(large), strings.Repeat("\xbe", 8*kib)...) // 62: the newest of the table
	}, again: func(f *frames) { f.begin(block, true) }}.run(s)
}

// unreadBodies sends request bodies that the upstream does not read, as far as the windows allow.
func unreadBodies(f *frames) {
	piece := make([]byte, 16*kib)
	for range atOnce {
		if id := f.begin(f.block("POST", "/deaf"), false); id < 2*60 { // 60 of 16 KiB: less than the connection's window of 1 MiB
			_ = f.WriteData(id, false, piece)
		}
	}
}

// http1Attacks are the floods over HTTP/1.1.
var http1Attacks = []attack{
	{name: "HTTP/1.1: heads byte by byte", conns: 200, ends: true, bound: baseMemory + 200*perConn/4, why: "200 clients", connection: drip("GET /ok HTTP/1.1\r\nX-A: ", "a", 50*time.Millisecond)},
	{name: "HTTP/1.1: bodies byte by byte", conns: 100, bound: baseMemory + 100*perSlow, why: "100 requests", connection: drip("POST /ok HTTP/1.1\r\nHost: bench.test\r\nContent-Length: 1000000\r\n\r\n", "a", 50*time.Millisecond)},
	{name: "HTTP/1.1: answers unread", conns: 20, bound: baseMemory + 20*perSlow, why: "20 requests", connection: func(s *attacker) error {
		return s.begin(s.addr, "GET /large HTTP/1.1\r\nHost: bench.test\r\n\r\n", func(net.Conn) error {
			s.sent.Add(1)
			<-s.Done()
			return nil
		})
	}},
	{name: "HTTP/1.1: connections that say nothing", conns: 400, bound: baseMemory + 400*perConn/4, why: "400 clients", connection: func(s *attacker) error { return s.hold(s.addr, "") }},
	{name: "HTTP/1.1: heads without end", conns: 4, ends: true, bound: baseMemory + 4*perHead, why: "4 heads of 64 KiB", connection: drip("GET /ok HTTP/1.1\r\nHost: bench.test\r\nX-A: ", strings.Repeat("a", 4*kib), 0)},
	{name: "HTTP/1.1: fields without end", conns: 4, ends: true, bound: baseMemory + 4*perHead, why: "4 heads of 64 KiB", connection: drip("GET /ok HTTP/1.1\r\nHost: bench.test\r\n", strings.Repeat("a: b\r\n", 100), 0)},
	{name: "HTTP/1.1: chunk extensions", conns: 4, ends: true, bound: baseMemory + 4*perSlow, why: "4 requests", connection: drip("POST /ok HTTP/1.1\r\nHost: bench.test\r\nTransfer-Encoding: chunked\r\n\r\n1;", strings.Repeat("a", 4*kib), 0)},
	{name: "HTTP/1.1: chunks of a byte", conns: 4, bound: baseMemory + 4*(perSlow+2*mib), why: "4 requests and their bodies kept for a retry", connection: drip("POST /ok HTTP/1.1\r\nHost: bench.test\r\nTransfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\na\r\n", 500), 0)},
	{name: "HTTP/1.1: pipelined requests, answers unread", conns: 8, bound: baseMemory + 8*perSlow, why: "8 requests", connection: drip("", strings.Repeat("GET /ok HTTP/1.1\r\nHost: bench.test\r\n\r\n", 50), 0)},
}

// begin connects, writes, calls then, and closes the connection.
func (s *attacker) begin(addr, says string, then func(nc net.Conn) error) error {
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

// drip writes begin and then piece again and again, with pauses of d.
func drip(begin, piece string, d time.Duration) func(*attacker) error {
	return func(s *attacker) error { return s.drip(s.addr, begin, piece, d) }
}

func (s *attacker) drip(addr, begin, piece string, d time.Duration) error {
	return s.begin(addr, begin, func(nc net.Conn) error {
		return s.every(d, func() error { _, err := io.WriteString(nc, piece); return err })
	})
}

// hold writes says and reads until the connection ends.
func (s *attacker) hold(addr, says string) error {
	return s.begin(addr, says, func(nc net.Conn) error {
		s.sent.Add(1)
		_, err := io.Copy(io.Discard, nc)
		if err == nil {
			err = io.EOF
		}
		return err
	})
}

// prematureAttacks end requests as soon as they have begun. An HTTP/2 client may have atOnce concurrent
// requests, and each takes the upstream workTime. An attacker that starts more requests per second at
// the upstream has found a way around that limit.
var prematureAttacks = []attack{
	premature("rapid reset, seen from the upstream", false, func(f *frames, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeCancel) }),
	premature("MadeYouReset, windows of 0", false, func(f *frames, id uint32) { _ = f.WriteWindowUpdate(id, 0) }),
	premature("MadeYouReset, windows that overflow", false, func(f *frames, id uint32) { _ = f.WriteWindowUpdate(id, 1<<31-1) }),
	premature("MadeYouReset, DATA behind the end", false, func(f *frames, id uint32) { _ = f.WriteData(id, false, []byte("x")) }),
	premature("MadeYouReset, dependent on itself", false, func(f *frames, id uint32) {
		_ = f.WritePriority(id, http2.PriorityParam{StreamDep: id})
	}),
	premature("less than content-length", true, func(f *frames, id uint32) { _ = f.WriteData(id, true, []byte("x")) }),
}

// workTime is how long the upstream takes for a request.
const workTime = time.Second

// premature counts the requests that reach the upstream. end ends a request as soon as it has begun.
func premature(name string, upload bool, end func(f *frames, id uint32)) attack {
	return attack{name: name, conns: 1, bound: baseMemory + perConn + atOnce*perStream, why: "a connection with 1000 requests", prepare: func(st *stage) error {
		var since time.Time
		st.begin = func(*rig.Proxy) error { since = time.Now(); return nil }
		st.connection = script{again: func(f *frames) {
			block := f.block("GET", "/work")
			if upload {
				block = f.block("POST", "/work", "content-length", "1000")
			}
			end(f, f.begin(block, !upload))
		}}.run
		st.judge = func(*rig.Proxy) string {
			perSecond, honest := float64(st.Counted("begun"))/time.Since(since).Seconds(), atOnce/workTime.Seconds()
			if perSecond > honest {
				st.Add("%.0f requests a second were begun upstream, more than an honest client's %.0f", perSecond, honest)
			}
			return fmt.Sprintf("%.0f requests a second begun upstream, of %.0f that an honest client could have there", perSecond, honest)
		}
		st.route("work", "/work", func(_ http.ResponseWriter, r *http.Request) {
			st.Count("begun", 1)
			select {
			case <-r.Context().Done():
			case <-time.After(workTime):
			}
		})
		return nil
	}}
}
