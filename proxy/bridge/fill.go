package bridge

import (
	"io"
	"net/http"
	"sync"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/poison"
)

// chunkRoom is the room, in bytes, for the size line before a chunk.
const chunkRoom = 16

var bodyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// fill writes a body into b in the framing f, each piece as it arrives. It returns io.EOF after
// all of it, with the trailers that came at the end of the body; otherwise it returns the error
// that ended the body.
func (b *buffer) fill(body io.Reader, f http1.Framing, trailers func() http.Header) error {
	buf := bodyBuffers.Get().(*[32 << 10]byte)
	defer putBodyBuffer(buf)
	chunked := f.Kind == http1.BodyChunked
	for {
		n, err := body.Read(buf[chunkRoom : len(buf)-len("\r\n")])
		piece := buf[chunkRoom : chunkRoom+n]
		if chunked && n > 0 {
			piece = frame(buf[:], n)
		}
		if len(piece) > 0 {
			if _, err := b.Write(piece); err != nil {
				return err
			}
		}
		if err == io.EOF && chunked {
			if _, err := b.Write(http1.AppendLastChunk(nil, trailerHeaders(trailers()))); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

func putBodyBuffer(buf *[32 << 10]byte) {
	poison.Fill(buf[:])
	bodyBuffers.Put(buf)
}

// frame writes the size line before the n bytes at buf[chunkRoom], and CRLF after them.
func frame(buf []byte, n int) []byte {
	var line [chunkRoom]byte
	size := http1.AppendChunkSize(line[:0], int64(n))
	start := chunkRoom - len(size)
	copy(buf[start:], size)
	end := chunkRoom + n
	copy(buf[end:], "\r\n")
	return buf[start : end+2]
}
