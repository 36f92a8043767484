package admission

import (
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

func TestSharingAsInSettings(t *testing.T) {
	for text, s := range map[string]Sharing{
		"": {}, "route": {Route: true}, "header:X-Key": {Header: "X-Key"}, "json:model": {Model: true},
		"header:X-Key,json:model": {Header: "X-Key", Model: true},
	} {
		if s.String() != text || s.None() != (text == "") || s.ByValue() != (s.Header != "" || s.Model) {
			t.Errorf("%q instead of %q; none: %v, by value: %v", s.String(), text, s.None(), s.ByValue())
		}
	}
}

// A request shares by each value that it has. Who needs all of them learns that one is missing.
func TestWhatRequestsShareBy(t *testing.T) {
	seed := [sha256.Size]byte{1}
	value := func(of [sha256.Size]byte, text string) [sha256.Size]byte { return Hash(of, []byte(text)) }
	with, without := "GET / HTTP/1.1\r\nHost: a\r\nX-Key: k\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	header, model := Sharing{Header: "X-Key"}, Sharing{Model: true}
	both := Sharing{Header: "X-Key", Model: true}
	for name, tc := range map[string]struct {
		by       Sharing
		request  string
		model    []byte
		want     [sha256.Size]byte
		complete bool
	}{
		"by nothing":                  {Sharing{}, with, []byte("m"), seed, true},
		"by route":                    {Sharing{Route: true}, with, []byte("m"), seed, true},
		"by header":                   {header, with, []byte("m"), value(seed, "k"), true},
		"by header, without it":       {header, without, nil, seed, false},
		"by model":                    {model, with, []byte("m"), value(seed, "m"), true},
		"by model, without it":        {model, with, nil, seed, false},
		"by both":                     {both, with, []byte("m"), value(value(seed, "k"), "m"), true},
		"by both, without the header": {both, without, []byte("m"), value(seed, "m"), false},
		"by both, without the model":  {both, with, nil, value(seed, "k"), false},
		"by both, with neither":       {both, without, nil, seed, false},
	} {
		r := &http1.Request{}
		if _, err := r.Parse([]byte(tc.request), http1.Limits{HeaderBytes: 1000, Headers: 10}); err != nil {
			t.Fatal(err)
		}
		if key, complete := tc.by.Key(seed, r, tc.model); key != binary.BigEndian.Uint64(tc.want[:]) || complete != tc.complete {
			t.Errorf("%s: %x, complete %v", name, key, complete)
		}
	}
}
