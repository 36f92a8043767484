package proxy

import (
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// What an HTTP/2 caller may send of frames that ask for nothing: SETTINGS, PING,
// RST_STREAM, PRIORITY, CONTINUATION, GOAWAY, unknown ones, and DATA without content. Each costs
// us about as much as a request's head costs its parser, and net/http takes them
// without end. A caller needs a few at its begin, one now and then, and as many RST_STREAM as
// requests that it gives up, of which it can have MAX_CONCURRENT_STREAMS at once.
const (
	idleFrames          = 2000 // at once
	idleFramesPerSecond = 1000 // and one more for each piece of an answer, and each answer that ended
)

// A request that its caller resets as soon as it was begun costs the upstream
// something as well: its RST_STREAM counts as so many more frames. Those of hedges, or of
// all that a caller has under way at once, stay within the allowance. As soon is
// hasty to twice that.
const (
	hastyFrames = 10
	hasty       = 10 * time.Millisecond
)

// paying is an answer whose DATA earns its caller frames: gRPC asks by a PING
// how fast what it received has come, as often as once for each DATA frame.
type paying struct {
	http.ResponseWriter
	credit *atomic.Int64
}

// Write is http.ResponseWriter's.
func (p paying) Write(b []byte) (int, error) {
	n, err := p.ResponseWriter.Write(b)
	p.credit.Add(int64(1 + n/frameSize))
	return n, err
}

// Unwrap is for http.ResponseController.
func (p paying) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// floodPause is how long a connection that is ended for its frames stays open
// unread: whoever makes a new one each time does so no faster than what the old one left can be cleared away.
const floodPause = time.Second

// errFlood ends a connection.
var errFlood = errors.New("the caller sends too many frames that ask for nothing")

// frameWatch is an HTTP/2 caller's connection whose frames are counted as they
// are read, by their headers alone (RFC 9113 section 4.1), and whose heads have to come
// in time: net/http has a limit for neither. One goroutine reads.
type frameWatch struct {
	net.Conn
	headTime time.Duration // from a head's first byte to its last; 0: no limit
	flooded  func()        // called once, when the connection is ended for its frames

	head   [9]byte // of the frame, as far as it has come
	have   int
	skip   int  // bytes before the next frame's header
	inHead bool // a block of fields has begun and not ended
	last   bool // this frame ends it
	timed  bool // the read deadline is set

	left   int // of the allowance
	at     time.Time
	credit atomic.Int64 // earned by answers since the allowance was last counted

	newest uint32    // stream
	mark   uint32    // streams beyond it are no older than markAt
	markAt time.Time // some time within hasty of a stream's begin
}

// watchFrames makes one of nc, on which the preface is yet to be read.
func watchFrames(nc net.Conn, headTime time.Duration, flooded func()) *frameWatch {
	return &frameWatch{Conn: nc, headTime: headTime, flooded: flooded, skip: len(preface), left: idleFrames, at: time.Now()}
}

// Read is net.Conn's.
func (w *frameWatch) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 && !w.pass(p[:n]) {
		w.flooded()
		time.Sleep(floodPause)
		return 0, errFlood
	}
	w.time()
	return n, err
}

// pass looks at what was read; false: it is too much.
func (w *frameWatch) pass(p []byte) bool {
	for {
		n := min(w.skip, len(p))
		p = p[n:]
		if w.skip -= n; w.skip == 0 && w.last {
			w.inHead, w.last = false, false
		}
		if len(p) == 0 {
			return true
		}
		n = copy(w.head[w.have:], p)
		p = p[n:]
		if w.have += n; w.have < len(w.head) {
			return true
		}
		w.have = 0
		if !w.frame() {
			return false
		}
	}
}

// Types and flags of frames (RFC 9113 section 6).
const (
	frameData         = 0
	frameHeaders      = 1
	frameRSTStream    = 3
	frameWindowUpdate = 8
	frameContinuation = 9

	flagEndStream  = 1
	flagEndHeaders = 4
)

// frame takes note of the frame whose header has come; false: it is one too many.
func (w *frameWatch) frame() bool {
	w.skip = int(w.head[0])<<16 | int(w.head[1])<<8 | int(w.head[2])
	kind, flags := w.head[3], w.head[4]
	if kind == frameHeaders || kind == frameContinuation {
		w.inHead, w.last = true, flags&flagEndHeaders != 0
	}
	switch {
	case kind == frameHeaders:
		w.begins()
		return true
	case kind == frameWindowUpdate, kind == frameData && (w.skip > 0 || flags&flagEndStream != 0):
		return true
	}
	if kind == frameRSTStream {
		w.resets()
	}
	if w.credit.Load() != 0 {
		w.left = min(w.left+int(w.credit.Swap(0)), idleFrames)
	}
	if w.left <= 0 {
		w.refill()
	}
	w.left--
	return w.left >= 0
}

// refill adds what time has earned since it last did.
func (w *frameWatch) refill() {
	now := time.Now()
	earned := min(now.Sub(w.at), time.Hour) * idleFramesPerSecond / time.Second
	if earned > 0 {
		w.left, w.at = min(w.left+int(earned), idleFrames), now
	}
}

// stream is that of the frame.
func (w *frameWatch) stream() uint32 { return binary.BigEndian.Uint32(w.head[5:]) &^ (1 << 31) }

// begins takes note of the stream that a head may begin.
func (w *frameWatch) begins() {
	if now := time.Now(); now.Sub(w.markAt) > hasty {
		w.mark, w.markAt = w.newest, now
	}
	w.newest = max(w.newest, w.stream())
}

// resets charges for a stream that is reset as soon as it was begun.
func (w *frameWatch) resets() {
	if w.stream() > w.mark && time.Since(w.markAt) <= 2*hasty {
		w.left -= hastyFrames
	}
}

// time keeps the read deadline: one while a head is under way, else none.
func (w *frameWatch) time() {
	if w.inHead == w.timed || w.headTime <= 0 {
		return
	}
	w.timed = w.inHead
	by := time.Time{}
	if w.timed {
		by = time.Now().Add(w.headTime)
	}
	_ = w.SetReadDeadline(by)
}
