package http2

import (
	"encoding/binary"
	"fmt"
)

// Preface is the first bytes of a client that knows the server to support HTTP/2 (RFC 9113 section 3.4).
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// FrameSize is the largest payload of a frame that either side may send, in bytes: the smallest value
// allowed and the default (RFC 9113 section 4.2). Larger ones would only delay other streams.
const FrameSize = 16 << 10

// frameHeader is the length of what precedes each payload (RFC 9113 section 4.1).
const frameHeader = 9

// Types of frames (RFC 9113 section 6). Those that others look at are exported.
const (
	FrameData         = 0
	FrameHeaders      = 1
	framePriority     = 2
	FrameRSTStream    = 3
	frameSettings     = 4
	framePushPromise  = 5
	framePing         = 6
	frameGoAway       = 7
	FrameWindowUpdate = 8
	frameContinuation = 9
)

// Flags of frames. The one that others look at is exported.
const (
	FlagEndStream  = 1 // DATA, HEADERS
	flagAck        = 1 // SETTINGS, PING
	flagEndHeaders = 4
	flagPadded     = 8
	flagPriority   = 0x20
)

// Settings (RFC 9113 section 6.5.2, RFC 8441 section 3).
const (
	settingHeaderTableSize      = 1
	settingEnablePush           = 2
	settingMaxConcurrentStreams = 3
	settingInitialWindowSize    = 4
	settingMaxFrameSize         = 5
	settingMaxHeaderListSize    = 6
	settingEnableConnect        = 8
)

// Code says why a stream or a connection ended (RFC 9113 section 7).
type Code uint32

// Codes.
const (
	NoError            Code = 0
	ProtocolError      Code = 1
	InternalError      Code = 2
	FlowControlError   Code = 3
	StreamClosed       Code = 5
	FrameSizeError     Code = 6
	RefusedStream      Code = 7
	Cancel             Code = 8
	CompressionError   Code = 9
	EnhanceYourCalm    Code = 11
	maxWindow               = 1<<31 - 1
	maxStreamID             = 1<<31 - 1
	defaultWindow           = 1<<16 - 1 // RFC 9113 section 6.9.2
	defaultHeaderTable      = 4096      // RFC 7541 section 4.2
)

// connError ends the connection.
type connError struct {
	code Code
	text string
}

func (e *connError) Error() string {
	return fmt.Sprintf("HTTP/2 connection error %d: %s", e.code, e.text)
}

func refuse(code Code, text string) error { return &connError{code, text} }

// frame is the header of a frame.
type frame struct {
	kind, flags byte
	stream      uint32
	length      int
}

func parseFrame(b []byte) frame {
	return frame{
		length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]), kind: b[3], flags: b[4],
		stream: binary.BigEndian.Uint32(b[5:]) & maxStreamID,
	}
}

func (f *frame) has(flag byte) bool { return f.flags&flag != 0 }

// appendFrame appends the header of a frame.
func appendFrame(dst []byte, kind, flags byte, stream uint32, length int) []byte {
	return append(dst, byte(length>>16), byte(length>>8), byte(length), kind, flags,
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

func appendSetting(dst []byte, id uint16, value uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(dst, id), value)
}

func appendReset(dst []byte, stream uint32, code Code) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(dst, FrameRSTStream, 0, stream, 4), uint32(code))
}

func appendWindowUpdate(dst []byte, stream uint32, n int) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(dst, FrameWindowUpdate, 0, stream, 4), uint32(n))
}

// unpad removes the padding of DATA and HEADERS (RFC 9113 section 6.1).
func (f *frame) unpad(p []byte) ([]byte, error) {
	if !f.has(flagPadded) {
		return p, nil
	}
	if len(p) == 0 || int(p[0]) >= len(p) {
		return nil, refuse(ProtocolError, "padding longer than the frame")
	}
	return p[1 : len(p)-int(p[0])], nil
}
