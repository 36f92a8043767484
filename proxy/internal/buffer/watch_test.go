//go:build poison || race

package buffer

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// receiveDropped makes the test receive the buffers that are dropped.
func receiveDropped(t *testing.T) <-chan string {
	t.Helper()
	places := make(chan string, 100)
	note := func(p *place) { places <- p.String() }
	onDrop.Store(&note)
	t.Cleanup(func() {
		for range 3 { // those that are to be dropped are dropped before
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		onDrop.Store(nil)
	})
	return places
}

// getAndForget is the place that a panic has to name.
func getAndForget(do func()) { do() }

func TestABufferThatIsDroppedIsFound(t *testing.T) {
	for name, drop := range map[string]func(){
		"of a pool":   func() { _ = Get(Small) },
		"of no pool":  func() { _ = New(100) },
		"a clone":     func() { _ = Clone([]byte("abc")) },
		"taken":       func() { h := Get(Small); _ = h.Take() },
		"moved":       func() { h := GetEmpty(Small); h.Append(make([]byte, Medium)) },
		"overwritten": func() { h := Get(Small); h = Get(Small); h.Put() },
		"spanned":     func() { take(new(parsed)) },
		"in a cache":  func() { var c Cache; h := Get(Small); c.Put(&h) },
		"medium":      func() { var c Cache; h := Get(Medium); c.Put(&h) },
		"left beside": func() { c := both(); h := c.Get(Medium); h.Put() },
		"left behind": func() { c := both(); h := c.Get(Small); h.Put() },
		"left second": func() {
			var c Cache
			h, o := Get(Small), Get(Small)
			c.Put(&h)
			c.Put(&o)
			last := c.Get(Small)
			last.Put()
		},
	} {
		t.Run(name, func(t *testing.T) {
			places := receiveDropped(t)
			getAndForget(drop)
			for range 100 {
				runtime.GC()
				select {
				case place := <-places:
					if !strings.Contains(place, "getAndForget") || !strings.Contains(place, "watch_test.go") {
						t.Errorf("it was taken elsewhere:\n%s", place)
					}
					return
				case <-time.After(time.Millisecond):
				}
			}
			t.Error("nobody found it")
		})
	}
}

// both returns a cache with a buffer of each size.
func both() *Cache {
	c := new(Cache)
	small, medium := Get(Small), Get(Medium)
	c.Put(&small)
	c.Put(&medium)
	return c
}

func TestABufferThatGoesBackIsNotDropped(t *testing.T) {
	places := receiveDropped(t)
	for _, use := range []func(){
		func() { h := Get(Small); h.Put() },
		func() { h := Get(Small); o := h.Take(); o.Put() },
		func() { h := GetEmpty(Small); h.Append(make([]byte, Large)); h.Wipe(); h.Put() },
		func() {
			var c Cache
			h := Get(Medium)
			c.Put(&h)
			o := c.Get(Medium)
			c.Put(&o)
			c.Release()
		},
		func() { p := new(parsed); take(p).Put(nil, p) },
		func() { // a cache that has returned all
			c := both()
			s, m := c.Get(Small), c.Get(Medium)
			s.Put()
			m.Put()
		},
		func() {
			c := both()
			m, s := c.Get(Medium), c.Get(Small)
			s.Put()
			m.Put()
		},
	} {
		use()
	}
	for range 3 {
		runtime.GC()
	}
	select {
	case place := <-places:
		t.Error("one was:\n", place)
	case <-time.After(10 * time.Millisecond):
	}
}

// copyOf returns a copy of h, as a mistake that go vet does not see.
func copyOf(h *Handle) (c Handle) {
	c.b, c.watch = h.b, h.watch
	return Handle{b: c.b, watch: c.watch}
}

func TestACopyOfAHandleIsFound(t *testing.T) {
	for name, use := range map[string]func(c *Handle){
		"goes back":       (*Handle).Put,
		"goes to a cache": func(c *Handle) { new(Cache).Put(c) },
		"is taken":        func(c *Handle) { _ = c.Take() },
		"is read":         func(c *Handle) { _ = c.Bytes() },
		"grows":           func(c *Handle) { c.Grow(1) },
		"gets more":       func(c *Handle) { c.Appended(c.b[:1]) },
		"is wiped":        (*Handle).Wipe,
	} {
		for ended, end := range map[string]func(h *Handle){
			"was put":   (*Handle).Put,
			"was taken": func(h *Handle) { o := h.Take(); o.Put() },
		} {
			h := Get(Small)
			c := copyOf(&h)
			end(&h)
			if !panics(func() { use(&c) }) {
				t.Errorf("a copy %s after the buffer %s", name, ended)
			}
		}
	}
}

// Another buffer than the one that is held is found before it is dropped.
func TestABufferInPlaceOfAnotherIsFound(t *testing.T) {
	receiveDropped(t) // the buffers stay with nobody
	for name, do := range map[string]func(s *Spanned[*parsed]){
		"got":        func(s *Spanned[*parsed]) { s.Get(nil, Small) },
		"held":       func(s *Spanned[*parsed]) { h := New(1); s.Hold(&h) },
		"held whole": func(s *Spanned[*parsed]) { h := New(1); s.HoldAll(&h) },
	} {
		s := take(new(parsed))
		if !panics(func() { do(s) }) {
			t.Error(name)
		}
	}
}

// A span that was forgotten is found when its buffer goes back, not when it is read.
func TestASpanThatIsLeftIsFound(t *testing.T) {
	receiveDropped(t) // the buffers stay with nobody
	for name, do := range map[string]func(s *Spanned[*parsed], p *parsed){
		"put":   func(s *Spanned[*parsed], p *parsed) { s.Put(nil, p) },
		"grown": func(s *Spanned[*parsed], p *parsed) { s.Grow(Small, p) },
		"replaced": func(s *Spanned[*parsed], p *parsed) {
			other := New(1)
			defer other.Put()
			s.Replace(&other, p)
		},
	} {
		if !panics(func() {
			p := &parsed{sticky: true}
			do(take(p), p)
		}) {
			t.Error(name)
		}
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}
