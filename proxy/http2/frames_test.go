package http2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// peer is a client that writes frames.
type peer struct {
	*http2.Framer
	t    *testing.T
	nc   net.Conn
	text bytes.Buffer
	enc  *hpack.Encoder
	id   uint32

	answers atomic.Bool // to pings

	mu   sync.Mutex
	seen []string // what came, without SETTINGS
	more chan struct{}
	over chan struct{}
}

// dialFrames serves a connection and returns its client.
func dialFrames(t *testing.T, o *Options) *peer {
	t.Helper()
	near, far := net.Pipe()
	ended := make(chan struct{})
	go func() { NewConn(far, o).Run(); close(ended) }()
	p := &peer{Framer: http2.NewFramer(near, near), t: t, nc: near, more: make(chan struct{}, 1), over: make(chan struct{})}
	p.AllowIllegalWrites, p.AllowIllegalReads = true, true
	p.enc = hpack.NewEncoder(&p.text)
	go p.read()
	t.Cleanup(func() { _ = near.Close(); <-ended; <-p.over; o.Workers.Close() })
	if _, err := io.WriteString(near, Preface); err != nil {
		t.Fatal(err)
	}
	_ = p.WriteSettings()
	return p
}

func (p *peer) read() {
	defer close(p.over)
	fields := hpack.NewDecoder(4096, nil)
	for {
		f, err := p.ReadFrame()
		if err != nil {
			p.note("end")
			return
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			all, err := fields.DecodeFull(f.HeaderBlockFragment())
			if err != nil {
				p.t.Error(err)
			}
			text := fmt.Sprintf("%d:", f.StreamID)
			for _, h := range all {
				text += " " + h.Name + "=" + h.Value
			}
			if f.StreamEnded() {
				text += " end"
			}
			p.note(text)
		case *http2.DataFrame:
			text := fmt.Sprintf("%d: %q", f.StreamID, f.Data())
			if f.StreamEnded() {
				text += " end"
			}
			p.note(text)
		case *http2.RSTStreamFrame:
			p.note(fmt.Sprintf("%d: reset %v", f.StreamID, f.ErrCode))
		case *http2.GoAwayFrame:
			p.note(fmt.Sprintf("away %d %v", f.LastStreamID, f.ErrCode))
		case *http2.PingFrame:
			switch {
			case f.IsAck():
				p.note("pong")
			case p.answers.Load():
				_, _ = p.nc.Write(append([]byte{0, 0, 8, framePing, flagAck, 0, 0, 0, 0}, f.Data[:]...)) // the Framer is the test's
			}
		case *http2.WindowUpdateFrame:
			if f.StreamID != 0 {
				p.note(fmt.Sprintf("%d: window", f.StreamID))
			}
		}
	}
}

func (p *peer) note(what string) {
	p.mu.Lock()
	p.seen = append(p.seen, what)
	p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// want waits for a frame that begins with what, and returns it.
func (p *peer) want(what string) string {
	p.t.Helper()
	for {
		p.mu.Lock()
		i := slices.IndexFunc(p.seen, func(s string) bool { return strings.HasPrefix(s, what) })
		var got string
		if i >= 0 {
			got = p.seen[i]
			p.seen = slices.Delete(p.seen, i, i+1)
		}
		all := strings.Join(p.seen, "; ")
		p.mu.Unlock()
		if i >= 0 {
			return got
		}
		select {
		case <-p.more:
		case <-time.After(time.Minute):
			p.t.Fatalf("no %q among %s", what, all)
		}
	}
}

var getFields = []string{":method", "GET", ":scheme", "http", ":authority", "h.test", ":path", "/a?b"}

// begin opens a stream.
func (p *peer) begin(ends bool, fields ...string) uint32 {
	p.id += 2
	id := p.id - 1
	p.text.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = p.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.text.Bytes(), EndStream: ends, EndHeaders: true})
	return id
}

func with(fields ...string) []string { return append(slices.Clip(getFields), fields...) }

// echo responds with what it read of a request that has no body.
func echo(s *Stream) {
	head, err := readHead(s)
	if err != nil {
		return
	}
	fmt.Fprintf(s, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(head), head)
}

func TestARequestReadsAsHTTP1(t *testing.T) {
	for name, tc := range map[string]struct {
		fields []string
		want   string
	}{
		"plain":                       {getFields, "GET /a?b HTTP/1.1\r\nHost: h.test\r\n\r\n"},
		"in order":                    {with("x-b", "2", "accept", "1", "x-b", "3", "te", "trailers"), "GET /a?b HTTP/1.1\r\nHost: h.test\r\nX-B: 2\r\nAccept: 1\r\nX-B: 3\r\nTe: trailers\r\n\r\n"},
		"the authority as host, too":  {with("host", "h.test"), "GET /a?b HTTP/1.1\r\nHost: h.test\r\n\r\n"},
		"another host, to be refused": {with("host", "other"), "GET /a?b HTTP/1.1\r\nHost: h.test\r\nHost: other\r\n\r\n"},
		"only a host":                 {[]string{":method", "GET", ":scheme", "https", ":path", "/", "host", "x"}, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		"crumbs of a cookie":          {with("cookie", "a=1", "x", "y", "cookie", "b=2"), "GET /a?b HTTP/1.1\r\nHost: h.test\r\nX: y\r\nCookie: a=1; b=2\r\n\r\n"},
		"an empty body":               {with("content-length", "0"), "GET /a?b HTTP/1.1\r\nHost: h.test\r\nContent-Length: 0\r\n\r\n"},
		"OPTIONS":                     {[]string{":method", "OPTIONS", ":scheme", "http", ":authority", "h", ":path", "*"}, "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"},
		"CONNECT":                     {[]string{":method", "CONNECT", ":authority", "h:1"}, "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n"},
		"lengths that differ":         {with("content-length", "5", "content-length", "6"), "GET /a?b HTTP/1.1\r\nHost: h.test\r\nContent-Length: 5\r\nContent-Length: 6\r\nContent-Length: none\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := dialFrames(t, options(echo))
			p.begin(true, tc.fields...)
			if got, want := p.want("1: \""), fmt.Sprintf("1: %q end", tc.want); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// What RFC 9113 calls malformed, and whatever could end a line, ends the stream alone.
func TestAMalformedRequestIsReset(t *testing.T) {
	served := atomic.Int64{}
	for name, fields := range map[string][]string{
		"no method":             {":scheme", "http", ":authority", "a", ":path", "/"},
		"no path":               {":method", "GET", ":scheme", "http", ":authority", "a"},
		"no scheme":             {":method", "GET", ":authority", "a", ":path", "/"},
		"an empty path":         {":method", "GET", ":scheme", "http", ":authority", "a", ":path", ""},
		"no slash":              {":method", "GET", ":scheme", "http", ":authority", "a", ":path", "a"},
		"a star for GET":        {":method", "GET", ":scheme", "http", ":authority", "a", ":path", "*"},
		"another scheme":        {":method", "GET", ":scheme", "ftp", ":authority", "a", ":path", "/"},
		"two paths":             {":method", "GET", ":scheme", "http", ":path", "/", ":path", "/"},
		"pseudo behind regular": {":method", "GET", ":scheme", "http", "x", "y", ":path", "/"},
		"unknown pseudo":        with(":status", "200"),
		"upper case":            with("X-A", "b"),
		"connection":            with("connection", "close"),
		"transfer coding":       with("transfer-encoding", "chunked"),
		"upgrade":               with("upgrade", "x"),
		"te":                    with("te", "gzip"),
		"space in a name":       with("x a", "b"),
		"colon in a name":       with("x:a", "b"),
		"no name":               with("", "b"),
		"LF in a value":         with("x", "a\nb: c"),
		"CR in a value":         with("x", "a\rb"),
		"NUL in a value":        with("x", "a\x00"),
		"LF in the path":        {":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/\r\nX: y"},
		"space in the path":     {":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/ HTTP/1.1"},
		"LF in the method":      {":method", "GET\n", ":scheme", "http", ":authority", "a", ":path", "/"},
		"LF in the authority":   {":method", "GET", ":scheme", "http", ":authority", "a\n", ":path", "/"},
		"two hosts":             with("host", "a", "host", "b"),
		"CONNECT with a path":   {":method", "CONNECT", ":authority", "a", ":path", "/", ":scheme", "http"},
		"a protocol without it": {":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/", ":protocol", "websocket"},
	} {
		t.Run(name, func(t *testing.T) {
			p := dialFrames(t, options(func(s *Stream) { served.Add(1); echo(s) }))
			p.begin(true, fields...)
			p.want("1: reset PROTOCOL_ERROR")
			before := served.Load()
			p.begin(true, getFields...)
			p.want("3: \"")
			if served.Load() != before+1 || before != 0 && before > 100 {
				t.Error("a malformed request was served")
			}
		})
	}
	if n := served.Load(); n != 28 {
		t.Errorf("%d were served, want one in each case", n)
	}
}

func TestAResponseMayComeInAnyPieces(t *testing.T) {
	for _, tc := range []struct{ response, headers, end string }{
		{"HTTP/1.1 201 Created\r\nContent-Length: 5\r\nConnection: close\r\nX-A: 1\r\nX-A: 2\r\n\r\nhello", "1: :status=201 content-length=5 x-a=1 x-a=2", "end"},
		{"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\nX-T: t\r\n\r\n", "1: :status=103 link=</x>", "1: x-t=t end"},
		{"HTTP/1.1 204 No Content\r\nDate: now\r\n\r\n", "1: :status=204 date=now end", ""},
	} {
		for _, step := range []int{1, 3, 1000} {
			p := dialFrames(t, options(func(s *Stream) {
				if _, err := readHead(s); err != nil {
					return
				}
				for b := []byte(tc.response); len(b) > 0; {
					n := min(step, len(b))
					if _, err := s.Write(b[:n]); err != nil {
						t.Errorf("%q by %d: %v", tc.response, step, err)
					}
					b = b[n:]
				}
				if n, err := s.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Errorf("after the response: %d, %v", n, err)
				}
				if _, err := s.Write([]byte("more")); err == nil {
					t.Error("it took bytes after the response")
				}
			}))
			p.begin(true, getFields...)
			p.want(tc.headers)
			if strings.HasPrefix(tc.end, "1:") {
				p.want("1: :status=200")
				p.want(tc.end)
			}
		}
	}
}

func TestAResponseThatIsCutDoesNotLookWhole(t *testing.T) {
	for _, response := range []string{"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"} {
		p := dialFrames(t, options(func(s *Stream) { _, _ = io.WriteString(s, response) }))
		p.begin(true, getFields...)
		p.want("1: reset INTERNAL_ERROR")
	}
}

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
		"a frame that is too large": {func(p *peer) { _ = p.WriteRawFrame(0, 0, 1, make([]byte, frameSize+1)) }, "FRAME_SIZE_ERROR"},
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
				_ = p.WriteContinuation(1, false, make([]byte, frameSize))
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

// Faults that concern a stream end it alone.
func TestFaultsOfAStream(t *testing.T) {
	for name, tc := range map[string]struct {
		send func(p *peer)
		code string
	}{
		"more than announced":        {func(p *peer) { _ = p.WriteData(1, false, []byte("123456")) }, "PROTOCOL_ERROR"},
		"less than announced":        {func(p *peer) { _ = p.WriteData(1, true, []byte("1234")) }, "PROTOCOL_ERROR"},
		"WINDOW_UPDATE of 0":         {func(p *peer) { _ = p.WriteWindowUpdate(1, 0) }, "PROTOCOL_ERROR"},
		"a window beyond all":        {func(p *peer) { _ = p.WriteWindowUpdate(1, maxWindow) }, "FLOW_CONTROL_ERROR"},
		"trailers without its end":   {func(p *peer) { p.id = 0; p.begin(false, "x-t", "1") }, "PROTOCOL_ERROR"},
		"a pseudo-header at the end": {func(p *peer) { p.id = 0; p.begin(true, ":path", "/") }, "PROTOCOL_ERROR"},
		"a short PRIORITY":           {func(p *peer) { _ = p.WriteRawFrame(2, 0, 1, make([]byte, 4)) }, "FRAME_SIZE_ERROR"},
		"PRIORITY on itself":         {func(p *peer) { _ = p.WritePriority(1, http2.PriorityParam{StreamDep: 1}) }, "PROTOCOL_ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(func(s *Stream) {
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

// What a client sends beyond the window of a stream ends the stream; padding counts.
func TestMoreThanTheWindowEndsAStream(t *testing.T) {
	p := dialFrames(t, options(func(s *Stream) { _, _ = readHead(s); <-s.Done() }))
	p.begin(false, getFields...)
	for range 4 {
		_ = p.WriteRawFrame(0, 8, 1, append([]byte{255}, make([]byte, frameSize-1)...))
	}
	_ = p.WritePing(false, [8]byte{})
	p.want("pong")
	_ = p.WriteData(1, false, []byte("x"))
	p.want("1: reset FLOW_CONTROL_ERROR")
}

// A client that SETTINGS make wait gets the rest when its window is positive again.
func TestAWindowMayBecomeNegative(t *testing.T) {
	p := dialFrames(t, options(func(s *Stream) {
		_, _ = readHead(s)
		_, _ = fmt.Fprint(s, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n12345678")
	}))
	_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3})
	p.begin(true, getFields...)
	p.want(`1: "123"`)
	_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	_ = p.WriteWindowUpdate(1, 2)
	_ = p.WritePing(false, [8]byte{})
	p.want("pong")
	_ = p.WriteWindowUpdate(1, 2)
	p.want(`1: "45"`)
	_ = p.WriteWindowUpdate(1, 9)
	p.want(`1: "678" end`)
}

// Header blocks that decode to far more than they are cost no memory and no connection (HPACK bombs).
func TestHeadersThatExpandAreTooLarge(t *testing.T) {
	tooLarge := 0
	o := options(echo)
	o.HeaderBytes, o.TooLarge = 16<<10, func() { tooLarge++ }
	p := dialFrames(t, o)
	p.begin(true, with("x-bomb", strings.Repeat("b", 3000))...) // goes to the table
	p.want("1: \"")
	bomb := with()
	for range 10000 {
		bomb = append(bomb, "x-bomb", strings.Repeat("b", 3000)) // one byte each
	}
	p.begin(true, bomb...)
	p.want("3: :status=431")
	p.begin(true, getFields...)
	p.want("5: \"")
	if tooLarge != 1 {
		t.Errorf("counted %d times", tooLarge)
	}
}

// A client that resets its streams at once has no more workers than streams, and what it reset before it had
// one is never served (CVE-2023-44487).
func TestResetStreamsKeepTheirWorkers(t *testing.T) {
	release := make(chan struct{})
	var running, most, served atomic.Int64
	o := options(func(s *Stream) {
		served.Add(1)
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-release
		running.Add(-1)
	})
	o.Streams = 4
	p := dialFrames(t, o)
	for range 100 {
		id := p.begin(true, getFields...)
		_ = p.WriteRSTStream(id, http2.ErrCodeCancel)
	}
	_ = p.WritePing(false, [8]byte{})
	p.want("pong")
	close(release)
	p.begin(true, getFields...) // is served when the others have ended
	p.want(fmt.Sprintf("%d: reset INTERNAL_ERROR", p.id-1))
	if most.Load() > 4 || served.Load() > 5 {
		t.Errorf("%d at once, %d in all", most.Load(), served.Load())
	}
}

// More streams than allowed are refused, which a client may repeat.
func TestMoreStreamsThanAllowedAreRefused(t *testing.T) {
	release := make(chan struct{})
	o := options(func(s *Stream) { <-release; echo(s) })
	o.Streams = 2
	p := dialFrames(t, o)
	p.begin(true, getFields...)
	p.begin(true, getFields...)
	p.begin(true, getFields...)
	p.want("5: reset REFUSED_STREAM")
	close(release)
	p.want("1: \"")
	p.want("3: \"")
}

// A client that asks and does not read is not kept.
func TestAClientThatSendsAndDoesNotReadIsEnded(t *testing.T) {
	near, far := net.Pipe()
	ended := make(chan struct{})
	go func() { NewConn(far, options(echo)).Run(); close(ended) }()
	f := http2.NewFramer(near, near)
	_, _ = io.WriteString(near, Preface)
	_ = f.WriteSettings()
	for range 200_000 {
		if f.WritePing(false, [8]byte{}) != nil {
			break
		}
	}
	_ = near.Close()
	<-ended
}

// A response may pause for longer than any write may take, and a client that answers pings stays.
func TestASilentResponseIsNotReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := dialFrames(t, options(func(s *Stream) {
			_, _ = readHead(s)
			_, _ = io.WriteString(s, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na")
			time.Sleep(10 * time.Minute)
			_, _ = io.WriteString(s, "b")
		}))
		p.answers.Store(true)
		p.begin(true, getFields...)
		time.Sleep(11 * time.Minute)
		p.want(`1: "b" end`)
	})
}

func TestAClientThatVanishedIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan time.Duration, 1)
		began := time.Now()
		p := dialFrames(t, options(func(s *Stream) { <-s.Done(); gone <- time.Since(began) }))
		p.begin(true, getFields...)
		if took := <-gone; took > 2*time.Minute {
			t.Errorf("after %v", took)
		}
		p.want("end")
	})
}

func TestTimesOfAnIdleClient(t *testing.T) {
	for name, tc := range map[string]struct {
		send        func(p *peer)
		want, grace time.Duration
	}{
		"idle":                        {func(*peer) {}, 3 * time.Minute, goAwayAfter},
		"headers that do not end":     {func(p *peer) { _ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1}) }, 10 * time.Second, 0},
		"a piece of a frame's header": {func(p *peer) { _, _ = p.nc.Write([]byte{0, 0}) }, 10 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options(echo)
				o.IdleTimeout, o.PingAfter = 3*time.Minute, 0
				p := dialFrames(t, o)
				began := time.Now()
				tc.send(p)
				p.patience(time.Hour)
				if took := time.Since(began) - tc.grace; took != tc.want {
					t.Errorf("ended after %v, want %v", took, tc.want)
				}
			})
		})
	}
}

// patience waits for the end.
func (p *peer) patience(time.Duration) { <-p.over }

// A client that opens no window ends a write at its deadline, or when the deadline moves to the past.
func TestABlockedWriteEndsAtItsDeadline(t *testing.T) {
	for _, after := range []time.Duration{5 * time.Second, 0} {
		synctest.Test(t, func(t *testing.T) {
			result := make(chan error, 1)
			p := dialFrames(t, options(func(s *Stream) {
				_, _ = readHead(s)
				_ = s.SetWriteDeadline(time.Now().Add(time.Hour))
				go func() { time.Sleep(time.Minute); _ = s.SetWriteDeadline(time.Now().Add(after)) }()
				_, err := io.WriteString(s, "HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n"+strings.Repeat("x", 200000))
				result <- err
			}))
			p.answers.Store(true)
			p.begin(true, getFields...)
			began := time.Now()
			err := <-result
			if took := time.Since(began); err == nil || took != time.Minute+after {
				t.Errorf("%v after %v", err, took)
			}
			p.want("1: reset CANCEL")
		})
	}
}

// A client that is told to go away is served all that was on its way, and refused what comes later.
func TestGoAwayLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		o := options(func(s *Stream) { time.Sleep(time.Second); echo(s) })
		c := NewConn(far, o)
		ended := make(chan struct{})
		go func() { c.Run(); close(ended) }()
		p := &peer{Framer: http2.NewFramer(near, near), t: t, nc: near, more: make(chan struct{}, 1), over: make(chan struct{})}
		p.enc = hpack.NewEncoder(&p.text)
		go p.read()
		_, _ = io.WriteString(near, Preface)
		_ = p.WriteSettings()
		p.begin(true, getFields...)
		synctest.Wait()
		c.GoAway()
		c.GoAway()
		p.want("away 2147483647 NO_ERROR")
		p.begin(true, getFields...) // it was on its way
		time.Sleep(2 * goAwayAfter)
		p.want("away 3 NO_ERROR")
		p.begin(true, getFields...)
		p.want("5: reset REFUSED_STREAM")
		p.want("1: \"")
		p.want("3: \"")
		<-ended
		p.want("end")
		o.Workers.Close()
	})
}

// errNotRead is the error of a body that was given up.
var errNotRead = errors.New("not read")

// backlog gives up the body that waits first.
type backlog struct {
	mu    sync.Mutex
	waits []func() bool
}

func (b *backlog) Wait(_ int64, end func() bool) func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits = append(b.waits, end)
	return func() {}
}

// A body whose reader is behind is counted, and can be given up; its reader gets the error.
func TestABodyThatNobodyReadsCanBeGivenUp(t *testing.T) {
	b := &backlog{}
	read := make(chan struct{})
	result := make(chan error, 1)
	o := options(func(s *Stream) {
		_, _ = readHead(s)
		<-read
		_, err := io.Copy(io.Discard, s)
		result <- err
	})
	o.Backlog, o.NotRead = b, errNotRead
	p := dialFrames(t, o)
	p.begin(false, with("content-length", "1000000")...)
	for range 3 {
		_ = p.WriteData(1, false, make([]byte, 15<<10))
	}
	_ = p.WritePing(false, [8]byte{})
	p.want("pong")
	b.mu.Lock()
	waits := b.waits
	b.mu.Unlock()
	if len(waits) != 1 || !waits[0]() {
		t.Fatalf("%d wait", len(waits))
	}
	close(read)
	if err := <-result; err != errNotRead {
		t.Errorf("its reader got %v", err)
	}
}

// Workers that are not needed end.
func TestWorkersEndWhenTheyAreNotNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(echo)
		p := dialFrames(t, o)
		for range 20 {
			p.begin(true, getFields...)
		}
		time.Sleep(time.Millisecond)
		o.Workers.mu.Lock()
		some := len(o.Workers.idle)
		o.Workers.mu.Unlock()
		time.Sleep(3 * trimEvery)
		o.Workers.mu.Lock()
		defer o.Workers.mu.Unlock()
		if some == 0 || len(o.Workers.idle) != 0 || o.Workers.trimming {
			t.Errorf("%d were idle, and %d are", some, len(o.Workers.idle))
		}
	})
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
		o := options(func(s *Stream) {
			_ = s.SetReadDeadline(time.Now().Add(time.Second))
			echo(s)
		})
		ended := make(chan struct{})
		go func() { NewConn(far, o).Run(); close(ended) }()
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
	p := dialFrames(t, options(func(s *Stream) {
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
	o := options(func(s *Stream) { served <- struct{}{}; <-s.Done() })
	ended := make(chan struct{})
	go func() { NewConn(far, o).Run(); close(ended) }()
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
	p := dialFrames(t, options(func(s *Stream) {
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
