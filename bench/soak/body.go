package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"
)

// body is the body of one message. Its bytes follow from seed, id and side, so that both ends know
// them.
type body struct {
	seed, id, side uint64
	size           int64
	chunked        bool
	trailer        bool // the sum follows the last chunk
}

// The sides, so that no body equals another.
const (
	requestSide  uint64 = 1
	responseSide uint64 = 2 // plus the number of the attempt
)

func (b body) source(use uint64) *rand.ChaCha8 {
	var key [32]byte
	for i, v := range [...]uint64{b.seed, b.id, b.side, use} {
		binary.LittleEndian.PutUint64(key[8*i:], v)
	}
	return rand.NewChaCha8(key)
}

func (b body) open() io.Reader { return io.LimitReader(b.source(0), b.size) }

// sum is what a trailer says; "" if there is none.
func (b body) sum() string {
	if !b.trailer {
		return ""
	}
	return fmt.Sprintf("%016x", b.source(1+uint64(b.size)).Uint64())
}

// whole has write write all bytes and what ends them.
const whole = math.MaxInt64

// write writes the first upTo bytes, in pieces of at most step bytes, each a chunk if chunked. If
// upTo is beyond the size, the last chunk and the trailer follow.
func (b body) write(w io.Writer, upTo int64, step int) error {
	left := min(upTo, b.size)
	r, buf := b.open(), make([]byte, min(int64(step), left))
	for left > 0 {
		p := buf[:min(int64(len(buf)), left)]
		if _, err := io.ReadFull(r, p); err != nil {
			return err
		}
		left -= int64(len(p))
		if b.chunked {
			p = fmt.Appendf(nil, "%x\r\n%s\r\n", len(p), p)
		}
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	if !b.chunked || upTo <= b.size {
		return nil
	}
	last := "0\r\n\r\n"
	if b.trailer {
		last = "0\r\n" + fieldSum + ": " + b.sum() + "\r\n\r\n"
	}
	_, err := io.WriteString(w, last)
	return err
}

// looksWhole ends the description of a body that ended in order, but too soon.
const looksWhole = "and it looks whole"

// read reads r to its end and describes what differs from the body; "" means nothing. cut is the
// error that ended r early. A cut body is checked as far as it came.
func (b body) read(r io.Reader) (wrong string, n int64, cut error) {
	want := b.open()
	var got, is [8 << 10]byte
	for {
		k, err := r.Read(got[:])
		m, _ := io.ReadFull(want, is[:k])
		switch {
		case wrong != "" || bytes.Equal(got[:k], is[:m]):
		case m < k:
			wrong = fmt.Sprintf("%d bytes, more than the %d sent", n+int64(k), b.size)
		default:
			at := 0
			for got[at] == is[at] {
				at++
			}
			wrong = fmt.Sprintf("byte %d is %#02x, not %#02x", n+int64(at), got[at], is[at])
		}
		n += int64(k)
		switch {
		case err == io.EOF && wrong == "" && n != b.size:
			return fmt.Sprintf("%d bytes instead of %d, %s", n, b.size, looksWhole), n, nil
		case err == io.EOF:
			return wrong, n, nil
		case err != nil:
			return wrong, n, err
		}
	}
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

// slowReader takes its time for the first reads.
type slowReader struct {
	io.Reader
	n int
}

func (r *slowReader) Read(p []byte) (int, error) {
	if r.n++; r.n < 8 {
		time.Sleep(20 * time.Millisecond)
		p = p[:min(len(p), 8<<10)]
	}
	return r.Reader.Read(p)
}
