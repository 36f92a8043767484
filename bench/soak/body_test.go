package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func allOf(c body) []byte {
	b, _ := io.ReadAll(c.open())
	return b
}

func TestAContentIsWrittenInPieces(t *testing.T) {
	c := body{seed: 1, id: 2, side: responseSide, size: 1000}
	var plain, chunked bytes.Buffer
	err := c.write(&plain, 997, 100)
	c.chunked, c.trailer = true, true
	err = errors.Join(err, c.write(&chunked, whole, 300))
	if all := allOf(c); err != nil || len(all) != 1000 || !bytes.Equal(plain.Bytes(), all[:997]) {
		t.Errorf("pieces do not make the part: %v", err)
	}
	res, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: "+fieldSum+"\r\n\r\n"), &chunked)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if wrong, n, cut := c.read(res.Body); wrong != "" || n != 1000 || cut != nil || res.Trailer.Get(fieldSum) != c.sum() {
		t.Errorf("chunks: %q, %d bytes, %v, trailer %v", wrong, n, cut, res.Trailer)
	}
}

func TestContentsDiffer(t *testing.T) {
	base := allOf(body{seed: 1, id: 2, side: responseSide, size: 64})
	for name, c := range map[string]body{"seed": {seed: 9, id: 2, side: responseSide, size: 64}, "request": {seed: 1, id: 3, side: responseSide, size: 64}, "side": {seed: 1, id: 2, side: requestSide, size: 64}, "attempt": {seed: 1, id: 2, side: responseSide + 1, size: 64}} {
		if bytes.Equal(allOf(c), base) {
			t.Errorf("another %s gives the same content", name)
		}
	}
}

func TestEveryChangeOfABodyIsFound(t *testing.T) {
	c := body{seed: 1, id: 2, side: requestSide, size: 10000}
	good := allOf(c)
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
		"of another":      {bytes.NewReader(allOf(body{seed: 1, id: 3, side: requestSide, size: 10000})), "byte ", false},
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
