package queue

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// A Queue behaves like a slice.
func TestQueueAgainstASlice(t *testing.T) {
	type stander struct {
		ticket Ticket
		value  int
	}
	r := rand.New(rand.NewPCG(3, 4))
	for _, capacity := range []int{1, 2, 7, 100} {
		l := New[int](capacity)
		var want, left []stander
		gone := func(i int) {
			left = append(left, want[i])
			want = slices.Delete(want, i, i+1)
		}
		for step := range 20_000 {
			switch k := r.IntN(7); {
			case k < 3:
				ticket, out, dropped := l.Push(step)
				if dropped != (len(want) == capacity) || dropped && out != want[0].value {
					t.Fatalf("step %d: dropped %v %d of %v", step, dropped, out, want)
				}
				if dropped {
					gone(0)
				}
				want = append(want, stander{ticket, step})
			case k == 3:
				v, ok := l.Oldest()
				if ok != (len(want) > 0) || ok && v != want[0].value {
					t.Fatalf("step %d: oldest %d %v of %v", step, v, ok, want)
				}
				if ok {
					gone(0)
				}
			case k == 4:
				v, ok := l.Newest()
				if ok != (len(want) > 0) || ok && v != want[len(want)-1].value {
					t.Fatalf("step %d: newest %d %v of %v", step, v, ok, want)
				}
				if ok {
					gone(len(want) - 1)
				}
			case k == 5 && len(want) > 0:
				i := r.IntN(len(want))
				if !l.Remove(want[i].ticket) {
					t.Fatalf("step %d: %v is not in line", step, want[i])
				}
				gone(i)
			case k == 6 && len(left) > 0:
				if old := left[r.IntN(len(left))]; l.Remove(old.ticket) {
					t.Fatalf("step %d: %v left before, and was removed again", step, old)
				}
			}
			if l.Len() != len(want) {
				t.Fatalf("step %d: %d in line, want %d", step, l.Len(), len(want))
			}
		}
	}
}

// With Insert a queue is sorted, equal values in the order in which they came, and the first of
// them is dropped.
func TestInsertKeepsTheOrder(t *testing.T) {
	type stander struct{ at, step int }
	r := rand.New(rand.NewPCG(5, 6))
	for _, capacity := range []int{1, 2, 7, 100} {
		l := New[stander](capacity)
		var want []stander
		for step := range 5_000 {
			v := stander{step - r.IntN(50), step}
			i, _ := slices.BinarySearchFunc(want, v, func(a, b stander) int { return cmp.Or(cmp.Compare(a.at, b.at), -1) })
			want = slices.Insert(want, i, v)
			ticket, out, dropped := l.Insert(v, func(o stander) bool { return o.at <= v.at })
			if dropped != (len(want) > capacity) || dropped && out != want[0] {
				t.Fatalf("step %d: dropped %v %v of %v", step, dropped, out, want)
			}
			if dropped {
				want = want[1:]
			}
			if out == v && l.Remove(ticket) {
				t.Fatalf("step %d: a value that was dropped at once is in line", step)
			}
			if r.IntN(3) == 0 && out != v {
				i := slices.Index(want, v)
				if want = slices.Delete(want, i, i+1); !l.Remove(ticket) {
					t.Fatalf("step %d: %v is not in line", step, v)
				}
			}
			if first, ok := l.First(); l.Len() != len(want) || ok && first != want[0] {
				t.Fatalf("step %d: %d in line from %v, want %v", step, l.Len(), first, want)
			}
		}
		for _, v := range want {
			if got, _ := l.Oldest(); got != v {
				t.Fatalf("%v, want %v", got, v)
			}
		}
	}
}

func TestTheZeroTicketIsInNoQueue(t *testing.T) {
	l := New[string](0)
	if l.Remove(Ticket{}) {
		t.Error("removed by no ticket from an empty line")
	}
	l.Push("a")
	if l.Remove(Ticket{}) || l.Remove(Ticket{node: 5, generation: 1}) {
		t.Error("removed by a ticket that nobody got")
	}
}

func TestQueueKeepsNothingAlive(t *testing.T) {
	l := New[*int](4)
	ticket, _, _ := l.Push(new(int))
	l.Remove(ticket)
	for i := range l.nodes {
		if l.nodes[i].value != nil {
			t.Error("a value that left is still held")
		}
	}
}

func TestQueueDoesNotAllocateOnceGrown(t *testing.T) {
	l := New[int](100)
	for i := range 200 {
		l.Push(i)
	}
	if n := testing.AllocsPerRun(100, func() {
		ticket, _, _ := l.Push(1)
		l.Newest()
		l.Remove(ticket)
		l.Oldest()
		l.Push(2)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
