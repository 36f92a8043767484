package tcptest

import (
	"io"
	"testing"
)

func TestThePairIsConnected(t *testing.T) {
	near, far := Pair(t)
	for _, ends := range [][2]io.ReadWriter{{near, far}, {far, near}} {
		var b [1]byte
		if _, err := ends[0].Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(ends[1], b[:]); err != nil || b[0] != 'x' {
			t.Errorf("%q, %v", b, err)
		}
	}
}
