package proxy

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// What an HTTP/2 client may send of frames that ask for nothing: SETTINGS, PING,
// RST_STREAM, PRIORITY, CONTINUATION, GOAWAY, unknown ones, and DATA without content. Each costs
// us about as much as a request's headers cost their parser, and net/http takes them
// without end. A client needs a few at its begin, one now and then, and as many RST_STREAM as
// requests that it gives up. A stream that it makes us reset counts like one that it resets.
//
// A client that sends more is read from as slowly as its allowance grows, so that its
// other streams are served on; one that goes on for floodPatience is told to go away.
const (
	idleFrames          = 2000 // at once
	idleFramesPerSecond = 1000 // and one more for each piece of a response, and each response that ended

	resetsAtOnce    = 200 // net/http ends a connection when handlers of reset streams pile up
	resetsPerSecond = 1000

	floodPatience = 5 * time.Second
)

// creditingWriter is a response whose DATA earns its client frames: gRPC asks by a PING
// how fast what it received has come, as often as once for each DATA frame.
type creditingWriter struct {
	http.ResponseWriter
	credit *atomic.Int64
}

// Write is http.ResponseWriter's.
func (p creditingWriter) Write(b []byte) (int, error) {
	n, err := p.ResponseWriter.Write(b)
	p.credit.Add(int64(1 + n/frameSize))
	return n, err
}

// Unwrap is for http.ResponseController.
func (p creditingWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// frameWatch is an HTTP/2 client's connection whose frames are counted as they
// are read, by their headers alone (RFC 9113 section 4.1), and whose request headers have to come
// in time: net/http has a limit for neither. One goroutine reads and one writes.
type frameWatch struct {
	net.Conn
	headerTimeout time.Duration // from the first byte of request headers to the last; 0: no limit
	onSlow        func()        // called once, when the connection is first read from slowly
	onFlood       func()        // called once, when that has gone on for floodPatience

	scan             frameScan
	inHeaders        bool // a block of fields has begun and not ended
	lastHeadersFrame bool // this frame ends it
	deadlineSet      bool // the read deadline is set

	frames, resets allowance
	slowSince      time.Time
	slowUntil      time.Time
	credit         atomic.Int64 // frames earned by responses since debts were last paid

	sent   resetScan
	faults atomic.Int64 // streams that we reset for the client's fault, not yet counted
}

// watchFrames makes one of nc, on which the preface is yet to be read.
func watchFrames(nc net.Conn, headTime time.Duration, slowed, away func()) *frameWatch {
	now := time.Now()
	return &frameWatch{
		Conn: nc, headerTimeout: headTime, onSlow: sync.OnceFunc(slowed), onFlood: sync.OnceFunc(away), scan: frameScan{skip: len(preface)},
		frames: allowance{tokens: idleFrames, max: idleFrames, perSecond: idleFramesPerSecond, at: now},
		resets: allowance{tokens: resetsAtOnce, max: resetsAtOnce, perSecond: resetsPerSecond, at: now},
	}
}

// Read is net.Conn's.
func (w *frameWatch) Read(p []byte) (int, error) {
	w.pace()
	n, err := w.Conn.Read(p)
	w.inspect(p[:n])
	w.setDeadline()
	return n, err
}

// Write is net.Conn's.
func (w *frameWatch) Write(p []byte) (int, error) {
	if n := w.sent.scan(p); n > 0 {
		w.faults.Add(int64(n))
	}
	return w.Conn.Write(p)
}

// paceStep is the shortest sleep: debts are paid in pieces that cost no more than a timer.
const paceStep = 10 * time.Millisecond

// pace waits until the client's debts are paid.
func (w *frameWatch) pace() {
	if w.faults.Load() != 0 {
		n := int(w.faults.Swap(0))
		w.frames.tokens -= n
		w.resets.tokens -= n
	}
	if w.frames.tokens >= 0 && w.resets.tokens >= 0 {
		return
	}
	if n := int(w.credit.Swap(0)); n > 0 {
		w.frames.earn(n)
		w.resets.earn(n)
	}
	now := time.Now()
	d := max(w.frames.debt(now), w.resets.debt(now))
	if d < paceStep {
		return
	}
	w.slow(now, d)
	time.Sleep(d)
}

// slow takes note that the client is not read from for d. A second without ends a flood.
func (w *frameWatch) slow(now time.Time, d time.Duration) {
	w.onSlow()
	if now.Sub(w.slowUntil) > time.Second {
		w.slowSince = now
	}
	w.slowUntil = now.Add(d)
	if w.slowUntil.Sub(w.slowSince) > floodPatience {
		w.onFlood()
	}
}

// inspect looks at what was read.
func (w *frameWatch) inspect(p []byte) {
	for len(p) > 0 {
		p = w.scan.payload(p)
		w.headersEnded()
		var whole bool
		if p, whole = w.scan.header(p); whole {
			w.frame()
			w.headersEnded()
		}
	}
}

// headersEnded takes note of the end of a block of fields, once the last byte of it was read.
func (w *frameWatch) headersEnded() {
	if w.scan.skip == 0 && w.lastHeadersFrame {
		w.inHeaders, w.lastHeadersFrame = false, false
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

// frame takes note of the frame whose header has come.
func (w *frameWatch) frame() {
	kind, flags := w.scan.kind(), w.scan.flags()
	switch {
	case kind == frameHeaders:
		w.inHeaders, w.lastHeadersFrame = true, flags&flagEndHeaders != 0
		return
	case kind == frameWindowUpdate, kind == frameData && (w.scan.skip > 0 || flags&flagEndStream != 0):
		return
	case kind == frameContinuation:
		w.inHeaders, w.lastHeadersFrame = true, flags&flagEndHeaders != 0
	case kind == frameRSTStream:
		w.resets.tokens--
	}
	w.frames.tokens--
}

// setDeadline keeps the read deadline: one while a head is in flight, else none.
func (w *frameWatch) setDeadline() {
	if w.inHeaders == w.deadlineSet || w.headerTimeout <= 0 {
		return
	}
	w.deadlineSet = w.inHeaders
	by := time.Time{}
	if w.deadlineSet {
		by = time.Now().Add(w.headerTimeout)
	}
	_ = w.SetReadDeadline(by)
}
