//go:build poison || race

package poison

import "bytes"

// On reports whether this build overwrites buffers.
const On = true

var pattern = bytes.Repeat([]byte{0xA5}, 64<<10)

// Fill overwrites all of b, up to its capacity.
func Fill(b []byte) {
	for b = b[:cap(b)]; len(b) > 0; {
		b = b[copy(b, pattern):]
	}
}
