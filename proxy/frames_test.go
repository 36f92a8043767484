package proxy

import (
	"bytes"
	"errors"
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

	"github.com/retryproxy/retryproxy/proxy/http1"
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

// watched reads all of b through a frameWatch, n bytes at a time.
func watched(b []byte, n int, flooded func()) (got int, err error) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	w := watchFrames(theirs, time.Minute, flooded)
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
	defer theirs.Close()
	c, err := io.Copy(io.Discard, struct{ io.Reader }{w})
	return int(c), err
}

// Frames that ask for nothing are an allowance's worth and no more, however
// the bytes come; frames that ask for something are not counted.
func TestFramesThatAskForNothingAreBounded(t *testing.T) {
	many := func(n int, one func(f *http2.Framer) error) []byte {
		return framesOf(func(f *http2.Framer) {
			for range n {
				_ = one(f)
			}
		})
	}
	for name, tc := range map[string]struct {
		one     func(f *http2.Framer) error
		bounded bool
	}{
		"RST_STREAM":              {func(f *http2.Framer) error { return f.WriteRSTStream(1, http2.ErrCodeCancel) }, true},
		"SETTINGS":                {func(f *http2.Framer) error { return f.WriteSettings() }, true},
		"SETTINGS with content":   {func(f *http2.Framer) error { return f.WriteSettings(http2.Setting{ID: 3, Val: 9}) }, true},
		"PING":                    {func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }, true},
		"PRIORITY":                {func(f *http2.Framer) error { return f.WritePriority(1, http2.PriorityParam{}) }, true},
		"CONTINUATION":            {func(f *http2.Framer) error { return f.WriteContinuation(1, false, []byte("x")) }, true},
		"CONTINUATION, empty":     {func(f *http2.Framer) error { return f.WriteContinuation(1, false, nil) }, true},
		"DATA, empty":             {func(f *http2.Framer) error { return f.WriteData(1, false, nil) }, true},
		"of an unknown kind":      {func(f *http2.Framer) error { return f.WriteRawFrame(0x99, 0, 0, make([]byte, 300)) }, true},
		"DATA, empty, at its end": {func(f *http2.Framer) error { return f.WriteData(1, true, nil) }, false},
		"DATA":                    {func(f *http2.Framer) error { return f.WriteData(1, false, []byte("x")) }, false},
		"HEADERS": {func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("abc"), EndHeaders: true})
		}, false},
		"WINDOW_UPDATE": {func(f *http2.Framer) error { return f.WriteWindowUpdate(1, 1) }, false},
	} {
		for _, pieces := range []int{1, 7, 4096} {
			synctest.Test(t, func(t *testing.T) { // no time passes in it, so that none is earned
				calls := 0
				if got, err := watched(many(idleFrames, tc.one), pieces, func() { calls++ }); err != nil || calls != 0 || got != len(many(idleFrames, tc.one)) {
					t.Errorf("%s: %d bytes and %v, told %d times, as many as allowed", name, got, err, calls)
				}
				_, err := watched(many(idleFrames+1, tc.one), pieces, func() { calls++ })
				if (err != nil) != tc.bounded || tc.bounded && (!errors.Is(err, errFlood) || calls != 1) {
					t.Errorf("%s: %v, told %d times, one more than allowed", name, err, calls)
				}
			})
		}
	}
}

// The allowance grows again with time and with answers.
func TestTheAllowanceOfFramesIsEarned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchFrames(nil, 0, nil)
		w.skip = 0
		ping := framesOf(func(f *http2.Framer) { _ = f.WritePing(false, [8]byte{}) })[len(preface):]
		take := func() (n int) {
			for w.pass(ping) {
				n++
			}
			w.left, w.skip = 0, 0 // the one refused
			return n
		}
		if n := take(); n != idleFrames {
			t.Errorf("%d at once, want %d", n, idleFrames)
		}
		time.Sleep(time.Second)
		if n := take(); n != idleFramesPerSecond {
			t.Errorf("%d after a second, want %d", n, idleFramesPerSecond)
		}
		w.credit.Add(300)
		if n := take(); n != 300 {
			t.Errorf("%d after 300 answers", n)
		}
		time.Sleep(time.Hour)
		if n := take(); n != idleFrames {
			t.Errorf("%d after an hour, want %d", n, idleFrames)
		}
	})
}

// A request that is reset at once costs more of the allowance than its frames;
// one that is reset later does not, nor does the reset of one long over.
func TestHastyResetsCostMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchFrames(nil, 0, nil)
		w.skip = 0
		frame := func(write func(f *http2.Framer)) {
			if !w.pass(framesOf(write)[len(preface):]) {
				t.Error("refused")
			}
		}
		begin := func(id uint32) {
			frame(func(f *http2.Framer) {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte("abc"), EndHeaders: true})
			})
		}
		costs := func(id uint32, want int) {
			t.Helper()
			before := w.left
			frame(func(f *http2.Framer) { _ = f.WriteRSTStream(id, http2.ErrCodeCancel) })
			if got := before - w.left; got != want {
				t.Errorf("the reset of stream %d costs %d, want %d", id, got, want)
			}
		}
		begin(1)
		begin(3)
		costs(3, 1+hastyFrames)
		time.Sleep(2*hasty + 1)
		costs(1, 1)
		begin(5)
		costs(1, 1)
		costs(5, 1+hastyFrames)
	})
}

// Requests that are reset as fast as they are begun end their connection, long
// before the allowance for frames does.
func TestARapidResetEndsItsConnection(t *testing.T) {
	var seen refusals
	u := startUpstream(t, never)
	p := startProxy(t, u, func(c *Config) { speakHTTP2(c); c.Refused = seen.add })
	c, f := p.begun()
	go func() { _, _ = c.rest() }()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for n := range idleFrames/2 - 100 {
		block.Reset()
		for _, field := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":path", Value: "/"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a"}} {
			_ = enc.WriteField(field)
		}
		id := uint32(2*n + 1)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
		_ = f.WriteRSTStream(id, http2.ErrCodeCancel)
	}
	soon(t, "the end of the connection", func() bool {
		_ = f.WritePing(false, [8]byte{}) // what a caller may send: what it lost is looked at with the next frame
		return seen.list() != ""
	})
}

// begun is a caller of HTTP/2 that writes frames itself.
func (p *testProxy) begun() (*caller, *http2.Framer) {
	c := p.dial()
	c.send(preface)
	f := http2.NewFramer(c.Conn, c.r)
	f.AllowIllegalWrites = true
	_ = f.WriteSettings()
	return c, f
}

// A connection with too many is ended, which is counted; others go on.
func TestAFloodOfFramesEndsItsConnection(t *testing.T) {
	var seen refusals
	u := startUpstream(t, script(ok200))
	p := startProxy(t, u, func(c *Config) { speakHTTP2(c); c.Refused = seen.add })
	client := http2Client(t, nil)
	p.fetch(client, "GET", "/", nil)
	c, f := p.begun()
	for f.WriteRSTStream(1, http2.ErrCodeCancel) == nil || f.WritePing(false, [8]byte{}) == nil {
		if seen.list() != "" {
			break
		}
	}
	_, _ = c.rest()
	if got := seen.list(); got != http1.RefusalTooManyFrames.String() {
		t.Errorf("refused %q", got)
	}
	if _, body := p.fetch(client, "GET", "/", nil); body != "ok" {
		t.Errorf("%q", body)
	}
}

// What a caller gets earns it frames, since it may ask about each piece.
func TestPiecesOfAnAnswerEarnFrames(t *testing.T) {
	var credit atomic.Int64
	rec := httptest.NewRecorder()
	w := paying{rec, &credit}
	_, _ = w.Write([]byte("a"))
	_, _ = w.Write(make([]byte, 2*frameSize))
	if got := credit.Load(); got != 4 {
		t.Errorf("%d earned, want 4", got)
	}
	if err := http.NewResponseController(w).Flush(); err != nil || !rec.Flushed {
		t.Errorf("not flushed: %v", err)
	}
}

// A caller that asks by PING about every piece, as gRPC's does, is not cut off.
func TestACallerMayAskAboutEachPiece(t *testing.T) {
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

// A caller that agreed on HTTP/2, or began to, and then says nothing is not waited for.
func TestAnHTTP2PrefaceHasToComeInTime(t *testing.T) {
	a := newAuthority(t)
	quick := func(c *Config) { speakHTTP2(c); c.ReadHeadTimeout = 100 * time.Millisecond }
	t.Run("half of it", func(t *testing.T) {
		c := startProxy(t, startUpstream(t, script(ok200)), quick).dial()
		c.send(preface[:18])
		_, _ = c.rest() // ends
	})
	t.Run("nothing, over TLS", func(t *testing.T) {
		p := startProxy(t, startUpstream(t, script(ok200)), func(c *Config) { quick(c); a.callersOverTLS(t, c, false) })
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
func TestAnHTTP2HeadHasToComeInTime(t *testing.T) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	_ = enc.WriteField(hpack.HeaderField{Name: ":method", Value: "GET"})
	for name, begin := range map[string]func(c *caller, f *http2.Framer){
		"no CONTINUATION": func(_ *caller, f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes()})
		},
		"half a frame": func(c *caller, _ *http2.Framer) { c.send("\x00\x00\x64\x01\x05\x00\x00\x00\x01half") },
	} {
		t.Run(name, func(t *testing.T) {
			u := startUpstream(t, script(ok200))
			p := startProxy(t, u, func(c *Config) { speakHTTP2(c); c.ReadHeadTimeout = 100 * time.Millisecond })
			c, f := p.begun()
			begin(c, f)
			_, _ = c.rest() // ends
			if u.sends() != 0 {
				t.Error("it was sent")
			}
		})
	}
	t.Run("a body may take longer", func(t *testing.T) {
		p := startProxy(t, echoUpstream(t), func(c *Config) { speakHTTP2(c); c.ReadHeadTimeout = 100 * time.Millisecond })
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
func TestAHeadEndsWithItsLastFrame(t *testing.T) {
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
				w := watchFrames(nil, time.Minute, nil)
				for rest := b; len(rest) > 0; rest = rest[min(n, len(rest)):] {
					w.pass(rest[:min(n, len(rest))])
				}
				if w.inHead != tc.open {
					t.Fatalf("read %d bytes at a time: in a head: %v", n, w.inHead)
				}
			}
		})
	}
}
