package wire

import (
	"bytes"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// FuzzBlock reads header blocks back by x/net's decoder: it finds the fields that were written.
func FuzzBlock(f *testing.F) {
	f.Add([]byte("GET"), []byte("/"), []byte("h.test"), true, uint16(200), []byte("Content-Type"), []byte("a/b"), int64(7))
	f.Add([]byte("PUT"), []byte("/?a"), []byte(""), false, uint16(207), bytes.Repeat([]byte("X-"), 100), bytes.Repeat([]byte("v"), 127+128), int64(-1))
	f.Fuzz(func(t *testing.T, method, target, authority []byte, secure bool, status uint16, name, value []byte, n int64) {
		code := 100 + int(status)%900
		block := AppendRequestLine(nil, method, target, authority, secure)
		block = AppendStatus(block, code)
		block = AppendHeader(Block, block, name, value)
		block = AppendInt(Block, block, "X-Number", n)
		scheme := "http"
		if secure {
			scheme = "https"
		}
		lower := string(appendLower(nil, name))
		want := []hpack.HeaderField{{Name: ":method", Value: string(method)}, {Name: ":scheme", Value: scheme}, {Name: ":path", Value: string(target)}}
		if len(authority) > 0 {
			want = append(want, hpack.HeaderField{Name: ":authority", Value: string(authority)})
		}
		want = append(want, hpack.HeaderField{Name: ":status", Value: strconv.Itoa(code)}, hpack.HeaderField{Name: lower, Value: string(value)},
			hpack.HeaderField{Name: "x-number", Value: strconv.FormatInt(n, 10)})
		got, err := hpack.NewDecoder(4096, nil).DecodeFull(block)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("% x:\n%q %v, want\n%q", block, got, err, want)
		}
	})
}
