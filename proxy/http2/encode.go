package http2

import "github.com/retryproxy/retryproxy/proxy/internal/buffer"

// encode makes a header block: appendTo appends its fields (see wire.Block). The block is valid until the next
// call. It is called with mu held.
func (l *link) encode(appendTo func([]byte) []byte) []byte {
	b := l.encoded[:0]
	if l.tableShrinks {
		l.tableShrinks = false
		b = append(b, 0x20) // dynamic table size update to 0 (RFC 7541 section 6.3): none is used
	}
	b = appendTo(b)
	if l.encoded = b; cap(b) > buffer.Small {
		l.encoded = nil // an idle connection holds little
	}
	return b
}
