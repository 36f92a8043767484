package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// content is the body of one message: size bytes that follow from the key
// alone, so that both ends know them. Any part can be made without what is
// before it. A value: copies are free.
type content struct {
	key  uint64
	size int64
}

// What a content is for; part of its key, so that no body equals another.
const (
	requestSide  uint64 = 1
	responseSide uint64 = 2 // plus the number of the attempt
)

func newContent(seed, id, side uint64, size int64) content {
	return content{key: mix(mix(seed^side<<56) + id), size: size}
}

// mix is the output step of SplitMix64 (Steele, Lea, Flood 2014): every input
// bit moves half of the output's.
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// fill writes the bytes from offset off on into p, which must end within size.
func (c content) fill(p []byte, off int64) {
	var word [8]byte
	for len(p) > 0 {
		binary.LittleEndian.PutUint64(word[:], mix(c.key+uint64(off>>3)))
		n := copy(p, word[off&7:])
		p, off = p[n:], off+int64(n)
	}
}

// sum is a text that follows from the content, for trailers.
func (c content) sum() string { return fmt.Sprintf("%016x", mix(c.key^uint64(c.size))) }

// pieces calls f with the bytes from offset from up to to, in pieces of at most
// step bytes. f must not keep the piece.
func (c content) pieces(from, to int64, step int, f func([]byte) error) error {
	buf := make([]byte, min(int64(step), max(to-from, 0)))
	for off := from; off < to; {
		p := buf[:min(int64(len(buf)), to-off)]
		c.fill(p, off)
		if err := f(p); err != nil {
			return err
		}
		off += int64(len(p))
	}
	return nil
}

// verifier checks what is written to it against a content.
type verifier struct {
	want content
	off  int64
	bad  string // the first difference; empty: none
	buf  [4096]byte
}

// Write checks p and never fails, so that a copy into it reads to the end.
func (v *verifier) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), len(v.buf))
		v.check(rest[:n])
		rest = rest[n:]
	}
	return len(p), nil
}

func (v *verifier) check(p []byte) {
	off := v.off
	v.off += int64(len(p))
	if v.bad != "" {
		return
	}
	if v.off > v.want.size {
		v.bad = fmt.Sprintf("%d bytes, more than the %d sent", v.off, v.want.size)
		return
	}
	want := v.buf[:len(p)]
	v.want.fill(want, off)
	if bytes.Equal(p, want) {
		return
	}
	for i := range p {
		if p[i] != want[i] {
			v.bad = fmt.Sprintf("byte %d is %#02x, not %#02x", off+int64(i), p[i], want[i])
			return
		}
	}
}

// looksWhole ends what is said of a body that ended in order, but too soon.
const looksWhole = "and it looks whole"

// read reads r to its end and says what differs from the content: nothing when
// wrong is empty. cut is the error that ended r early; a cut body is still
// checked as far as it came.
func (c content) read(r io.Reader) (wrong string, n int64, cut error) {
	v := verifier{want: c}
	_, cut = io.Copy(&v, r)
	switch {
	case v.bad != "":
		return v.bad, v.off, cut
	case cut == nil && v.off != c.size:
		return fmt.Sprintf("%d bytes instead of %d, %s", v.off, c.size, looksWhole), v.off, nil
	}
	return "", v.off, cut
}
