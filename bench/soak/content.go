package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// content is the body of one message: size bytes that follow from the rest, so that both ends know them.
type content struct {
	seed, id, side uint64
	size           int64
}

// The sides, so that no body equals another.
const (
	requestSide  uint64 = 1
	responseSide uint64 = 2 // plus the number of the attempt
)

func (c content) source(use uint64) *rand.ChaCha8 {
	var key [32]byte
	for i, v := range [...]uint64{c.seed, c.id, c.side, use} {
		binary.LittleEndian.PutUint64(key[8*i:], v)
	}
	return rand.NewChaCha8(key)
}

func (c content) open() io.Reader { return io.LimitReader(c.source(0), c.size) }

// sum is a text that follows from the content, for trailers.
func (c content) sum() string { return fmt.Sprintf("%016x", c.source(1+uint64(c.size)).Uint64()) }

// write writes the bytes up to to, in pieces of at most step bytes, each a chunk if chunked. With end, the last chunk
// follows, with the sum in a trailer if asked for.
func (c content) write(w io.Writer, to int64, step int, chunked, trailer, end bool) error {
	r, buf := c.open(), make([]byte, min(int64(step), to))
	for to > 0 {
		p := buf[:min(int64(len(buf)), to)]
		if _, err := io.ReadFull(r, p); err != nil {
			return err
		}
		to -= int64(len(p))
		if chunked {
			p = fmt.Appendf(nil, "%x\r\n%s\r\n", len(p), p)
		}
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	if !chunked || !end {
		return nil
	}
	last := "0\r\n\r\n"
	if trailer {
		last = "0\r\n" + fieldSum + ": " + c.sum() + "\r\n\r\n"
	}
	_, err := io.WriteString(w, last)
	return err
}

// slowWriter waits before each write.
type slowWriter struct {
	io.Writer
	pause time.Duration
}

func (s slowWriter) Write(p []byte) (int, error) {
	time.Sleep(s.pause)
	return s.Writer.Write(p)
}

// looksWhole ends what is said of a body that ended in order, but too soon.
const looksWhole = "and it looks whole"

// read reads r to its end and says what differs from the content: nothing when
// wrong is empty. cut is the error that ended r early; a cut body is still
// checked as far as it came.
func (c content) read(r io.Reader) (wrong string, n int64, cut error) {
	want := c.open()
	var got, is [8 << 10]byte
	for {
		k, err := r.Read(got[:])
		m, _ := io.ReadFull(want, is[:k])
		switch {
		case wrong != "" || bytes.Equal(got[:k], is[:m]):
		case m < k:
			wrong = fmt.Sprintf("%d bytes, more than the %d sent", n+int64(k), c.size)
		default:
			at := 0
			for got[at] == is[at] {
				at++
			}
			wrong = fmt.Sprintf("byte %d is %#02x, not %#02x", n+int64(at), got[at], is[at])
		}
		n += int64(k)
		switch {
		case err == io.EOF && wrong == "" && n != c.size:
			return fmt.Sprintf("%d bytes instead of %d, %s", n, c.size, looksWhole), n, nil
		case err == io.EOF:
			return wrong, n, nil
		case err != nil:
			return wrong, n, err
		}
	}
}
