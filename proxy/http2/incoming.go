package http2

import (
	"encoding/binary"
	"net/http"
	"strconv"

	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// mostInterim bounds the interim responses of a stream that nobody has read yet, in bytes.
const mostInterim = 64 << 10

// Errors of responses.
var (
	errMalformed     error = http1.RefusalBadHeader.Err()
	errHeadersLarge  error = http1.RefusalHeadersTooLarge.Err()
	errTrailersLarge error = http1.RefusalTrailersTooLarge.Err()
)

// headersCame implements side.
func (u *Upstream) headersCame() error {
	id, ends := u.opening.stream, u.opening.has(FlagEndStream)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err != nil {
		return u.err
	}
	f := u.streams[id]
	if f == nil {
		return u.closedStream(&u.opening)
	}
	switch s := f.self.(*UpstreamStream); {
	case s.remoteEnded:
		u.reset(f, StreamClosed)
	case s.early:
		s.takeHeaders(&u.fields, ends)
	case u.fields.tooLarge:
		s.refuse(errTrailersLarge)
	case !ends || !s.validTrailers(&u.fields):
		u.reset(f, ProtocolError)
	default:
		s.receiveTrailers(&u.fields)
	}
	return nil
}

// refuse ends the stream because of its response. It is called with mu held.
func (s *UpstreamStream) refuse(why error) {
	s.end(why)
	s.conn.sendReset(s.id, ProtocolError)
}

// takeHeaders takes the headers of a response, interim or final. It is called with mu held.
func (s *UpstreamStream) takeHeaders(f *fields, ends bool) {
	var r responseFields
	switch {
	case f.tooLarge:
		s.refuse(errHeadersLarge)
	case !r.parse(f), r.status == http.StatusSwitchingProtocols, r.status < 200 && ends:
		s.refuse(errMalformed)
	case r.status < 200 && s.head.Len() > mostInterim:
		s.refuse(errHeadersLarge)
	default:
		s.respond(f, &r, ends)
	}
}

// validTrailers reports whether the fields may be the trailers of a response.
func (s *UpstreamStream) validTrailers(f *fields) bool {
	for i := range f.list {
		if h := &f.list[i]; !isPlain(h) || isHopByHop(h.Name) {
			return false
		}
	}
	return true
}

// respond makes the headers of a response readable.
func (s *UpstreamStream) respond(f *fields, r *responseFields, ends bool) {
	if s.inEnd != nil {
		return // nobody reads it
	}
	if !s.head.Owns() {
		s.head = buffer.GetEmpty(buffer.Small)
	}
	mark := http1.EndsStream
	if r.status >= 200 {
		s.early, s.noBody = false, s.noBody || r.status == 204 || r.status == 304
		if s.left = -1; s.noBody {
			s.left = 0
		} else if r.hasLength {
			s.left = r.length
		}
	}
	if ends || s.noBody || r.status < 200 {
		mark = http1.EndedHere
	}
	s.head.Appended(r.appendRecord(s.head.Bytes(), f, mark))
	switch {
	case ends && s.left > 0:
		s.c.reset(&s.flow, ProtocolError)
	case ends:
		s.ended(nil)
	}
	s.wake()
}

// responseFields is what a header block says about a response.
type responseFields struct {
	status    int
	hasLength bool
	length    int64
}

// parse reads the status and what decides about the framing. It reports false for a malformed response (RFC
// 9113 section 8.3.2).
func (r *responseFields) parse(f *fields) bool {
	for i := range f.list {
		h := &f.list[i]
		if i == 0 {
			if h.Name != ":status" || len(h.Value) != 3 {
				return false
			}
			n, ok := http1.ParseUint([]byte(h.Value))
			if r.status = int(n); !ok || n < 100 {
				return false
			}
			continue
		}
		if !isPlain(h) || !r.take(h) {
			return false
		}
	}
	return r.status > 0
}

func (r *responseFields) take(h *hpack.HeaderField) bool {
	switch h.Name {
	case "content-length":
		n, ok := http1.ParseUint([]byte(h.Value))
		if !ok || int64(n) < 0 || r.hasLength && int64(n) != r.length {
			return false
		}
		r.hasLength, r.length = true, int64(n)
	}
	return true
}

// isPlain reports whether a name is a token without upper case and a value has no control bytes. Pseudo-headers
// are none.
func isPlain(h *hpack.HeaderField) bool {
	if h.Name == "" {
		return false
	}
	for i := range len(h.Name) {
		if !nameBytes[h.Name[i]] {
			return false
		}
	}
	for i := range len(h.Value) {
		if b := h.Value[i]; b < ' ' && b != '\t' || b == 0x7f {
			return false
		}
	}
	return true
}

// nameBytes are those of a token (RFC 9110 section 5.6.2) without upper case (RFC 9113 section 8.2.1).
var nameBytes = func() (is [256]bool) {
	for _, b := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz") {
		is[b] = true
	}
	return is
}()

func isHopByHop(name string) bool {
	switch name {
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		return true
	}
	return false
}

// appendRecord appends the record of the response.
func (r *responseFields) appendRecord(dst []byte, f *fields, mark http1.BodyMark) []byte {
	rec := recordOf{dst: http1.AppendResponseRecord(dst, r.status, http.StatusText(r.status), mark), start: len(dst)}
	if r.hasLength {
		rec.add("content-length", strconv.FormatInt(r.length, 10))
	}
	for i := range f.list[1:] {
		if h := &f.list[1+i]; h.Name != "content-length" && !isHopByHop(h.Name) {
			rec.add(h.Name, h.Value)
		}
	}
	return rec.end()
}

// closedStream implements side: what was on its way to a stream that has ended is ignored.
func (u *Upstream) closedStream(f *frame) error {
	if f.stream%2 == 0 || f.stream >= u.next {
		return refuse(ProtocolError, "a frame of a stream that was not opened")
	}
	return nil
}

// ofClosed implements side. Streams that have ended are forgotten.
func (u *Upstream) ofClosed(*flow) bool { return false }

// sendReset implements side.
func (u *Upstream) sendReset(id uint32, code Code) {
	u.control(16, func(dst []byte) []byte { return appendReset(dst, id, code) })
}

// rstStream implements side.
func (u *Upstream) rstStream(f *frame, code Code) error {
	if err := u.closedStream(f); err != nil {
		return err
	}
	if s := u.streams[f.stream]; s != nil {
		why := errReset
		if code == RefusedStream {
			why = ErrRefused
		}
		s.self.end(why)
	}
	return nil
}

// goAway implements side: streams beyond the last one that counts were not processed.
func (u *Upstream) goAway(p []byte) error {
	last := binary.BigEndian.Uint32(p) & maxStreamID
	if !u.goneAway || last < u.lastTaken {
		u.goneAway, u.lastTaken = true, last
	}
	told := false
	for id, s := range u.streams {
		if id <= last {
			continue
		}
		if !told { // before the requests are sent again
			u.wentAway()
			told = true
		}
		s.self.end(ErrUnprocessed)
	}
	u.retire()
	return nil
}

// setting implements side.
func (u *Upstream) setting(id uint16, value uint32) error {
	switch {
	case id == settingMaxConcurrentStreams:
		u.said = int(min(value, 1<<20))
	case id == settingEnablePush && value != 0:
		return refuse(ProtocolError, "a server cannot let us push")
	}
	return nil
}
