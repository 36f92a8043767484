package http2

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// A fault of the framing ends the connection, and the upstream is told which.
func TestFaultsOfAnUpstream(t *testing.T) {
	for name, tc := range map[string]struct {
		send func(p *peer)
		want http2.ErrCode
	}{
		"a frame that is too large":    {func(p *peer) { _ = p.WriteRawFrame(99, 0, 0, make([]byte, FrameSize+1)) }, http2.ErrCodeFrameSize},
		"DATA without a stream":        {func(p *peer) { _ = p.WriteData(0, false, nil) }, http2.ErrCodeProtocol},
		"a stream that was not opened": {func(p *peer) { p.headers(7, true, ":status", "200") }, http2.ErrCodeProtocol},
		"a stream of its own":          {func(p *peer) { p.headers(2, true, ":status", "200") }, http2.ErrCodeProtocol},
		"DATA of no stream":            {func(p *peer) { _ = p.WriteData(9, false, nil) }, http2.ErrCodeProtocol},
		"a reset of no stream":         {func(p *peer) { _ = p.WriteRSTStream(9, 1) }, http2.ErrCodeProtocol},
		"a push":                       {func(p *peer) { _ = p.WriteRawFrame(framePushPromise, 4, 1, make([]byte, 4)) }, http2.ErrCodeProtocol},
		"pushes that are allowed":      {func(p *peer) { _ = p.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 1}) }, http2.ErrCodeProtocol},
		"CONTINUATION alone":           {func(p *peer) { _ = p.WriteContinuation(1, true, nil) }, http2.ErrCodeProtocol},
		"an interrupted block": {func(p *peer) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1})
			_ = p.WritePing(false, [8]byte{})
		}, http2.ErrCodeProtocol},
		"a block that cannot be decoded": {func(p *peer) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff}, EndHeaders: true})
		}, http2.ErrCodeCompression},
		"GOAWAY that is too short":    {func(p *peer) { _ = p.WriteRawFrame(frameGoAway, 0, 0, make([]byte, 4)) }, http2.ErrCodeFrameSize},
		"PING that is too short":      {func(p *peer) { _ = p.WriteRawFrame(framePing, 0, 0, make([]byte, 4)) }, http2.ErrCodeFrameSize},
		"a window that does not grow": {func(p *peer) { _ = p.WriteWindowUpdate(0, 0) }, http2.ErrCodeProtocol},
		"a window that is too large":  {func(p *peer) { _ = p.WriteWindowUpdate(0, maxWindow) }, http2.ErrCodeFlowControl},
		"a setting that is too large": {func(p *peer) {
			_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31})
		}, http2.ErrCodeFlowControl},
		"a block without an end": {func(p *peer) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1})
			for range 10 {
				_ = p.WriteContinuation(1, false, make([]byte, FrameSize))
			}
		}, http2.ErrCodeEnhanceYourCalm},
	} {
		t.Run(name, func(t *testing.T) {
			p, c := toUpstream(t, upstreamOptions())
			p.sync()
			s := ask(t, c, getRequest)
			p.want("1: :method")
			tc.send(p)
			if got, want := p.want("away"), "away 0 "+tc.want.String(); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			p.want("end")
			if _, err := s.Read(make([]byte, 1)); err != errReset {
				t.Error(err)
			}
		})
	}
}

// Headers that expand are refused before they are stored, and the stream ends, not the connection.
func TestHeadersOfAnUpstreamAreBounded(t *testing.T) {
	for name, send := range map[string]func(p *peer, text *bytes.Buffer, enc *hpack.Encoder){
		"many that are empty": func(_ *peer, text *bytes.Buffer, _ *hpack.Encoder) {
			text.Write(bytes.Repeat([]byte{0x00, 0x01, 'a', 0x00}, 3000))
		},
		"one of the table, often": func(_ *peer, text *bytes.Buffer, enc *hpack.Encoder) {
			_ = enc.WriteField(hpack.HeaderField{Name: "x-large", Value: strings.Repeat("x", 3500)})
			text.Write(bytes.Repeat([]byte{0xbe}, 1000))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, c := toUpstream(t, upstreamOptions())
			s := ask(t, c, getRequest)
			p.want("1: :method")
			p.text.Reset()
			_ = p.enc.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
			send(p, &p.text, p.enc)
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.text.Bytes(), EndHeaders: true})
			p.want("1: reset")
			var fault *http1.Error
			if _, err := s.Read(make([]byte, 1)); !errors.As(err, &fault) || fault.Reason != http1.RefusalHeadersTooLarge {
				t.Error(err)
			}
			if c.mu.Lock(); cap(c.fields.list) > mostKept {
				t.Errorf("room for %d fields is kept", cap(c.fields.list))
			}
			c.mu.Unlock()
			p.sync()
		})
	}
}

func TestTrailersOfAnUpstreamAreBounded(t *testing.T) {
	p, c := toUpstream(t, upstreamOptions())
	s := ask(t, c, getRequest)
	p.want("1: :method")
	p.headers(1, false, ":status", "200")
	p.text.Reset()
	p.text.Write(bytes.Repeat([]byte{0x00, 0x01, 'a', 0x00}, 3000))
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.text.Bytes(), EndHeaders: true, EndStream: true})
	p.want("1: reset")
	var fault *http1.Error
	if _, err := io.ReadAll(s); !errors.As(err, &fault) || fault.Reason != http1.RefusalTrailersTooLarge {
		t.Error(err)
	}
}

// An upstream can make us hold a bounded number of bytes of interim responses.
func TestInterimResponsesThatNobodyReadsAreBounded(t *testing.T) {
	p, c := toUpstream(t, upstreamOptions())
	s := ask(t, c, getRequest)
	p.want("1: :method")
	for range 2 * mostInterim / 30 {
		p.headers(1, false, ":status", "103", "link", "</x>")
	}
	p.want("1: reset")
	if c.mu.Lock(); s.head.Len() > mostInterim+1000 {
		t.Errorf("%d bytes are held", s.head.Len())
	}
	c.mu.Unlock()
}

// A flood of frames that carry nothing is read slowly, and ends the connection if it does not stop.
func TestAFloodOfAnUpstreamIsSlowedAndEnds(t *testing.T) {
	for name, send := range map[string]func(p *peer) error{
		"PING":       func(p *peer) error { return p.WritePing(true, [8]byte{}) },
		"SETTINGS":   func(p *peer) error { return p.WriteSettingsAck() },
		"empty DATA": func(p *peer) error { return p.WriteData(1, false, nil) },
		"PRIORITY":   func(p *peer) error { return p.WritePriority(1, http2.PriorityParam{}) },
		"unknown":    func(p *peer) error { return p.WriteRawFrame(99, 0, 0, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, c := toUpstream(t, upstreamOptions())
				s := ask(t, c, getRequest)
				p.want("1: :method")
				began, n := time.Now(), 0
				for n < 10*floodguard.IdleFrames && send(p) == nil {
					n++
				}
				if took := time.Since(began); n > floodguard.IdleFrames+10*1000 || took < 2*time.Second || took > 10*time.Second {
					t.Errorf("%d frames in %v", n, took)
				}
				if _, err := s.Read(make([]byte, 1)); err == nil {
					t.Error("the stream goes on")
				}
			})
		})
	}
}

// An upstream that resets each request, as one that refuses them does, is read as fast as it comes: there are no more of
// them than requests.
func TestAnUpstreamMayResetEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := toUpstream(t, upstreamOptions())
		p.sync()
		began := time.Now()
		for i := range uint32(floodguard.IdleFrames / 2) {
			s := ask(t, c, getRequest)
			p.want(fmt.Sprintf("%d: :method", 2*i+1))
			_ = p.WriteRSTStream(2*i+1, http2.ErrCodeRefusedStream)
			if _, err := s.Read(make([]byte, 1)); err != ErrRefused {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// Frames that carry nothing, now and then, are no flood.
func TestAnUpstreamMayPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := toUpstream(t, upstreamOptions())
		for range 3 * floodguard.IdleFrames {
			time.Sleep(time.Second / 1000)
			p.sync()
		}
	})
}

// An upstream that sends and does not read is ended, and one that reads nothing of a request is, too.
func TestAnUpstreamThatDoesNotReadIsEnded(t *testing.T) {
	near, far := newPipe(t)
	o := upstreamOptions()
	o.WriteTimeout = 50 * time.Millisecond
	c := NewUpstream(near, &o)
	ended := make(chan struct{})
	go func() { c.Run(); close(ended) }()
	s := ask(t, c, postRequest(10))
	<-ended
	if _, err := s.Read(make([]byte, 1)); err != ErrUnprocessed && err != errReset {
		t.Error(err)
	}
	_ = far.Close()
}

// Requests to an upstream that reads nothing take bounded memory: those for which there is no room were certainly not
// processed.
func TestRequestsToAnUpstreamThatDoesNotReadAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		o := upstreamOptions()
		c := NewUpstream(near, &o)
		ended := make(chan struct{})
		go func() { c.Run(); close(ended) }()
		c.AssumeSettings()
		block := blockOf([]http1.Header{http1.NewHeader("X-A", strings.Repeat("a", 16<<10))})
		var last *UpstreamStream
		for s := c.Open(); s != nil; s = c.Open() {
			_ = s.WriteHeaders(&wire.Head{Method: []byte("GET"), Target: []byte("/"), Authority: []byte("a"), Fields: block}, true)
			if last = s; s.closed {
				break
			}
		}
		if c.mu.Lock(); c.out.waits() > mostUnwritten+2*len(block) {
			t.Errorf("%d bytes wait", c.out.waits())
		}
		c.mu.Unlock()
		if _, err := last.Read(make([]byte, 1)); err != ErrUnprocessed {
			t.Error(err)
		}
		_ = far.Close()
		<-ended
	})
}

// FuzzUpstream is a whole connection to an upstream that sends anything. It ends, and a
// response that is taken for whole is whole, and the same, to x/net's Framer, too.
func FuzzUpstream(f *testing.F) {
	for _, body := range []string{"", "abc"} {
		f.Add(responseFrames(body))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		near, far := net.Pipe()
		o := upstreamOptions()
		c := NewUpstream(near, &o)
		ended := make(chan struct{})
		go func() { c.Run(); close(ended) }()
		s := newTextUpstream(c.Open())
		_ = s.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = io.WriteString(s, getRequest)
		awaitRequest(far)
		go func() { _, _ = io.Copy(io.Discard, far) }()
		_ = far.SetWriteDeadline(time.Now().Add(5 * time.Second))
		_, _ = far.Write(b)
		_ = far.Close()
		text, err := io.ReadAll(s)
		_ = s.Close()
		<-ended
		if want, whole := oracle(b); err == nil && (!whole || decoded(text) != want) {
			t.Errorf("%q %v, while x/net reads %q, whole: %v", text, err, want, whole)
		}
	})
}

// awaitRequest reads until the first request has come.
func awaitRequest(far net.Conn) {
	_, _ = io.ReadFull(far, make([]byte, len(Preface)))
	for fr := http2.NewFramer(io.Discard, far); ; {
		f, err := fr.ReadFrame()
		if _, ok := f.(*http2.HeadersFrame); ok || err != nil {
			return
		}
	}
}

// decoded returns the body of the last response in text.
func decoded(text []byte) string {
	r := bufio.NewReader(bytes.NewReader(text))
	for {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return err.Error()
		}
		if res.StatusCode >= 200 {
			b, _ := io.ReadAll(res.Body)
			return string(b)
		}
	}
}

func responseFrames(body string) []byte {
	var frames, text bytes.Buffer
	enc := hpack.NewEncoder(&text)
	_ = enc.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = enc.WriteField(hpack.HeaderField{Name: "x-a", Value: "b"})
	w := http2.NewFramer(&frames, nil)
	_ = w.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 5})
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: text.Bytes(), EndHeaders: true})
	_ = w.WriteWindowUpdate(0, 7)
	_ = w.WritePing(false, [8]byte{})
	if body != "" {
		_ = w.WriteDataPadded(1, false, []byte(body), []byte{0})
	}
	_ = w.WriteData(1, true, nil)
	return frames.Bytes()
}

// oracle reads the response to stream 1 by x/net. It returns the body, and whether it is whole.
func oracle(b []byte) (body string, whole bool) {
	fr := http2.NewFramer(io.Discard, bytes.NewReader(b))
	fr.SetMaxReadFrameSize(FrameSize)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	fr.MaxHeaderListSize = 64 << 10
	var text strings.Builder
	responded := false
	for n := 0; ; n++ {
		f, err := fr.ReadFrame()
		if err != nil {
			return "", false
		}
		if _, ok := f.(*http2.SettingsFrame); n == 0 && !ok {
			return "", false
		}
		if f.Header().StreamID != 1 {
			continue
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			responded = responded || f.PseudoValue("status") >= "200"
			if f.StreamEnded() {
				return text.String(), responded
			}
		case *http2.DataFrame:
			text.Write(f.Data())
			if f.StreamEnded() {
				return text.String(), responded
			}
		case *http2.RSTStreamFrame:
			return "", false
		}
	}
}
