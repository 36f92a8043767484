//go:build poison || race

package admission

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// dropped makes the test receive the tickets that are dropped.
func dropped(t *testing.T) <-chan string {
	t.Helper()
	places := make(chan string, 10)
	was := onDrop
	onDrop = func(p *place) { places <- p.String() }
	t.Cleanup(func() { onDrop = was })
	return places
}

// takeAndForget is the place that a panic has to name.
func takeAndForget(t *testing.T, h *house) { h.take(t) }

func TestATicketThatIsDroppedIsFound(t *testing.T) {
	places := dropped(t)
	takeAndForget(t, newHouse(t))
	for range 100 {
		runtime.GC()
		select {
		case place := <-places:
			if !strings.Contains(place, "takeAndForget") || !strings.Contains(place, "watch_test.go") {
				t.Errorf("it was taken elsewhere:\n%s", place)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
	t.Error("nobody found it")
}

func TestATicketThatIsTakenTwiceIsFound(t *testing.T) {
	places := dropped(t)
	h := newHouse(t)
	ticket := h.take(t)
	ticket.Reserve(&h.terms)
	select {
	case <-places:
	default:
		t.Error("it was taken over the other")
	}
	ticket.Return(h.clock.Now())
	for range 10 { // it is found once, although nothing points to it any more
		runtime.GC()
		select {
		case <-places:
			t.Error("it was found again")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestATicketIsSettledOnce(t *testing.T) {
	h := newHouse(t)
	ticket := h.take(t)
	other := *ticket
	ticket.Return(h.clock.Now())
	for name, settle := range map[string]func(){
		"the same":   func() { ticket.Return(h.clock.Now()) },
		"a copy":     func() { other.Return(h.clock.Now()) },
		"never open": func() { new(Ticket).Return(h.clock.Now()) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: settled twice", name)
				}
			}()
			settle()
		}()
	}
}
