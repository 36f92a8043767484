package everyrule

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	ourhttp2 "github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// session is an HTTP/2 connection of a scripted upstream, framed by hand.
type session struct {
	s *scripted
	c *peers.Conn

	mu      sync.Mutex // guards all below, and writing frames
	changed sync.Cond
	frames  *http2.Framer
	window  int64 // of the connection, for what we send
	initial int64 // of a stream
	streams map[uint32]*wire2
	over    bool
}

// serveHTTP2 is a connection of HTTP/2; every stream is served beside the others.
func (s *scripted) serveHTTP2(c *peers.Conn) {
	if _, err := c.Reader.Discard(len(ourhttp2.Preface)); err != nil {
		return
	}
	x := &session{s: s, c: c, frames: http2.NewFramer(c.Conn, c.Reader), window: 65535, initial: 65535, streams: map[uint32]*wire2{}}
	x.changed.L = &x.mu
	x.frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	x.write(func(f *http2.Framer) error { // wide windows: round trips take long on a slow machine
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 256 << 10})
		return f.WriteWindowUpdate(0, 1<<30)
	})
	var acts sync.WaitGroup
	for {
		frame, err := x.frames.ReadFrame()
		if err != nil {
			break
		}
		x.mu.Lock()
		arrived := x.take(frame)
		x.changed.Broadcast()
		x.mu.Unlock()
		if arrived != nil {
			acts.Go(func() { s.perform(arrived) })
		}
	}
	x.mu.Lock()
	x.over = true
	x.changed.Broadcast()
	x.mu.Unlock()
	acts.Wait()
}

// take handles a frame; a new request is given.
func (x *session) take(frame http2.Frame) *arrival {
	w := x.streams[frame.Header().StreamID]
	switch frame := frame.(type) {
	case *http2.SettingsFrame:
		if v, ok := frame.Value(http2.SettingInitialWindowSize); ok {
			x.initial = int64(v)
		}
		if !frame.IsAck() {
			_ = x.frames.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !frame.IsAck() {
			_ = x.frames.WritePing(true, frame.Data)
		}
	case *http2.WindowUpdateFrame:
		if w != nil {
			w.window += int64(frame.Increment)
		} else if frame.StreamID == 0 {
			x.window += int64(frame.Increment)
		}
	case *http2.MetaHeadersFrame:
		return x.takeHeaders(frame, w)
	case *http2.DataFrame:
		if w != nil {
			w.in.Write(frame.Data())
			w.inEnded = w.inEnded || frame.StreamEnded()
		}
	case *http2.RSTStreamFrame:
		if w != nil {
			w.reset = true
		}
	}
	return nil
}

func (x *session) takeHeaders(frame *http2.MetaHeadersFrame, w *wire2) *arrival {
	h := http.Header{}
	for _, f := range frame.RegularFields() {
		h.Add(f.Name, f.Value)
	}
	if w != nil {
		w.trailers, w.inEnded = h, true
		return nil
	}
	if strings.EqualFold(h.Get("Expect"), "100-continue") {
		defer func() { go w.interim(100) }()
	}
	w = &wire2{x: x, id: frame.StreamID, window: x.initial, inEnded: frame.StreamEnded(), bodyless: frame.PseudoValue("method") == http.MethodHead}
	x.streams[w.id] = w
	return &arrival{protocol: w, method: frame.PseudoValue("method"), path: frame.PseudoValue("path"), header: h}
}

func (x *session) write(frame func(f *http2.Framer) error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	_ = frame(x.frames) // who is gone needs none
}

// wire2 is wire in HTTP/2: one stream.
type wire2 struct {
	x  *session
	id uint32

	// Guarded by the session's mu.
	in       bytes.Buffer
	inEnded  bool
	trailers http.Header
	reset    bool
	window   int64

	bodyless bool // an answer to HEAD
	left     int  // of the announced length; < 0: none
}

func (w *wire2) Read(p []byte) (int, error) {
	x := w.x
	x.mu.Lock()
	defer x.mu.Unlock()
	for w.in.Len() == 0 {
		switch {
		case w.inEnded:
			return 0, io.EOF
		case w.reset || x.over:
			return 0, errAbandoned
		}
		x.changed.Wait()
	}
	n, _ := w.in.Read(p)
	_ = x.frames.WriteWindowUpdate(0, uint32(n))
	if !w.inEnded {
		_ = x.frames.WriteWindowUpdate(w.id, uint32(n))
	}
	return n, nil
}

func (w *wire2) trailer() http.Header { w.x.mu.Lock(); defer w.x.mu.Unlock(); return w.trailers }

func (w *wire2) interim(status int, fields ...string) {
	w.writeHeaders(":status", status, false, fields)
}

func (w *wire2) headers(status, length int, fields []string) {
	w.left = length
	if length >= 0 && status != 204 && status != 304 {
		fields = append([]string{"content-length", strconv.Itoa(length)}, fields...)
	}
	w.writeHeaders(":status", status, length == 0 || w.bodyless, fields)
}

// WriteHeaders sends a block of fields. pseudo "": without a status.
func (w *wire2) writeHeaders(pseudo string, status int, last bool, fields []string) {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	if pseudo != "" {
		_ = enc.WriteField(hpack.HeaderField{Name: pseudo, Value: strconv.Itoa(status)})
	}
	for i := 0; i < len(fields); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: strings.ToLower(fields[i]), Value: fields[i+1]})
	}
	w.x.write(func(f *http2.Framer) error {
		block := b.Bytes()
		first := block[:min(len(block), ourhttp2.FrameSize)]
		err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: w.id, BlockFragment: first, EndStream: last, EndHeaders: len(first) == len(block)})
		for block = block[len(first):]; len(block) > 0 && err == nil; {
			next := block[:min(len(block), ourhttp2.FrameSize)]
			block = block[len(next):]
			err = f.WriteContinuation(w.id, len(block) == 0, next)
		}
		return err
	})
}

// data waits for the proxy's windows.
func (w *wire2) data(p string) {
	x := w.x
	x.mu.Lock()
	defer x.mu.Unlock()
	for p != "" && !w.bodyless {
		n := int(min(x.window, w.window, int64(len(p)), ourhttp2.FrameSize))
		if w.reset || x.over {
			return
		}
		if n <= 0 {
			x.changed.Wait()
			continue
		}
		x.window -= int64(n)
		w.window -= int64(n)
		w.left -= n
		_ = x.frames.WriteData(w.id, w.left == 0, []byte(p[:n]))
		p = p[n:]
	}
}

func (w *wire2) end(trailers ...string) {
	if len(trailers) > 0 {
		w.writeHeaders("", 0, true, trailers)
		return
	}
	w.x.write(func(f *http2.Framer) error { return f.WriteData(w.id, true, nil) })
}

func (w *wire2) cut() {
	w.x.write(func(f *http2.Framer) error { return f.WriteRSTStream(w.id, http2.ErrCodeInternal) })
}

func (w *wire2) hangUp() { _ = w.x.c.Close() }

// nonsense is a block without a status.
func (w *wire2) nonsense() { w.writeHeaders("", 0, true, []string{"x-a", "1"}) }

func (w *wire2) disown(last int, refused bool) {
	w.x.write(func(f *http2.Framer) error {
		if refused {
			return f.WriteRSTStream(w.id, http2.ErrCodeRefusedStream)
		}
		return f.WriteGoAway(uint32(int(w.id)+last), http2.ErrCodeNo, nil)
	})
}

func (w *wire2) abandoned() {
	w.x.mu.Lock()
	defer w.x.mu.Unlock()
	for !w.reset && !w.x.over {
		w.x.changed.Wait()
	}
}
