// Package b writes.
package b

import "example.com/house/a"

type own struct{ n int }

type deep struct {
	a struct{ b struct{ c struct{ d int } } }
}

func writes(t *a.T, o *a.Outer, opt *a.Options) *int {
	t.N = 1        // 1
	t.N++          // 2
	t.S[0] += 2    // 3
	o.N = 3        // 4, of T
	t.SetN(4)      // 5
	t.Inner.In = 5 // 6, of Inner
	opt.A = 6      // plain
	t.Began()      // says what happened
	t = &a.T{N: 7} // makes one
	var mine own
	mine.n = 8
	t.Shared = 9 // 7, the third file that writes it
	var d deep
	_ = d.a.b.c.d
	return &t.N // 8
}
