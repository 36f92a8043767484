package http2

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Faults that concern the connection end it, with the code that RFC 9113 asks for.
func TestFaultsOfAConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		send func(p *peer)
		code string
	}{
		"DATA without a stream":     {func(p *peer) { _ = p.WriteData(0, false, nil) }, "PROTOCOL_ERROR"},
		"DATA of no stream":         {func(p *peer) { _ = p.WriteData(9, false, []byte("x")) }, "PROTOCOL_ERROR"},
		"HEADERS of an even stream": {func(p *peer) { p.id = 1; p.begin(true, getFields...) }, "PROTOCOL_ERROR"},
		"CONTINUATION alone":        {func(p *peer) { _ = p.WriteContinuation(1, true, nil) }, "PROTOCOL_ERROR"},
		"a block interrupted": {func(p *peer) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1})
			_ = p.WritePing(false, [8]byte{})
		}, "PROTOCOL_ERROR"},
		"a frame that is too large": {func(p *peer) { _ = p.WriteRawFrame(0, 0, 1, make([]byte, FrameSize+1)) }, "FRAME_SIZE_ERROR"},
		"a block that is none": {func(p *peer) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, EndHeaders: true})
		}, "COMPRESSION_ERROR"},
		"a push":                         {func(p *peer) { _ = p.WriteRawFrame(5, 4, 1, make([]byte, 4)) }, "PROTOCOL_ERROR"},
		"padding beyond the frame":       {func(p *peer) { _ = p.WriteRawFrame(0, 8, 1, []byte{9, 1}) }, "PROTOCOL_ERROR"},
		"SETTINGS of a stream":           {func(p *peer) { _ = p.WriteRawFrame(4, 0, 1, nil) }, "PROTOCOL_ERROR"},
		"SETTINGS of five bytes":         {func(p *peer) { _ = p.WriteRawFrame(4, 0, 0, make([]byte, 5)) }, "FRAME_SIZE_ERROR"},
		"an acknowledgement with text":   {func(p *peer) { _ = p.WriteRawFrame(4, 1, 0, make([]byte, 6)) }, "FRAME_SIZE_ERROR"},
		"a push setting of 2":            {func(p *peer) { _ = p.WriteSettings(http2.Setting{ID: 2, Val: 2}) }, "PROTOCOL_ERROR"},
		"a window that is too large":     {func(p *peer) { _ = p.WriteSettings(http2.Setting{ID: 4, Val: 1 << 31}) }, "FLOW_CONTROL_ERROR"},
		"a frame size that is too small": {func(p *peer) { _ = p.WriteSettings(http2.Setting{ID: 5, Val: 1}) }, "PROTOCOL_ERROR"},
		"PING of a stream":               {func(p *peer) { _ = p.WriteRawFrame(6, 0, 1, make([]byte, 8)) }, "PROTOCOL_ERROR"},
		"a short PING":                   {func(p *peer) { _ = p.WriteRawFrame(6, 0, 0, make([]byte, 7)) }, "FRAME_SIZE_ERROR"},
		"WINDOW_UPDATE of 0":             {func(p *peer) { _ = p.WriteWindowUpdate(0, 0) }, "PROTOCOL_ERROR"},
		"WINDOW_UPDATE of no stream":     {func(p *peer) { _ = p.WriteWindowUpdate(9, 1) }, "PROTOCOL_ERROR"},
		"a window beyond all":            {func(p *peer) { _ = p.WriteWindowUpdate(0, maxWindow) }, "FLOW_CONTROL_ERROR"},
		"RST_STREAM of no stream":        {func(p *peer) { _ = p.WriteRSTStream(9, 0) }, "PROTOCOL_ERROR"},
		"a stream that depends on itself": {func(p *peer) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, Priority: http2.PriorityParam{StreamDep: 1}})
		}, "PROTOCOL_ERROR"},
		"a header block without end": {func(p *peer) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1})
			for range 20 {
				_ = p.WriteContinuation(1, false, make([]byte, FrameSize))
			}
		}, "ENHANCE_YOUR_CALM"},
	} {
		t.Run(name, func(t *testing.T) {
			faults := make(chan error, 2)
			o := options(echo)
			o.Fault = func(err error) { faults <- err }
			p := dialFrames(t, o)
			tc.send(p)
			if got := p.want("away"); !strings.HasSuffix(got, tc.code) {
				t.Errorf("%s, want %s", got, tc.code)
			}
			p.want("end")
			if err := <-faults; err == nil || len(faults) > 0 {
				t.Error("the fault was not told once:", err)
			}
		})
	}
}

// SETTINGS cannot make the window of an open stream larger than windows may be.
func TestSettingsThatOverflowAWindowEndTheConnection(t *testing.T) {
	p := dialFrames(t, options(func(s *textStream) { <-s.Done() }))
	p.begin(false, getFields...)
	_ = p.WriteWindowUpdate(1, maxWindow-defaultWindow)
	_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: defaultWindow + 1})
	p.want("away 1 FLOW_CONTROL_ERROR")
}

// Faults that concern a stream end it alone.
func TestFaultsOfAStream(t *testing.T) {
	end := func(p *peer, ends bool, fields ...string) { // behind the whole body
		_ = p.WriteData(1, false, []byte("12345"))
		p.headers(1, ends, fields...)
	}
	for name, tc := range map[string]struct {
		send func(p *peer)
		code string
	}{
		"more than announced":            {func(p *peer) { _ = p.WriteData(1, false, []byte("123456")) }, "PROTOCOL_ERROR"},
		"less than announced":            {func(p *peer) { _ = p.WriteData(1, true, []byte("1234")) }, "PROTOCOL_ERROR"},
		"WINDOW_UPDATE of 0":             {func(p *peer) { _ = p.WriteWindowUpdate(1, 0) }, "PROTOCOL_ERROR"},
		"a window beyond all":            {func(p *peer) { _ = p.WriteWindowUpdate(1, maxWindow) }, "FLOW_CONTROL_ERROR"},
		"trailers before the body's end": {func(p *peer) { p.headers(1, true, "x-t", "1") }, "PROTOCOL_ERROR"},
		"a trailer that is no token":     {func(p *peer) { end(p, true, "x(t", "1") }, "PROTOCOL_ERROR"},
		"control bytes in a trailer":     {func(p *peer) { end(p, true, "x-t", "a\x01b") }, "PROTOCOL_ERROR"},
		"trailers without its end":       {func(p *peer) { end(p, false, "x-t", "1") }, "PROTOCOL_ERROR"},
		"a pseudo-header at the end":     {func(p *peer) { end(p, true, ":path", "/") }, "PROTOCOL_ERROR"},
		"trailers that are too large": {func(p *peer) {
			end(p, true, slices.Repeat([]string{"a", ""}, 3000)...)
		}, "PROTOCOL_ERROR"},
		"a short PRIORITY":   {func(p *peer) { _ = p.WriteRawFrame(2, 0, 1, make([]byte, 4)) }, "FRAME_SIZE_ERROR"},
		"PRIORITY on itself": {func(p *peer) { _ = p.WritePriority(1, http2.PriorityParam{StreamDep: 1}) }, "PROTOCOL_ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(func(s *textStream) {
				if s.ID() == 1 {
					_, _ = readHead(s)
					<-s.Done()
					if _, err := s.Read(make([]byte, 10)); err == nil || err == io.EOF {
						t.Errorf("the body ended with %v", err)
					}
					return
				}
				echo(s)
			})
			p := dialFrames(t, o)
			p.begin(false, with("content-length", "5")...)
			tc.send(p)
			p.want("1: reset " + tc.code)
			p.id = 2
			p.begin(true, getFields...)
			p.want("3: \"")
		})
	}
}

// Whatever bytes come, the connection ends without a panic, and serves nothing twice.
func FuzzConn(f *testing.F) {
	var text bytes.Buffer
	enc := hpack.NewEncoder(&text)
	for i := 0; i < len(getFields); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: getFields[i], Value: getFields[i+1]})
	}
	var frames bytes.Buffer
	w := http2.NewFramer(&frames, nil)
	_ = w.WriteSettings()
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: text.Bytes(), EndHeaders: true})
	_ = w.WriteData(1, true, []byte("abc"))
	_ = w.WriteWindowUpdate(0, 7)
	_ = w.WritePing(false, [8]byte{})
	_ = w.WriteRSTStream(1, 8)
	f.Add(frames.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		near, far := net.Pipe()
		o := options(func(s *textStream) {
			_ = s.SetReadDeadline(time.Now().Add(time.Second))
			echo(s)
		})
		ended := make(chan struct{})
		go func() { NewConn(far, o).Run(); _ = far.Close(); close(ended) }()
		go func() { _, _ = io.Copy(io.Discard, near) }()
		_ = near.SetWriteDeadline(time.Now().Add(5 * time.Second))
		_, _ = io.WriteString(near, Preface)
		_, _ = near.Write(b)
		_ = near.Close()
		<-ended
	})
}

// What a client had sent of a stream before it knew of its end is no fault, be it a piece or the trailers.
func TestFramesOnTheirWayToAStreamThatWasResetAreIgnored(t *testing.T) {
	p := dialFrames(t, options(func(s *textStream) {
		_, _ = readHead(s)
		_, _ = io.WriteString(s, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
	}))
	p.begin(false, getFields...)
	p.want("1: reset NO_ERROR")
	_ = p.WriteData(1, false, []byte("more"))
	p.id = 0
	p.begin(true, "x-t", "1") // its trailers
	p.id = 2
	p.begin(true, getFields...)
	p.want("3: :status=413")
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, seen := range p.seen {
		if strings.HasPrefix(seen, "1: reset") || strings.HasPrefix(seen, "away") {
			t.Error(seen)
		}
	}
}

// A request that came with a fault of its connection does not keep the connection from ending.
func TestARequestBeforeAFaultIsServedAndTheConnectionEnds(t *testing.T) {
	near, far := net.Pipe()
	served := make(chan struct{}, 1)
	o := options(func(s *textStream) { served <- struct{}{}; <-s.Done() })
	ended := make(chan struct{})
	go func() { NewConn(far, o).Run(); _ = far.Close(); close(ended) }()
	go func() { _, _ = io.Copy(io.Discard, near) }()
	var all bytes.Buffer
	all.WriteString(Preface)
	f := http2.NewFramer(&all, nil)
	f.AllowIllegalWrites = true
	_ = f.WriteSettings()
	var text bytes.Buffer
	enc := hpack.NewEncoder(&text)
	for i := 0; i < len(getFields); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: getFields[i], Value: getFields[i+1]})
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: text.Bytes(), EndStream: true, EndHeaders: true})
	_ = f.WriteWindowUpdate(0, 0) // the fault
	_, _ = near.Write(all.Bytes())
	<-served
	<-ended
	_ = near.Close()
	o.Workers.Close()
}

// HEADERS of a stream that both sides have ended are a fault of the connection, be its worker still there
// or not.
func TestHeadersOfAnEndedStreamEndTheConnection(t *testing.T) {
	written, release := make(chan struct{}), make(chan struct{})
	p := dialFrames(t, options(func(s *textStream) {
		_, _ = readHead(s)
		_, _ = io.WriteString(s, "HTTP/1.1 204 No Content\r\n\r\n")
		close(written)
		<-release
	}))
	p.begin(true, getFields...)
	<-written
	p.id = 0
	p.begin(true, getFields...)
	if got := p.want("away"); !strings.HasSuffix(got, "STREAM_CLOSED") {
		t.Error(got)
	}
	close(release)
}
