package buffer

import "testing"

func TestABufferIsAsLargeAsWasAskedFor(t *testing.T) {
	for _, n := range []int{0, 1, Small, Small + 1, Medium, Medium + 1, Wide, Wide + 1, Large, Large + 1} {
		b := Get(n)
		if len(b) < n || len(b) != cap(b) {
			t.Errorf("%d: length %d, capacity %d", n, len(b), cap(b))
		}
		Put(b)
	}
	Put(nil)
	Put(make([]byte, 3)) // of no pool
}

func TestGrowKeepsTheBytes(t *testing.T) {
	b := append(Get(Small)[:0], "abc"...)
	if same := Grow(b, Small-3); &same[0] != &b[0] {
		t.Error("it moved although there was room")
	}
	b = Grow(b, Small)
	if string(b) != "abc" || cap(b)-len(b) < Small {
		t.Errorf("%q with room for %d", b, cap(b)-len(b))
	}
	b = Grow(b[:cap(b)], Large)
	if was := cap(b); cap(Grow(b[:was], 1)) < 2*was {
		t.Error("beyond the largest pool it grows by less than its size, so that many small pieces are copied often")
	}
}

// A cache returns what was put into it, and nothing twice.
func TestACacheHasEachBufferOnce(t *testing.T) {
	var c Cache
	a, b, m := Get(Small), Get(Small), Get(Medium)
	c.Put(a)
	c.Put(b)
	c.Put(m)
	c.Put(Get(Small)) // goes to the pool
	got := map[*byte]bool{}
	for range 2 {
		got[&c.Get(Small)[0]] = true
	}
	if !got[&a[0]] || !got[&b[0]] || &c.Get(Medium)[0] != &m[0] {
		t.Error("it returned other buffers than it had")
	}
	if c != (Cache{}) {
		t.Error("it still has what it returned")
	}
	c.Put(a)
	c.Put(m)
	if c.Release(); c != (Cache{}) {
		t.Error("it has buffers after Release")
	}
}
