package http2

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/net/http2"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// writevTo writes parts to nc, and counts the bytes that lie in piece.
func writevTo(nc net.Conn, piece []byte, direct *atomic.Int64) func([][]byte) (int, error) {
	return func(parts [][]byte) (n int, err error) {
		for _, p := range parts {
			if from := uintptr(unsafe.Pointer(unsafe.SliceData(piece))); len(p) > 0 {
				if at := uintptr(unsafe.Pointer(unsafe.SliceData(p))); from <= at && at < from+uintptr(len(piece)) {
					direct.Add(int64(len(p)))
				}
			}
			m, err := nc.Write(p)
			if n += m; err != nil {
				return n, err
			}
		}
		return n, nil
	}
}

// awaitQuiet waits until the answer to SETTINGS was written, since what waits behind another's write is copied.
func awaitQuiet(s *Stream) {
	for s.c.isWriting() {
		runtime.Gosched()
	}
}

// pieceOf returns n bytes, no two parts of which are alike.
func pieceOf(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		b.WriteString(strings.Repeat(string(rune('a'+i%26)), i%97))
	}
	return b.Bytes()[:n]
}

// body collects the body of a stream from its DATA frames.
func (p *peer) body(fr *http2.Framer, whole chan<- []byte) {
	var all []byte
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			p.t.Error(err)
			close(whole)
			return
		}
		if d, ok := f.(*http2.DataFrame); ok {
			if all = append(all, d.Data()...); d.StreamEnded() {
				whole <- all
				return
			}
		}
	}
}

// getWhole serves far with o, and returns the body that a client at near gets, whose windows have room for it. end
// ends both.
func getWhole(t *testing.T, far, near net.Conn, o *Options) (body []byte, end func()) {
	t.Helper()
	ended := make(chan struct{})
	go func() { NewConn(far, o).Run(); _ = far.Close(); close(ended) }()
	p := newPeer(t, near)
	whole := make(chan []byte, 1)
	go p.body(p.Framer, whole)
	_, _ = io.WriteString(near, Preface)
	_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	_ = p.WriteWindowUpdate(0, 1<<20)
	p.begin(true, getFields...)
	return <-whole, func() { _ = near.Close(); <-ended }
}

// A large piece of a response is not copied. What was written before comes before it, and no frame is too large.
func TestALargePieceIsWrittenFromWhereItIs(t *testing.T) {
	near, far := newPipe(t)
	piece := pieceOf(100<<10 + 17)
	var direct atomic.Int64
	o := options(nil)
	o.Serve = func(s *Stream) {
		awaitQuiet(s)
		_ = s.WriteHeaders(200, nil, false)
		if err := s.WriteBody([]byte("before"), piece, true); err != nil {
			t.Error(err)
		}
	}
	o.Writev = writevTo(far, piece, &direct)
	got, end := getWhole(t, far, near, o)
	if !bytes.Equal(got, append([]byte("before"), piece...)) {
		t.Errorf("%d bytes came that are not those that were written", len(got))
	}
	if n := direct.Load(); n < 96<<10 {
		t.Errorf("%d bytes were not copied", n)
	}
	end()
	o.Workers.Close()
}

// What is written at once is not much more than a piece, whatever waited before: a client that reads slowly has the
// write timeout for it.
func TestALargePieceIsNotWrittenWithMuchElse(t *testing.T) {
	near, far := newPipe(t)
	piece := pieceOf(64 << 10)
	var direct atomic.Int64
	largest := 0
	o := options(nil)
	o.Serve = func(s *Stream) {
		awaitQuiet(s)
		_ = s.WriteHeaders(200, blockOf([]http1.Header{http1.NewHeader("X-A", strings.Repeat("a", 60<<10))}), false)
		if err := s.WriteBody(piece, nil, true); err != nil {
			t.Error(err)
		}
	}
	write := writevTo(far, piece, &direct)
	o.Writev = func(parts [][]byte) (int, error) {
		n, err := write(parts)
		largest = max(largest, n)
		return n, err
	}
	got, end := getWhole(t, far, near, o)
	if !bytes.Equal(got, piece) {
		t.Errorf("%d bytes came that are not those that were written", len(got))
	}
	end()
	if most := directFrom + mostDirect + mostDirect/FrameSize*frameHeader; largest > most || direct.Load() == 0 {
		t.Errorf("%d bytes were written at once, more than %d; %d were not copied", largest, most, direct.Load())
	}
	o.Workers.Close()
}

// A piece larger than the window of its stream is sent as far as that has room.
func TestALargePieceWaitsForTheWindow(t *testing.T) {
	near, far := newPipe(t)
	const window = 20 << 10
	piece := pieceOf(55 << 10)
	var direct atomic.Int64
	o := options(nil)
	o.Serve = func(s *Stream) {
		awaitQuiet(s)
		_ = s.WriteHeaders(200, nil, false)
		_ = s.WriteBody(nil, piece, true)
	}
	o.Writev = writevTo(far, piece, &direct)
	ended := make(chan struct{})
	go func() { NewConn(far, o).Run(); _ = far.Close(); close(ended) }()
	p := newPeer(t, near)
	_, _ = io.WriteString(near, Preface)
	credit := make(chan uint32, 4)
	go func() {
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
		p.begin(true, getFields...)
		for n := range credit {
			_ = p.WriteWindowUpdate(1, n)
		}
	}()
	var got []byte
	for may, whole := window, false; !whole; {
		f, err := p.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		d, ok := f.(*http2.DataFrame)
		if !ok {
			continue
		}
		if got, whole = append(got, d.Data()...), d.StreamEnded(); len(got) > may {
			t.Fatalf("%d bytes came, and the window was %d", len(got), may)
		}
		if len(got) == may {
			may += window
			credit <- window
		}
	}
	close(credit)
	if !bytes.Equal(got, piece) {
		t.Error("other bytes came than were written")
	}
	_ = near.Close()
	<-ended
	o.Workers.Close()
}

// What an upstream has no room for is written later, before what comes behind it.
func TestAnUpstreamTakesALargePieceInParts(t *testing.T) {
	near, far := newPipe(t)
	o := upstreamOptions()
	var takes sync.Mutex // one at a time, as a socket's
	o.TryWrite = func([]byte) (int, error) { return 0, nil }
	o.TryWritev = func(parts [][]byte) (n int, err error) {
		takes.Lock()
		defer takes.Unlock()
		room := 20_000
		for i, p := range parts {
			m, err := near.Write(p[:min(room, len(p))])
			parts[i], n, room = p[m:], n+m, room-m
			if err != nil {
				return n, err
			}
		}
		return n, nil
	}
	c := NewUpstream(near, &o)
	ended := make(chan struct{})
	go func() { c.Run(); close(ended) }()
	_, _ = io.ReadFull(far, make([]byte, len(Preface)))
	p := newPeer(t, far)
	whole := make(chan []byte, 1)
	go p.body(p.Framer, whole)
	_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	_ = p.WriteWindowUpdate(0, 1<<20)
	s := opened(c)
	_ = s.UpstreamStream.WriteHeaders(&wire.Head{Form: wire.Block, Method: []byte("PUT"), Target: []byte("/")}, false)
	piece := pieceOf(200_003)
	if n, err := s.UpstreamStream.WriteBody([][]byte{piece[:100], piece[100:]}, true); n != len(piece) || err != nil {
		t.Error(n, err)
	}
	if got := <-whole; !bytes.Equal(got, piece) {
		t.Errorf("%d bytes came that are not those that were written", len(got))
	}
	_ = s.Close()
	_ = far.Close()
	<-ended
}

// A reader that waits gets its part at once, and the rest in order.
func TestABodyComesToItsReader(t *testing.T) {
	sent := pieceOf(60_000) // less than the window
	read := make(chan []byte, 1)
	p := dialFrames(t, options(func(s *textStream) {
		if _, err := readHead(s); err != nil {
			return
		}
		var all []byte
		for {
			var b [1003]byte
			n, err := s.Stream.ReadBody(b[:])
			if all = append(all, b[:n]...); err != nil {
				read <- all
				return
			}
		}
	}))
	p.begin(false, getFields...)
	for b := sent; len(b) > 0; {
		n := min(len(b), 1+len(b)%FrameSize)
		_ = p.WriteData(1, n == len(b), b[:n])
		if b = b[n:]; len(b)%3 == 0 {
			p.sync()
		}
	}
	if got := <-read; !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came that are not those that were sent", len(got))
	}
}

// What has come to where a reader waits was not read before the reader runs: on a busy machine, its client is not to
// be taken for one that sends nothing.
func TestWhatHasComeToAWaitingReaderIsUnread(t *testing.T) {
	near, far := newPipe(t)
	_ = near
	c := NewConn(far, options(nil))
	s := &Stream{conn: c}
	s.init(&c.link, s)
	s.open(1)
	read := make(chan struct{})
	go func() { _, _ = s.Read(make([]byte, 10)); close(read) }()
	for waits := false; !waits; runtime.Gosched() {
		c.mu.Lock()
		if waits = s.into != nil; waits {
			s.push([]byte("a"))
		}
		c.mu.Unlock()
	}
	if !s.HasUnread() {
		t.Error("the reader has not run, and nothing is unread")
	}
	c.mu.Lock()
	s.wake()
	c.mu.Unlock()
	<-read
	if s.HasUnread() {
		t.Error("it was read")
	}
	s.release()
}
