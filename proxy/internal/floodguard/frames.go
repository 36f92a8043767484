// Package floodguard bounds the cost of an HTTP/2 client's frames: those that request nothing, and requests
// that their client ends at once.
//
// A client that sends too much is slowed down rather than disconnected, so that its other streams
// continue. A client that does not stop gets GOAWAY.
package floodguard

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http2"
)

// Preface is http2.Preface. An HTTP/1.1 parser refuses it after its first line.
const Preface = http2.Preface

// How many frames that request nothing an HTTP/2 client may send: SETTINGS, PING, RST_STREAM,
// PRIORITY, CONTINUATION, GOAWAY, unknown ones, and DATA without content. Each costs the proxy
// about as much as parsing a request's headers. A client needs a
// few at its beginning, one now and then, and one RST_STREAM for each request that it gives up. A
// stream that the client makes us reset counts like one that it resets.
//
// A client that sends more is read as slowly as its allowance grows, so that its other streams are
// still served. If it continues for floodPatience, it gets GOAWAY.
const (
	IdleFrames          = 2000 // at once
	idleFramesPerSecond = 1000 // and one more for each piece of a response, and each response that ended

	resetsAtOnce    = 200 // more than the streams that a client may have at once
	resetsPerSecond = 1000

	floodPatience = 5 * time.Second
)

// Credit lets the client send n frames more.
func (w *FrameWatch) Credit(n int) { w.credit.Add(int64(n)) }

// FrameWatch is an HTTP/2 client's connection. It counts frames as they are read, by their headers
// alone (RFC 9113 section 4.1). One goroutine may read while another writes.
type FrameWatch struct {
	net.Conn
	onSlow  func() // called once, when the connection is first slowed down
	onFlood func() // called once, after it was slowed down for floodPatience

	scan frameScan

	frames, resets allowance
	slowSince      time.Time
	slowUntil      time.Time
	credit         atomic.Int64 // frames earned by responses since the last pace

	sent   resetScan
	faults atomic.Int64 // streams that we reset because of the client, not yet counted
}

// Watch returns a FrameWatch for nc, on which the preface is still unread.
func Watch(nc net.Conn, slowed, away func()) *FrameWatch {
	now := time.Now()
	return &FrameWatch{
		Conn: nc, onSlow: sync.OnceFunc(slowed), onFlood: sync.OnceFunc(away), scan: frameScan{skip: len(Preface)},
		frames: allowance{tokens: IdleFrames, max: IdleFrames, perSecond: idleFramesPerSecond, at: now},
		resets: allowance{tokens: resetsAtOnce, max: resetsAtOnce, perSecond: resetsPerSecond, at: now},
	}
}

// Read implements net.Conn.
func (w *FrameWatch) Read(p []byte) (int, error) {
	w.pace()
	n, err := w.Conn.Read(p)
	w.inspect(p[:n])
	return n, err
}

// Write implements net.Conn.
func (w *FrameWatch) Write(p []byte) (int, error) {
	w.Sends(p)
	return w.Conn.Write(p)
}

// Sends follows the frames in bytes that are written to the connection in another way than by Write.
func (w *FrameWatch) Sends(p []byte) {
	if n := w.sent.scan(p); n > 0 {
		w.faults.Add(int64(n))
	}
}

// paceStep is the shortest sleep, so that a pause is worth its timer.
const paceStep = 10 * time.Millisecond

// pace sleeps until the client's allowance is no longer overdrawn.
func (w *FrameWatch) pace() {
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

// slow records that the client is not read for d. A second without slowing down ends a flood.
func (w *FrameWatch) slow(now time.Time, d time.Duration) {
	w.onSlow()
	if now.Sub(w.slowUntil) > time.Second {
		w.slowSince = now
	}
	w.slowUntil = now.Add(d)
	if w.slowUntil.Sub(w.slowSince) > floodPatience {
		w.onFlood()
	}
}

// inspect follows the frames in the bytes just read.
func (w *FrameWatch) inspect(p []byte) {
	for len(p) > 0 {
		p = w.scan.payload(p)
		var whole bool
		if p, whole = w.scan.header(p); whole {
			w.frame()
		}
	}
}

// frame counts the frame whose header has arrived.
func (w *FrameWatch) frame() {
	kind, flags := w.scan.kind(), w.scan.flags()
	switch {
	case kind == http2.FrameHeaders, kind == http2.FrameWindowUpdate, kind == http2.FrameData && (w.scan.skip > 0 || flags&http2.FlagEndStream != 0):
		return
	case kind == http2.FrameRSTStream:
		w.resets.tokens--
	}
	w.frames.tokens--
}

// frameScan follows the frames of HTTP/2 in a stream of bytes by their headers alone.
type frameScan struct {
	buf  [9]byte // the frame's header, as far as it has arrived
	have int
	skip int // bytes before the next frame's header
}

func (s *frameScan) kind() byte  { return s.buf[3] }
func (s *frameScan) flags() byte { return s.buf[4] }

// payload removes what is left of a frame's payload from p.
func (s *frameScan) payload(p []byte) []byte {
	n := min(s.skip, len(p))
	s.skip -= n
	return p[n:]
}

// header removes a frame's header from p. It reports whether the header is complete; skip is then
// the length of the payload.
func (s *frameScan) header(p []byte) (rest []byte, whole bool) {
	n := copy(s.buf[s.have:], p)
	if s.have += n; s.have < len(s.buf) {
		return p[n:], false
	}
	s.have = 0
	s.skip = int(s.buf[0])<<16 | int(s.buf[1])<<8 | int(s.buf[2])
	return p[n:], true
}

// resetScan finds, in the bytes written to a client, the streams that we reset because of the
// client's fault (MadeYouReset, CVE-2025-8671): a WINDOW_UPDATE of 0 or beyond the largest window,
// DATA after END_STREAM, more DATA than announced, a stream that depends on itself.
type resetScan struct {
	frameScan
	code          [4]byte
	codeBytesLeft int // bytes of code still to come
}

// scan returns how many such resets p contains.
func (s *resetScan) scan(p []byte) (found int) {
	for len(p) > 0 {
		if s.codeBytesLeft > 0 {
			n := copy(s.code[len(s.code)-s.codeBytesLeft:], p)
			p = p[n:]
			if s.codeBytesLeft -= n; s.codeBytesLeft == 0 && s.clientsFault() {
				found++
			}
			continue
		}
		p = s.payload(p)
		var whole bool
		if p, whole = s.header(p); whole && s.kind() == http2.FrameRSTStream {
			s.skip, s.codeBytesLeft = 0, len(s.code)
		}
	}
	return found
}

func (s *resetScan) clientsFault() bool {
	code := http2.Code(binary.BigEndian.Uint32(s.code[:]))
	return code != http2.NoError && code != http2.InternalError // those of a server's own reasons
}

// allowance grows with time up to max. It may be overdrawn.
type allowance struct {
	tokens, max, perSecond int
	at                     time.Time // when it last grew
}

func (a *allowance) earn(n int) { a.tokens = min(a.tokens+n, a.max) }

// debt adds what time has earned, and returns how long it takes until the allowance is no longer
// overdrawn.
func (a *allowance) debt(now time.Time) time.Duration {
	earned := min(now.Sub(a.at), time.Hour) * time.Duration(a.perSecond) / time.Second
	if earned > 0 {
		a.earn(int(earned))
		a.at = now
	}
	if a.tokens >= 0 || a.perSecond == 0 {
		return 0
	}
	return time.Duration(-a.tokens) * time.Second / time.Duration(a.perSecond)
}
