// Package contentcoding decodes the beginning of a compressed body that is in memory (RFC 9110 section
// 8.4.1, and "zstd" of RFC 8878). It is for error bodies, which are read to find out how long to wait.
package contentcoding

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// maxWindow is the largest window of zstd, in bytes (RFC 9659 section 3).
const maxWindow = 8 << 20

// resetter is a decoder that is used again, because its window is far larger than what is decoded.
type resetter interface {
	io.Reader
	Reset(io.Reader) error
}

// codings are the codings that Decode knows.
var codings = [...]struct {
	name string
	pool *sync.Pool
}{
	{"gzip", &gzips}, {"x-gzip", &gzips}, {"br", &brotlis}, {"zstd", &zstds}, {"deflate", &deflates},
}

var (
	gzips    = sync.Pool{New: func() any { return new(gzip.Reader) }}
	brotlis  = sync.Pool{New: func() any { return brotli.NewReader(nil) }}
	zstds    = sync.Pool{New: newZstd}
	deflates = sync.Pool{New: func() any { return new(deflate) }}
)

// newZstd makes a decoder without goroutines of its own.
func newZstd() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		panic(err) // the options are wrong
	}
	return d
}

// Decode decodes body, whose Content-Encoding is coding, into dst, up to the capacity of dst. It returns
// what it decoded before an error or the end: nothing if it does not know the coding. A body may be cut
// off. It is safe for concurrent use.
func Decode(dst, body, coding []byte) []byte {
	for i := range codings {
		if !http1.EqualFold(coding, codings[i].name) {
			continue
		}
		r := codings[i].pool.Get().(resetter)
		dst = dst[:cap(dst)]
		n := 0
		if r.Reset(bytes.NewReader(body)) == nil {
			n, _ = io.ReadFull(r, dst) // an error is the end
		}
		_ = r.Reset(bytes.NewReader(nil)) // keeps nothing of body
		codings[i].pool.Put(r)
		return dst[:n]
	}
	return nil
}

// deflate decodes the coding "deflate": the zlib format, or the bare format that some servers send (RFC
// 9110 section 8.4.1.2).
type deflate struct {
	r          io.Reader
	zlib, bare io.ReadCloser // nil until they are used
}

func (d *deflate) Read(p []byte) (int, error) { return d.r.Read(p) }

// Reset prepares d to read from r, which is a *bytes.Reader.
func (d *deflate) Reset(r io.Reader) (err error) {
	var header [2]byte
	from := r.(*bytes.Reader)
	if n, _ := from.ReadAt(header[:], 0); n < len(header) {
		d.r = bytes.NewReader(nil) // nothing can be decoded
		return nil
	}
	isZlib := header[0]&0x0f == 8 && (uint(header[0])<<8|uint(header[1]))%31 == 0 // RFC 1950 section 2.2
	switch {
	case isZlib && d.zlib == nil:
		d.zlib, err = zlib.NewReader(from)
	case isZlib:
		err = d.zlib.(zlib.Resetter).Reset(from, nil)
	case d.bare == nil:
		d.bare = flate.NewReader(from)
	default:
		err = d.bare.(flate.Resetter).Reset(from, nil)
	}
	if isZlib {
		d.r = d.zlib
	} else {
		d.r = d.bare
	}
	return err
}
