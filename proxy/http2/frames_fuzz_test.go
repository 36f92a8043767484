package http2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// reading is a link that notes what the frames say that it reads. Its streams never end.
type reading struct {
	link
	said  []string
	reset Code // with which a stream was reset
}

func newReading(headerBytes int) *reading {
	r := &reading{}
	r.init(nil, r, &setup{peer: Limits{ReadAhead: ReadAhead{Window: 1 << 30}, HeaderBytes: headerBytes}})
	r.settled = true
	return r
}

func (r *reading) note(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func (r *reading) headersCame() error {
	r.note("%s", section(r.opening.stream, r.opening.has(FlagEndStream), r.fields.list, r.fields.tooLarge))
	return nil
}

func (r *reading) rstStream(f *frame, code Code) error {
	r.note("%d: reset %d", f.stream, code)
	return nil
}

func (r *reading) goAway(p []byte) error {
	r.note("away %d %x", binary.BigEndian.Uint32(p)&maxStreamID, p[4:])
	return nil
}

func (r *reading) setting(id uint16, value uint32) error {
	r.note("setting %d=%d", id, value)
	return nil
}

func (r *reading) sendReset(_ uint32, code Code) { r.reset = code }

func (r *reading) closedStream(*frame) error { return nil }
func (r *reading) ofClosed(*flow) bool       { return false }
func (r *reading) settingsCame()             {}
func (r *reading) idle(time.Time) error      { return nil }
func (r *reading) unsent(int64)              {}
func (r *reading) mayEnd() bool              { return false }

// readStream is a stream of a reading.
type readStream struct{ flow }

func (*readStream) end(error)  {}
func (*readStream) peerEnded() {}
func (*readStream) completed() {}

// section is how both readers note a header section.
func section(id uint32, ends bool, list []hpack.HeaderField, tooLarge bool) string {
	text := fmt.Sprintf("%d: headers, ends %t, too large %t", id, ends, tooLarge)
	for _, h := range list {
		text += fmt.Sprintf(" %q=%q", h.Name, h.Value)
	}
	return text
}

// read reads one whole frame of a stream that is open, and returns the code of the fault, if it is one, and
// whether it ends the connection.
func (r *reading) read(b []byte) (code Code, ends bool) {
	f := parseFrame(b)
	s := &readStream{}
	s.init(&r.link, s)
	s.open(f.stream)
	defer s.release()
	s.left, s.window = -1, 0
	r.streams = map[uint32]*flow{f.stream: &s.flow}
	r.said, r.reset, r.window = nil, NoError, 0
	r.out.pending.Resize(0)
	r.in = buffer.Clone(b)
	defer r.in.Put()
	r.r, r.w = 0, len(b)
	if err := r.frames(); err != nil {
		var fault *connError
		if !errors.As(err, &fault) {
			panic(err)
		}
		return fault.code, true
	}
	switch {
	case r.r != len(b):
		r.note("it waits for more")
	case f.kind == FrameData:
		r.note("%d: %q, ends %t, with %d bytes of padding", f.stream, s.in.Bytes(), s.remoteEnded, s.credit)
	case f.kind == FrameWindowUpdate:
		r.note("%d: %d more", f.stream, r.window+s.window)
	case f.kind == framePing:
		r.note("%q", r.out.pending.Bytes())
	}
	return r.reset, false
}

// reference reads the same by x/net.
type reference struct {
	*http2.Framer
	said    []string
	id      uint32
	ends    bool
	block   []byte
	decoder *fieldsReference
}

func newReference(b []byte, headerBytes int) *reference {
	r := &reference{Framer: http2.NewFramer(io.Discard, bytes.NewReader(b)), decoder: newFieldsReference(headerBytes)}
	r.SetMaxReadFrameSize(FrameSize)
	return r
}

func (r *reference) note(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

// read reads one whole frame.
func (r *reference) read() (code Code, ends bool) {
	r.said = nil
	frame, err := r.ReadFrame()
	var conn http2.ConnectionError
	var stream http2.StreamError
	switch {
	case errors.As(err, &conn):
		return Code(conn), true
	case errors.As(err, &stream):
		return Code(stream.Code), false
	case err != nil: // too short for what it must have, or too large
		return FrameSizeError, true
	}
	switch f := frame.(type) {
	case *http2.DataFrame:
		padding := int(f.Length) - len(f.Data())
		r.note("%d: %q, ends %t, with %d bytes of padding", f.StreamID, f.Data(), f.StreamEnded(), padding)
	case *http2.HeadersFrame:
		if f.StreamID%2 == 0 || f.Flags.Has(http2.FlagHeadersPriority) && f.Priority.StreamDep == f.StreamID {
			return ProtocolError, true
		}
		r.id, r.ends, r.block = f.StreamID, f.StreamEnded(), slices.Clone(f.HeaderBlockFragment())
		return r.piece(f.HeadersEnded())
	case *http2.ContinuationFrame:
		r.block = append(r.block, f.HeaderBlockFragment()...)
		return r.piece(f.HeadersEnded())
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return ProtocolError, false
		}
	case *http2.RSTStreamFrame:
		r.note("%d: reset %d", f.StreamID, uint32(f.ErrCode))
	case *http2.SettingsFrame:
		if f.NumSettings() > mostSettings {
			return EnhanceYourCalm, true
		}
		for i := range f.NumSettings() {
			s := f.Setting(i)
			if errors.As(s.Valid(), &conn) {
				return Code(conn), true
			}
			r.note("setting %d=%d", s.ID, s.Val)
		}
	case *http2.PushPromiseFrame:
		return ProtocolError, true
	case *http2.PingFrame:
		if f.StreamID != 0 {
			return ProtocolError, true
		}
		var ack []byte
		if !f.IsAck() {
			ack = append(appendFrame(nil, framePing, flagAck, 0, 8), f.Data[:]...)
		}
		r.note("%q", ack)
	case *http2.GoAwayFrame:
		r.note("away %d %08x%x", f.LastStreamID, uint32(f.ErrCode), f.DebugData())
	case *http2.WindowUpdateFrame:
		r.note("%d: %d more", f.StreamID, f.Increment)
	}
	return NoError, false
}

func (r *reference) piece(ends bool) (Code, bool) {
	if !ends {
		return NoError, false
	}
	list, tooLarge, err := r.decoder.decode(r.block)
	if err != nil {
		return CompressionError, true
	}
	r.note("%s", section(r.id, r.ends, list, tooLarge))
	return NoError, false
}

// fieldsReference decodes header blocks by x/net.
type fieldsReference struct {
	decoder *hpack.Decoder
	most    int
}

func newFieldsReference(headerBytes int) *fieldsReference {
	return &fieldsReference{hpack.NewDecoder(4096, nil), headerBytes}
}

// decode returns the fields up to the one that makes them too large.
func (r *fieldsReference) decode(block []byte) (list []hpack.HeaderField, tooLarge bool, err error) {
	all, err := r.decoder.DecodeFull(block)
	size := 0
	for i, h := range all {
		if size += int(h.Size()); size > r.most {
			return all[:i], true, err
		}
	}
	return all, false, err
}

// Frames say the same to us as to x/net's Framer, and are faults to both, with the same code. What RFC 9113
// leaves to the receiver, and what x/net leaves to its server, is in reference.read.
func FuzzFrames(f *testing.F) {
	for _, seed := range frameSeeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<18 {
			return
		}
		const headerBytes = 1 << 19 // more than the whole input, so that only expansion exceeds it
		ours, theirs := newReading(headerBytes), newReference(b, headerBytes)
		defer ours.out.pending.Put()
		for len(b) >= frameHeader {
			next := parseFrame(b)
			n := frameHeader + next.length
			if next.length > FrameSize {
				n = frameHeader
			}
			if n > len(b) {
				return
			}
			code, ends := ours.read(b[:n])
			wantCode, wantEnds := theirs.read()
			if code != wantCode && !sameFault(&next, code, wantCode) {
				t.Fatalf("%+v % x: code %d, x/net has %d", next, b[:min(n, 64)], code, wantCode)
			}
			if code != NoError {
				if ends || wantEnds {
					return
				}
			} else if next.kind != framePriorityUpdate && !slices.Equal(ours.said, theirs.said) {
				t.Fatalf("%+v:\n%q, x/net has\n%q", next, ours.said, theirs.said)
			}
			b = b[n:]
		}
	})
}

// framePriorityUpdate is of an extension that x/net knows (RFC 9218 section 7.1) and we ignore.
const framePriorityUpdate = 0x10

// sameFault reports whether a frame has several faults, of which we and x/net found different ones first, or is of an
// extension that we ignore.
func sameFault(f *frame, ours, theirs Code) bool {
	switch {
	case f.kind == framePriorityUpdate:
		return ours == NoError
	case ours == NoError || theirs == NoError:
		return false
	}
	switch f.kind {
	case FrameData: // it is too short for its padding
		return f.has(flagPadded)
	case FrameHeaders:
		return f.has(flagPadded) || f.stream%2 == 0
	case FrameRSTStream:
		return f.stream == 0
	case framePushPromise: // nobody may push, whatever it says
		return true
	case frameSettings, framePing:
		return f.stream != 0
	}
	return false
}

// frameSeeds returns one frame of each kind, alone and padded, and all of them in order.
func frameSeeds() (seeds [][]byte) {
	var all bytes.Buffer
	w := http2.NewFramer(&all, nil)
	w.AllowIllegalWrites = true
	var text bytes.Buffer
	enc := hpack.NewEncoder(&text)
	for i := 0; i < len(getFields); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: getFields[i], Value: getFields[i+1]})
	}
	block := text.Bytes()
	for _, write := range []func() error{
		func() error { return w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 9}) },
		func() error { return w.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 2}) },
		w.WriteSettingsAck,
		func() error {
			return w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true, PadLength: 3, Priority: http2.PriorityParam{StreamDep: 5, Weight: 1}})
		},
		func() error {
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: block[:3], EndStream: true})
			return w.WriteContinuation(3, true, block[3:])
		},
		func() error { return w.WriteDataPadded(1, true, []byte("abc"), make([]byte, 5)) },
		func() error { return w.WriteData(1, false, []byte(strings.Repeat("x", 300))) },
		func() error {
			return w.WritePriority(1, http2.PriorityParam{StreamDep: 3, Weight: 200, Exclusive: true})
		},
		func() error { return w.WriteRSTStream(1, http2.ErrCodeCancel) },
		func() error { return w.WritePing(false, [8]byte{1, 2}) },
		func() error { return w.WriteGoAway(7, http2.ErrCodeNo, []byte("why")) },
		func() error { return w.WriteWindowUpdate(0, 7) },
		func() error { return w.WriteWindowUpdate(1, 1<<31-1) },
		func() error {
			return w.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		},
		func() error { return w.WriteRawFrame(0x77, 9, 1, []byte("extension")) },
	} {
		n := all.Len()
		_ = write()
		seeds = append(seeds, slices.Clone(all.Bytes()[n:]))
	}
	return append(seeds, slices.Concat(seeds...))
}

// Header blocks have the same fields for us as for x/net's decoder, however they are cut into frames, also those
// that refer to what earlier ones stored; or they are a fault to both. Each block is preceded by its length.
func FuzzHeaderBlocks(f *testing.F) {
	var text, all bytes.Buffer
	enc := hpack.NewEncoder(&text)
	for _, value := range []string{"a", "a", strings.Repeat("b", 100)} {
		text.Reset()
		_ = enc.WriteField(hpack.HeaderField{Name: ":path", Value: "/"})
		_ = enc.WriteField(hpack.HeaderField{Name: "x-name", Value: value})
		_ = enc.WriteField(hpack.HeaderField{Name: "cookie", Value: value, Sensitive: true})
		all.WriteByte(byte(text.Len()))
		all.Write(text.Bytes())
		enc.SetMaxDynamicTableSize(100)
	}
	f.Add(all.Bytes(), uint16(5))
	f.Add([]byte("\x03\x20\x40\x00\x04\xbe\xbe\xbe\xbe"), uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, size uint16) {
		const headerBytes = 1 << 10
		ours, theirs := newReading(headerBytes), newFieldsReference(headerBytes)
		defer ours.out.pending.Put()
		for len(b) > 0 {
			n := min(1+int(b[0]), len(b))
			block := b[1:n]
			b = b[n:]
			code, ends := ours.blockIn(block, max(1, int(size)))
			list, tooLarge, err := theirs.decode(block)
			if ends || err != nil {
				if code != CompressionError || err == nil {
					t.Fatalf("% x: code %d, x/net has %v", block, code, err)
				}
				return
			}
			if want := section(1, false, list, tooLarge); len(ours.said) != 1 || ours.said[0] != want {
				t.Fatalf("% x:\n%q, x/net has\n%s", block, ours.said, want)
			}
		}
	})
}

// blockIn reads a header block of stream 1 in pieces of size bytes.
func (r *reading) blockIn(block []byte, size int) (code Code, ends bool) {
	kind := byte(FrameHeaders)
	for {
		n := min(size, len(block))
		var flags byte
		if n == len(block) {
			flags = flagEndHeaders
		}
		code, ends = r.read(append(appendFrame(nil, kind, flags, 1, n), block[:n]...))
		if block = block[n:]; flags != 0 || ends {
			return code, ends
		}
		kind = frameContinuation
	}
}
