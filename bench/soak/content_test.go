package main

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func whole(c content) []byte {
	b := make([]byte, c.size)
	c.fill(b, 0)
	return b
}

func TestAnyPartOfAContentIsThatOfTheWhole(t *testing.T) {
	c := newContent(1, 2, responseSide, 1000)
	all := whole(c)
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		from := r.Int64N(c.size)
		part := make([]byte, r.Int64N(c.size-from+1))
		c.fill(part, from)
		if !bytes.Equal(part, all[from:from+int64(len(part))]) {
			t.Fatalf("%d bytes from %d differ from the whole", len(part), from)
		}
	}
	var joined []byte
	err := c.pieces(3, 997, 100, func(p []byte) error { joined = append(joined, p...); return nil })
	if err != nil || !bytes.Equal(joined, all[3:997]) {
		t.Errorf("pieces do not make the part: %v", err)
	}
}

func TestContentsDiffer(t *testing.T) {
	base := whole(newContent(1, 2, responseSide, 64))
	for name, c := range map[string]content{
		"seed": newContent(9, 2, responseSide, 64), "request": newContent(1, 3, responseSide, 64),
		"side": newContent(1, 2, requestSide, 64), "attempt": newContent(1, 2, responseSide+1, 64),
	} {
		if bytes.Equal(whole(c), base) {
			t.Errorf("another %s gives the same content", name)
		}
	}
}

func TestEveryChangeOfABodyIsFound(t *testing.T) {
	c := newContent(1, 2, requestSide, 10000)
	good := whole(c)
	changed := bytes.Clone(good)
	changed[9001] ^= 1
	tests := map[string]struct {
		body  io.Reader
		wrong string
		cut   bool
	}{
		"as sent":         {bytes.NewReader(good), "", false},
		"byte by byte":    {iotest.OneByteReader(bytes.NewReader(good)), "", false},
		"a byte changed":  {bytes.NewReader(changed), "byte 9001 ", false},
		"too short":       {bytes.NewReader(good[:9999]), "9999 bytes instead of 10000", false},
		"too long":        {bytes.NewReader(append(bytes.Clone(good), 'x')), "more than the 10000", false},
		"of another":      {bytes.NewReader(whole(newContent(1, 3, requestSide, 10000))), "byte ", false},
		"cut":             {io.MultiReader(bytes.NewReader(good[:77]), iotest.ErrReader(errors.New("reset"))), "", true},
		"cut and changed": {io.MultiReader(bytes.NewReader(changed[:9500]), iotest.ErrReader(errors.New("reset"))), "byte 9001 ", true},
	}
	for name, tt := range tests {
		wrong, _, cut := c.read(tt.body)
		if (wrong == "") != (tt.wrong == "") || !strings.Contains(wrong, tt.wrong) || (cut != nil) != tt.cut {
			t.Errorf("%s: %q, cut %v", name, wrong, cut)
		}
	}
}
