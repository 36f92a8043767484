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

func whole(c content) []byte {
	b, _ := io.ReadAll(c.open())
	return b
}

func TestAContentIsWrittenInPieces(t *testing.T) {
	c := content{1, 2, responseSide, 1000}
	var plain, chunked bytes.Buffer
	err := errors.Join(c.write(&plain, 997, 100, false, false, false), c.write(&chunked, 1000, 300, true, true, true))
	if all := whole(c); err != nil || len(all) != 1000 || !bytes.Equal(plain.Bytes(), all[:997]) {
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
	base := whole(content{1, 2, responseSide, 64})
	for name, c := range map[string]content{"seed": {9, 2, responseSide, 64}, "request": {1, 3, responseSide, 64}, "side": {1, 2, requestSide, 64}, "attempt": {1, 2, responseSide + 1, 64}} {
		if bytes.Equal(whole(c), base) {
			t.Errorf("another %s gives the same content", name)
		}
	}
}

func TestEveryChangeOfABodyIsFound(t *testing.T) {
	c := content{1, 2, requestSide, 10000}
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
		"of another":      {bytes.NewReader(whole(content{1, 3, requestSide, 10000})), "byte ", false},
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
