package show

import (
	"bytes"
	"testing"
)

func TestProgressIsPlainWhenPiped(t *testing.T) {
	var b bytes.Buffer
	p := NewProgress(&b)
	p.Line("one")
	p.Line("two")
	p.End()
	p.Clear()
	p.Say("three")
	if got := b.String(); got != "one\ntwo\nthree\n" {
		t.Errorf("%q", got)
	}
	in := &Progress{w: &b, inPlace: true}
	b.Reset()
	in.Line("one")
	in.Line("two")
	in.Say("three")
	in.Line("four")
	in.Clear()
	if got := b.String(); got != "\r\x1b[Kone\r\x1b[Ktwo\nthree\n\r\x1b[Kfour\r\x1b[K" {
		t.Errorf("%q", got)
	}
}
