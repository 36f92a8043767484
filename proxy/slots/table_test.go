package slots

import (
	"testing"
	"time"
)

func TestTheFirstClientAlwaysHasRoom(t *testing.T) {
	table := New(0, 10)
	one, ok := table.Take(100)
	if !ok {
		t.Fatal("the first client got no slot")
	}
	if _, ok := table.Take(1); ok {
		t.Error("a second newcomer did")
	}
	if !table.TryCharge(&one, 200) {
		t.Error("the only client cannot be charged more")
	}
	table.Release(&one)
	if _, ok := table.Take(10); !ok || !table.UnderPressure() {
		t.Error("a slot was not released")
	}
}

// What is charged is what is used, and newcomers do not take the room of those that are served.
func TestClientsAreChargedByStage(t *testing.T) {
	table := New(0, 120)
	take := func() (all []*Slot) {
		for {
			s, ok := table.Take(10)
			if !ok {
				return all
			}
			all = append(all, &s)
		}
	}
	first := take()
	if len(first) != 3 || !table.ShortOfMemory(10) {
		t.Fatalf("%d newcomers", len(first))
	}
	for _, s := range first {
		if !table.TryCharge(s, 40) {
			t.Error("newcomers took the room of those that are served")
		}
	}
	second := take()
	if len(second) != 3 {
		t.Errorf("%d newcomers beside a full table", len(second))
	}
	for len(table.Freed()) > 0 {
		<-table.Freed()
	}
	if table.TryCharge(second[0], 30) {
		t.Error("charged beyond the memory")
	}
	table.Charge(first[0], 2) // parked
	if len(table.Freed()) == 0 {
		t.Error("nobody is woken for the memory of a parked client")
	}
	if !table.TryCharge(second[0], 38) || table.TryCharge(first[0], 3) || !table.TryCharge(first[1], 40) {
		t.Error("freed memory is not used, or twice")
	}
}

func TestSlotsAreCounted(t *testing.T) {
	table := New(4, 0)
	var all []Slot
	for range 4 {
		s, ok := table.Take(0)
		if !ok {
			t.Fatal("no slot")
		}
		all = append(all, s)
	}
	if _, ok := table.Take(0); ok || !table.Short() || table.Plentiful() || table.UnderPressure() {
		t.Error("wrong state of a full table")
	}
	table.Release(&all[0])
	if table.Short() {
		t.Error("three of four are short")
	}
	table.Release(&all[1])
	if !table.Plentiful() {
		t.Error("two of four are not plentiful")
	}
}

func TestAQuarterIsKeptForRequestsWithoutBody(t *testing.T) {
	for _, tc := range []struct {
		most   int
		memory int64
		want   int
	}{{0, 0, 0}, {100, 0, 75}, {0, 4000, 30}, {100, 4000, 30}, {8, 4000, 6}, {2, 0, 2}, {0, 10, 1}} {
		if got := New(tc.most, tc.memory).MostUploads(100); got != tc.want {
			t.Errorf("%d clients, %d bytes: %d uploads, want %d", tc.most, tc.memory, got, tc.want)
		}
	}
}

func TestProgress(t *testing.T) {
	var p Progress
	p.Begin(time.Second)
	for _, step := range []struct {
		at    time.Duration
		moved uint64
		want  float64
	}{
		{time.Second, 50, 500}, // as if over the shortest time
		{2 * time.Second, 100, 100},
		{11 * time.Second, 1000, 100},
		{31 * time.Second, 3000, 100}, // measured anew from here
		{32 * time.Second, 3001, 1},
		{41 * time.Second, 3010, 1},
	} {
		if got := p.Rate(step.moved, step.at); got != step.want {
			t.Errorf("after %v: %v bytes per second, want %v", step.at, got, step.want)
		}
	}
}
