package proxy

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// framesOf is what write writes, behind the preface.
func framesOf(write func(f *http2.Framer)) []byte {
	var b bytes.Buffer
	b.WriteString(preface)
	f := http2.NewFramer(&b, nil)
	f.AllowIllegalWrites = true
	write(f)
	return b.Bytes()
}

// watched reads all of b through a frameWatch, n bytes at a time, and gives how long it took.
func watched(t *testing.T, b []byte, n int, slowed, away func()) time.Duration {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	w := watchFrames(theirs, time.Hour, slowed, away)
	want := len(b)
	go func() {
		for len(b) > 0 {
			k := min(n, len(b))
			if _, err := ours.Write(b[:k]); err != nil {
				return
			}
			b = b[k:]
		}
		_ = ours.Close()
	}()
	began := time.Now()
	if got, err := io.Copy(io.Discard, struct{ io.Reader }{w}); err != nil || int(got) != want {
		t.Errorf("%d of %d bytes, %v", got, want, err)
	}
	return time.Since(began)
}

// Frames that ask for nothing are read at once as far as an allowance goes, and then
// as fast as it grows, however the bytes come; frames that ask for something are not counted.
func TestFramesThatAskForNothingAreReadSlowly(t *testing.T) {
	many := func(n int, one func(f *http2.Framer) error) []byte {
		return framesOf(func(f *http2.Framer) {
			for range n {
				_ = one(f)
			}
		})
	}
	for name, tc := range map[string]struct {
		one    func(f *http2.Framer) error
		atOnce int // 0: not counted
	}{
		"RST_STREAM":              {func(f *http2.Framer) error { return f.WriteRSTStream(1, http2.ErrCodeCancel) }, resetsAtOnce},
		"SETTINGS":                {func(f *http2.Framer) error { return f.WriteSettings() }, idleFrames},
		"SETTINGS with content":   {func(f *http2.Framer) error { return f.WriteSettings(http2.Setting{ID: 3, Val: 9}) }, idleFrames},
		"PING":                    {func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }, idleFrames},
		"PRIORITY":                {func(f *http2.Framer) error { return f.WritePriority(1, http2.PriorityParam{}) }, idleFrames},
		"CONTINUATION":            {func(f *http2.Framer) error { return f.WriteContinuation(1, false, []byte("x")) }, idleFrames},
		"CONTINUATION, empty":     {func(f *http2.Framer) error { return f.WriteContinuation(1, false, nil) }, idleFrames},
		"DATA, empty":             {func(f *http2.Framer) error { return f.WriteData(1, false, nil) }, idleFrames},
		"of an unknown kind":      {func(f *http2.Framer) error { return f.WriteRawFrame(0x99, 0, 0, make([]byte, 300)) }, idleFrames},
		"DATA, empty, at its end": {func(f *http2.Framer) error { return f.WriteData(1, true, nil) }, 0},
		"DATA":                    {func(f *http2.Framer) error { return f.WriteData(1, false, []byte("x")) }, 0},
		"HEADERS": {func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("abc"), EndHeaders: true})
		}, 0},
		"WINDOW_UPDATE": {func(f *http2.Framer) error { return f.WriteWindowUpdate(1, 1) }, 0},
	} {
		for _, pieces := range []int{1, 7, 4096} {
			synctest.Test(t, func(t *testing.T) {
				slowed := 0
				took := func(n int) time.Duration {
					return watched(t, many(n, tc.one), pieces, func() { slowed++ }, func() {})
				}
				if d := took(tc.atOnce); d != 0 || slowed != 0 {
					t.Errorf("%s: as many as are allowed at once took %v, slowed down %d times", name, d, slowed)
				}
				const more = 2000 // in two seconds
				d := took(tc.atOnce + more)
				if tc.atOnce == 0 && d != 0 {
					t.Errorf("%s: took %v", name, d)
				}
				if tc.atOnce != 0 && (d < 1500*time.Millisecond || d > 2500*time.Millisecond || slowed != 1) {
					t.Errorf("%s: %d more than are allowed at once took %v, slowed down %d times", name, more, d, slowed)
				}
			})
		}
	}
}

// A client that floods on and on is told to go away; one that pauses is not.
func TestAFloodThatGoesOnGetsGoAway(t *testing.T) {
	for name, tc := range map[string]struct {
		pause time.Duration
		want  int
	}{"on and on": {0, 1}, "with pauses": {1500 * time.Millisecond, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				away := 0
				w := watchFrames(nil, 0, func() {}, func() { away++ })
				for range 20 * idleFramesPerSecond {
					if w.frames.tokens--; w.frames.tokens < -idleFramesPerSecond {
						w.pace()
						time.Sleep(tc.pause)
					}
				}
				if away != tc.want {
					t.Errorf("told %d times", away)
				}
			})
		})
	}
}

// The allowance grows again with time and with responses.
func TestTheAllowanceOfFramesIsEarned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchFrames(nil, 0, func() {}, func() {})
		w.scan.skip = 0
		ping := framesOf(func(f *http2.Framer) { _ = f.WritePing(false, [8]byte{}) })[len(preface):]
		took := func(n int) time.Duration {
			began := time.Now()
			for range n {
				w.inspect(ping)
			}
			w.pace()
			return time.Since(began)
		}
		if d := took(idleFrames); d != 0 {
			t.Errorf("the first took %v", d)
		}
		if d := took(idleFramesPerSecond); d != time.Second {
			t.Errorf("a second's took %v", d)
		}
		w.credit.Add(300)
		if d := took(300); d != 0 {
			t.Errorf("300 behind 300 responses took %v", d)
		}
		time.Sleep(time.Hour)
		took(1)
		if d := took(idleFrames + 500); d != 500*time.Millisecond {
			t.Errorf("500 more than are allowed at once took %v", d)
		}
	})
}

// Streams that we reset for a client's fault count as if it had reset them; those that
// we reset for reasons of our own do not.
func TestResetsThatAClientCausesAreCounted(t *testing.T) {
	faults := []http2.ErrCode{http2.ErrCodeProtocol, http2.ErrCodeFlowControl, http2.ErrCodeStreamClosed, http2.ErrCodeFrameSize, http2.ErrCodeRefusedStream}
	sent := framesOf(func(f *http2.Framer) {
		_ = f.WriteSettings(http2.Setting{ID: 3, Val: 9})
		for _, code := range append(faults, http2.ErrCodeNo, http2.ErrCodeInternal) {
			_ = f.WriteRSTStream(1, code)
			_ = f.WriteData(3, false, []byte("\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x01")) // as content
		}
	})[len(preface):]
	for n := 1; n <= len(sent); n++ {
		synctest.Test(t, func(t *testing.T) {
			w := watchFrames(discards{}, 0, func() {}, func() {})
			for rest := sent; len(rest) > 0; rest = rest[min(n, len(rest)):] {
				_, _ = w.Write(rest[:min(n, len(rest))])
			}
			w.pace()
			if got := resetsAtOnce - w.resets.tokens; got != len(faults) {
				t.Fatalf("written %d bytes at a time: %d counted, want %d", n, got, len(faults))
			}
			if got := idleFrames - w.frames.tokens; got != len(faults) {
				t.Fatalf("written %d bytes at a time: %d frames counted, want %d", n, got, len(faults))
			}
		})
	}
}

// discards takes all that is written.
type discards struct{ net.Conn }

func (discards) Write(p []byte) (int, error) { return len(p), nil }

// begun is a client of HTTP/2 that writes frames itself.
func (p *testProxy) begun() (*client, *http2.Framer) {
	c := p.dial()
	c.send(preface)
	f := http2.NewFramer(c.Conn, c.r)
	f.AllowIllegalWrites = true
	_ = f.WriteSettings()
	return c, f
}

// What a client gets earns it frames, since it may ask about each piece.
func TestPiecesOfAResponseEarnFrames(t *testing.T) {
	var credit atomic.Int64
	rec := httptest.NewRecorder()
	w := creditingWriter{rec, &credit}
	_, _ = w.Write([]byte("a"))
	_, _ = w.Write(make([]byte, 2*frameSize))
	if got := credit.Load(); got != 4 {
		t.Errorf("%d earned, want 4", got)
	}
	if err := http.NewResponseController(w).Flush(); err != nil || !rec.Flushed {
		t.Errorf("not flushed: %v", err)
	}
}

// A client that asks by PING about every piece, as gRPC's does, is not cut off.
func TestAClientMayPingForEachPiece(t *testing.T) {
	const pieces = idleFrames + 1000
	next := make(chan struct{}, 1)
	u := startUpstream(t, func(c *upConn) {
		if c.head() == "" {
			return
		}
		c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for range pieces {
			c.say("1\r\nx\r\n")
			<-next
		}
		c.say("0\r\n\r\n")
	})
	p := startProxy(t, u, speakHTTP2)
	c, f := p.begun()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, field := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":path", Value: "/"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a"}} {
		_ = enc.WriteField(field)
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	defer close(next)
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	for got := 0; ; {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("after %d of %d pieces: %v", got, pieces, err)
		}
		data, ok := frame.(*http2.DataFrame)
		if !ok {
			continue
		}
		if data.StreamEnded() {
			if got != pieces {
				t.Errorf("%d pieces, want %d", got, pieces)
			}
			return
		}
		got++
		_ = f.WritePing(false, [8]byte{})
		next <- struct{}{}
	}
}

// A client that agreed on HTTP/2, or began to, and then says nothing is not waited for.
func TestAnHTTP2PrefaceHasToComeInTime(t *testing.T) {
	a := newAuthority(t)
	quick := func(c *Config) { speakHTTP2(c); c.ReadHeaderTimeout = 100 * time.Millisecond }
	t.Run("half of it", func(t *testing.T) {
		c := startProxy(t, startUpstream(t, script(ok200)), quick).dial()
		c.send(preface[:18])
		_, _ = c.rest() // ends
	})
	t.Run("nothing, over TLS", func(t *testing.T) {
		p := startProxy(t, startUpstream(t, script(ok200)), func(c *Config) { quick(c); a.clientsOverTLS(t, c, false) })
		conf := a.client()
		conf.NextProtos = []string{"h2"}
		_, _ = p.dialTLS(conf).rest()
	})
	t.Run("and what follows it need not", func(t *testing.T) {
		p := startProxy(t, startUpstream(t, script(ok200)), quick)
		c, f := p.begun()
		time.Sleep(300 * time.Millisecond)
		_ = f.WritePing(false, [8]byte{})
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if ping, ok := frame.(*http2.PingFrame); ok && ping.IsAck() {
				return
			}
		}
	})
}

// A head has to come in its time over HTTP/2 too, in one frame or in many; no
// other frame has to.
func TestHTTP2HeadersHaveToComeInTime(t *testing.T) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	_ = enc.WriteField(hpack.HeaderField{Name: ":method", Value: "GET"})
	for name, begin := range map[string]func(c *client, f *http2.Framer){
		"no CONTINUATION": func(_ *client, f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes()})
		},
		"half a frame": func(c *client, _ *http2.Framer) { c.send("\x00\x00\x64\x01\x05\x00\x00\x00\x01half") },
	} {
		t.Run(name, func(t *testing.T) {
			u := startUpstream(t, script(ok200))
			p := startProxy(t, u, func(c *Config) { speakHTTP2(c); c.ReadHeaderTimeout = 100 * time.Millisecond })
			c, f := p.begun()
			begin(c, f)
			_, _ = c.rest() // ends
			if u.sends() != 0 {
				t.Error("it was sent")
			}
		})
	}
	t.Run("a body may take longer", func(t *testing.T) {
		p := startProxy(t, echoUpstream(t), func(c *Config) { speakHTTP2(c); c.ReadHeaderTimeout = 100 * time.Millisecond })
		r, w := io.Pipe()
		go func() {
			time.Sleep(300 * time.Millisecond)
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
			_ = w.Close()
		}()
		res, body := p.fetch(http2Client(t, nil), http.MethodPost, "/", r)
		if res.StatusCode != 200 || len(body) != 1000 {
			t.Errorf("%d %d", res.StatusCode, len(body))
		}
	})
}

// A head ends with its last frame, also where that one has no content.
func TestHeadersEndWithTheirLastFrame(t *testing.T) {
	open := http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("abc")}
	whole, empty := open, http2.HeadersFrameParam{StreamID: 1, EndHeaders: true}
	whole.EndHeaders = true
	for name, tc := range map[string]struct {
		write func(f *http2.Framer)
		open  bool
	}{
		"one frame":            {func(f *http2.Framer) { _ = f.WriteHeaders(whole) }, false},
		"one empty frame":      {func(f *http2.Framer) { _ = f.WriteHeaders(empty) }, false},
		"more to come":         {func(f *http2.Framer) { _ = f.WriteHeaders(open) }, true},
		"two frames":           {func(f *http2.Framer) { _ = f.WriteHeaders(open); _ = f.WriteContinuation(1, true, []byte("x")) }, false},
		"the last one empty":   {func(f *http2.Framer) { _ = f.WriteHeaders(open); _ = f.WriteContinuation(1, true, nil) }, false},
		"an empty one, not it": {func(f *http2.Framer) { _ = f.WriteHeaders(open); _ = f.WriteContinuation(1, false, nil) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := framesOf(tc.write)
			for n := 1; n <= len(b); n++ {
				w := watchFrames(nil, time.Minute, func() {}, func() {})
				for rest := b; len(rest) > 0; rest = rest[min(n, len(rest)):] {
					w.inspect(rest[:min(n, len(rest))])
				}
				if w.inHeaders != tc.open {
					t.Fatalf("read %d bytes at a time: in a head: %v", n, w.inHeaders)
				}
			}
		})
	}
}
