package floodguard

import (
	"encoding/binary"
	"time"
)

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

// Codes of RST_STREAM with which a server ends streams for reasons of its own (RFC 9113 section 7).
const (
	codeNoError       = 0
	codeInternalError = 2
)

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
		if p, whole = s.header(p); whole && s.kind() == frameRSTStream {
			s.skip, s.codeBytesLeft = 0, len(s.code)
		}
	}
	return found
}

func (s *resetScan) clientsFault() bool {
	code := binary.BigEndian.Uint32(s.code[:])
	return code != codeNoError && code != codeInternalError
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
