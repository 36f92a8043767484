package buffer

import (
	"bytes"
	"runtime"
	"testing"
	"unsafe"

	"github.com/retryproxy/retryproxy/proxy/internal/poison"
)

// at returns where the content of h begins.
func at(h *Handle) *byte { return unsafe.SliceData(h.Bytes()) }

func TestABufferIsAsLargeAsWasAskedFor(t *testing.T) {
	for _, n := range []int{0, 1, Small, Small + 1, Medium, Medium + 1, Wide, Wide + 1, Large, Large + 1} {
		full, empty, exact := Get(n), GetEmpty(n), New(n)
		if full.Len() < n || full.Len() != full.Cap() || len(full.Bytes()) != full.Len() {
			t.Errorf("%d: length %d, capacity %d", n, full.Len(), full.Cap())
		}
		if empty.Len() != 0 || empty.Room() != full.Cap() || len(empty.Free()) != full.Cap() {
			t.Errorf("%d: an empty one has length %d, room %d", n, empty.Len(), empty.Room())
		}
		if exact.Len() != n || exact.Cap() != n {
			t.Errorf("%d: a new one has length %d, capacity %d", n, exact.Len(), exact.Cap())
		}
		full.Put()
		empty.Put()
		exact.Put()
	}
}

// A buffer that goes back is the next one of its size: who takes and returns one allocates nothing.
func TestABufferThatGoesBackIsUsedAgain(t *testing.T) {
	if poison.On {
		t.Skip("a watched buffer allocates")
	}
	runtime.GC() // twice, so that the pools are empty
	runtime.GC()
	var none *Cache
	var cache, full Cache
	for range 2 {
		small, medium := Get(Small), Get(Medium)
		full.Put(&small)
		full.Put(&medium)
	}
	var p parsed
	for _, n := range []int{Small, Medium, Wide, Large} {
		for name, use := range map[string]func(){
			"put":             func() { h := Get(n); h.Put() },
			"put to no cache": func() { h := Get(n); none.Put(&h) },
			"released":        func() { h := Get(n); cache.Put(&h); cache.Release() },
			"cached":          func() { h := full.Get(n); full.Put(&h) },
			"cache is full":   func() { h := Get(n); full.Put(&h) },
			"has to grow":     func() { h := GetEmpty(1); h.Grow(n); h.Put() },
			"spanned":         func() { var s Spanned[*parsed]; s.Get(nil, n); s.Put(nil, &p) },
			"replaced": func() {
				var s Spanned[*parsed]
				s.Get(nil, n)
				other := Get(n)
				s.Replace(&other, &p)
				s.Put(nil, &p)
			},
		} {
			allocs := testing.AllocsPerRun(1, func() {
				for range 50 {
					use()
				}
			})
			if allocs > 10 { // a collection may empty the pools in between

				t.Errorf("%d bytes, %s: 50 times: %v allocations", n, name, allocs)
			}
		}
	}
}

func TestAHandleHasItsBufferUntilItGoesBackOrMoves(t *testing.T) {
	for name, tc := range map[string]struct {
		make func() Handle
		owns bool
	}{
		"none":                   {func() Handle { return Handle{} }, false},
		"of a pool":              {func() Handle { return Get(Small) }, true},
		"of no pool":             {func() Handle { return New(3) }, true},
		"a clone":                {func() Handle { return Clone([]byte("abc")) }, true},
		"a clone of none":        {func() Handle { return Clone(nil) }, false},
		"a clone without a byte": {func() Handle { return Clone([]byte{}) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := tc.make()
			if h.Owns() != tc.owns {
				t.Fatal(h.Owns())
			}
			was := at(&h)
			other := h.Take()
			if h.Owns() || h.Len() != 0 || h.Cap() != 0 || h.Bytes() != nil {
				t.Error("it has a buffer that was taken")
			}
			if other.Owns() != tc.owns || at(&other) != was {
				t.Error("the buffer did not move")
			}
			other.Put()
			if other.Owns() || other.Bytes() != nil {
				t.Error("it has a buffer that went back")
			}
			other.Put()
		})
	}
}

func TestTheContentIsWhatWasWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(h *Handle)
		want string
	}{
		"appended":            {func(h *Handle) { h.Append([]byte("def")) }, "abcdef"},
		"appended by others":  {func(h *Handle) { h.Appended(append(h.Bytes(), "def"...)) }, "abcdef"},
		"written behind":      {func(h *Handle) { h.Resize(3 + copy(h.Free(), "def")) }, "abcdef"},
		"cut":                 {func(h *Handle) { h.Resize(1) }, "a"},
		"without its begin":   {func(h *Handle) { h.Drop(2) }, "c"},
		"without all":         {func(h *Handle) { h.Drop(3) }, ""},
		"wiped":               {func(h *Handle) { h.Wipe() }, ""},
		"moved to a larger":   {func(h *Handle) { h.Grow(Small) }, "abc"},
		"appended and larger": {func(h *Handle) { h.Append(make([]byte, Medium)) }, "abc" + string(make([]byte, Medium))},
	} {
		t.Run(name, func(t *testing.T) {
			h := GetEmpty(Small)
			defer h.Put()
			h.Append([]byte("abc"))
			if tc.do(&h); string(h.Bytes()) != tc.want || h.Len() != len(tc.want) {
				t.Errorf("%.20q", h.Bytes())
			}
			if h.Expand(); h.Len() != h.Cap() || h.Len() < Small || string(h.Bytes()[:len(tc.want)]) != tc.want {
				t.Errorf("expanded to %d bytes", h.Len())
			}
		})
	}
}

func TestGrowKeepsTheBytes(t *testing.T) {
	h := GetEmpty(Small)
	h.Append([]byte("abc"))
	was := at(&h)
	if h.Room() != Small-3 {
		t.Errorf("room for %d", h.Room())
	}
	if h.Grow(Small - 3); at(&h) != was {
		t.Error("it moved although there was room")
	}
	if h.Append(make([]byte, Small-3)); at(&h) != was || h.Room() != 0 {
		t.Error("what has just room is appended elsewhere")
	}
	h.Resize(3)
	if h.Grow(Small); string(h.Bytes()) != "abc" || h.Room() < Small {
		t.Errorf("%q with room for %d", h.Bytes(), h.Room())
	}
	h.Resize(1)
	if h.Grow(Large - 1); h.Cap() != Large {
		t.Errorf("what the largest pool has room for moved to %d bytes", h.Cap())
	}
	h.Expand()
	h.Grow(Large)
	h.Expand()
	before := h.Cap()
	if h.Grow(1); h.Cap() < 2*before {
		t.Error("beyond the largest pool it grows by less than its size, so that many small pieces are copied often")
	}
	h.Put()
}

// What append had to move elsewhere is the content, and the buffer that it was in is not lost.
func TestABufferGoesBackWhenItsContentWasMoved(t *testing.T) {
	h := GetEmpty(Small)
	was := h.Free()
	h.Appended(append(h.Bytes(), make([]byte, Small+1)...))
	if h.Len() != Small+1 || at(&h) == unsafe.SliceData(was) {
		t.Error("the content is", h.Len())
	}
	if poison.On && was[0] != 0xA5 {
		t.Error("the old buffer did not go back")
	}
	h.Put()
}

// What points into a buffer that went back, or was wiped, is seen in a build that poisons.
func TestABufferIsOverwritten(t *testing.T) {
	if !poison.On {
		t.Skip("in builds that poison")
	}
	var c Cache
	defer c.Release()
	for name, end := range map[string]func(h *Handle){
		"given back":          (*Handle).Put,
		"given back to cache": c.Put,
		"wiped":               (*Handle).Wipe,
	} {
		h := GetEmpty(Small)
		h.Append([]byte("abc"))
		span := h.Bytes()
		if end(&h); bytes.Equal(span, []byte("abc")) {
			t.Error(name)
		}
		h.Put()
	}
}

// A cache returns what was put into it, and nothing twice.
func TestACacheHasEachBufferOnce(t *testing.T) {
	var c Cache
	a, b, m, other := Get(Small), Get(Small), Get(Medium), Get(Small)
	atA, atB, atM := at(&a), at(&b), at(&m)
	c.Put(&a)
	c.Put(&b)
	c.Put(&m)
	c.Put(&other) // goes to the pool
	if a.Owns() || b.Owns() || m.Owns() || other.Owns() {
		t.Fatal("a Handle has a buffer that it gave away")
	}
	x, y, z := c.Get(Small), c.Get(Small), c.Get(Medium)
	if at(&x) == at(&y) || at(&x) != atA && at(&x) != atB || at(&y) != atA && at(&y) != atB || at(&z) != atM {
		t.Error("it returned other buffers than it had")
	}
	if c != (Cache{}) {
		t.Error("it still has what it returned")
	}
	c.Put(&x)
	c.Put(&z)
	if c.Release(); c != (Cache{}) {
		t.Error("it has buffers after Release")
	}
	y.Put()
	c.Put(&y) // none
	if c != (Cache{}) {
		t.Error("it has a buffer that is none")
	}
}

// A cache serves each size from what it has of that size, whatever else it has or lacks.
func TestACacheReturnsTheSizeThatIsAskedFor(t *testing.T) {
	for _, has := range [][]int{nil, {Small}, {Small, Small}, {Medium}, {Small, Medium}, {Small, Small, Medium}, {Medium, Medium}, {Wide}, {Large}} {
		for _, n := range []int{1, Small, Small + 1, Medium, Medium + 1, Large} {
			var c Cache
			mine := map[*byte]bool{}
			kept, keeps := false, false
			for _, size := range has {
				h := Get(size)
				mine[at(&h)] = true
				kept = kept || size == Small && n <= Small || size == Medium && n > Small && n <= Medium
				keeps = keeps || size <= Medium
				c.Put(&h)
			}
			if keeps != (c != Cache{}) {
				t.Errorf("it keeps some of %d: %v", has, !keeps)
			}
			h := c.Get(n)
			if h.Len() < n || h.Len() > 4*max(n, Small) {
				t.Errorf("%d bytes for %d with %d", h.Len(), n, has)
			}
			if kept && !mine[at(&h)] {
				t.Errorf("%d came from elsewhere than the cache with %d", n, has)
			}
			h.Put()
			if c.Release(); c != (Cache{}) {
				t.Errorf("it has buffers after Release, of %d", has)
			}
		}
	}
}

func TestNoCacheIsThePools(t *testing.T) {
	var none *Cache
	h := none.Get(Medium)
	if h.Len() != Medium {
		t.Error(h.Len())
	}
	none.Put(&h)
	if h.Owns() {
		t.Error("it did not go back")
	}
}

// parsed points into a buffer, as parsed headers do.
type parsed struct {
	span     []byte
	detached int
	sticky   bool // it does not let go
}

func (p *parsed) Detach() {
	if p.detached++; !p.sticky {
		p.span = nil
	}
}

func (p *parsed) CheckDetached(b []byte) { MustNotPointInto(b, "the span", p.span) }

// take returns a buffer with bytes into which p points.
func take(p *parsed) *Spanned[*parsed] {
	s := new(Spanned[*parsed])
	s.Get(nil, Small)
	p.span = s.Bytes()[2:4]
	return s
}

func TestABufferWithSpansGoesBackDetached(t *testing.T) {
	var c Cache
	defer c.Release()
	for name, tc := range map[string]struct {
		do   func(s *Spanned[*parsed], p *parsed)
		owns bool
		cap  int
	}{
		"put":            {func(s *Spanned[*parsed], p *parsed) { s.Put(nil, p) }, false, 0},
		"put to a cache": {func(s *Spanned[*parsed], p *parsed) { s.Put(&c, p) }, false, 0},
		"grown":          {func(s *Spanned[*parsed], p *parsed) { s.Grow(Small, p) }, true, Medium},
		"replaced": {func(s *Spanned[*parsed], p *parsed) {
			p.Detach()
			other := Get(Wide)
			s.Replace(&other, p)
		}, true, Wide},
	} {
		t.Run(name, func(t *testing.T) {
			var p parsed
			s := take(&p)
			copy(s.Bytes(), "abcdef")
			tc.do(s, &p)
			if p.span != nil || p.detached == 0 {
				t.Error("the span was not cleared")
			}
			if s.Owns() != tc.owns || s.Cap() != tc.cap {
				t.Error(s.Owns(), s.Cap())
			}
			if name == "grown" && string(s.Bytes()[:6]) != "abcdef" {
				t.Errorf("%q", s.Bytes()[:6])
			}
			s.Put(nil, &p)
		})
	}
}

// A span points into a buffer from its first byte to its last, and an empty one nowhere.
func TestWhatPointsIntoABuffer(t *testing.T) {
	all := make([]byte, 30)
	b := all[10:15:20]
	for name, tc := range map[string]struct {
		span []byte
		into bool
	}{
		"all":            {b, true},
		"the first byte": {all[10:11], true},
		"unused room":    {all[15:16], true},
		"the last byte":  {all[19:20], true},
		"before":         {all[9:10], false},
		"behind":         {all[20:21], false},
		"elsewhere":      {make([]byte, 3), false},
		"none":           {nil, false},
		"empty":          {all[12:12], false},
	} {
		found := func() (did bool) {
			defer func() { did = recover() != nil }()
			MustNotPointInto(b, name, tc.span)
			return false
		}()
		if found != tc.into {
			t.Errorf("%s: %v", name, found)
		}
	}
}

func TestAMovedBufferKeepsItsSpans(t *testing.T) {
	var p parsed
	s := take(&p)
	copy(s.Bytes(), "abcdef")
	var to Spanned[*parsed]
	h := s.Take()
	to.Hold(&h)
	if s.Owns() || h.Owns() || p.detached > 0 || string(p.span) != "cd" || string(to.Bytes()[:6]) != "abcdef" {
		t.Errorf("%q in %q", p.span, to.Bytes()[:6])
	}
	to.Put(nil, &p)
}
