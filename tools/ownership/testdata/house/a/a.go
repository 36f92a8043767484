// Package a declares what package b writes.
package a

// T has fields that others write.
type T struct {
	N, Shared int
	S         []int
	Inner     Inner
}

type Inner struct{ In int }

// Outer embeds T.
type Outer struct{ T }

// SetN only assigns.
func (t *T) SetN(n int) { t.N = n }

// Began says what happened.
func (t *T) Began() { t.N++; t.Shared = 1 }

// Options are plain.
type Options struct{ A, B int }

// Wide has many exported fields.
type Wide struct{ A, B, C, D, E, F, G, H, I int }
