package slots

import (
	"testing"
	"time"
)

func TestTheFirstClientAlwaysHasRoom(t *testing.T) {
	table := New(0, 10)
	one := table.Take(100)
	if one == nil {
		t.Fatal("the first client got no slot")
	}
	if table.Take(1) != nil {
		t.Error("a second newcomer did")
	}
	if !table.TryCharge(one, 200, Request) {
		t.Error("the only client cannot be charged more")
	}
	table.Release(one)
	if table.Take(10) == nil || !table.UnderPressure() {
		t.Error("a slot was not released")
	}
}

// What is charged is what is used, and newcomers do not take the room of those that are served.
func TestClientsAreChargedByStage(t *testing.T) {
	table := New(0, 120)
	take := func() (all []*Slot) {
		for {
			s := table.Take(20)
			if s == nil {
				return all
			}
			all = append(all, s)
		}
	}
	first := take()
	if len(first) != 3 || !table.ShortOfMemory(20) {
		t.Fatalf("%d newcomers", len(first))
	}
	for _, s := range first {
		if !table.TryCharge(s, 40, Request) {
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
	if table.TryCharge(second[0], 30, Request) {
		t.Error("charged beyond the memory")
	}
	table.Charge(first[0], 2) // parked
	if len(table.Freed()) == 0 {
		t.Error("nobody is woken for the memory of a parked client")
	}
	if !table.TryCharge(second[0], 38, Request) || table.TryCharge(first[0], 3, Request) || !table.TryCharge(first[1], 40, Request) {
		t.Error("freed memory is not used, or twice")
	}
}

func TestSlotsAreCounted(t *testing.T) {
	table := New(4, 0)
	var all []*Slot
	for range 4 {
		s := table.Take(0)
		if s == nil {
			t.Fatal("no slot")
		}
		all = append(all, s)
	}
	if table.Take(0) != nil || !table.Short() || table.Plentiful() || table.UnderPressure() {
		t.Error("wrong state of a full table")
	}
	table.Release(all[0])
	if table.Short() {
		t.Error("three of four are short")
	}
	table.Release(all[1])
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
	p.Begin(0, time.Second)
	for _, step := range []struct {
		at    time.Duration
		moved uint64
		want  float64
	}{
		{time.Second, 50, 500}, // as if over the shortest time
		{2 * time.Second, 100, 100},
		{11 * time.Second, 1000, 100},
		{31 * time.Second, 3000, 100}, // measured from 11 s after this
		{32 * time.Second, 3100, 100},
		{41 * time.Second, 4000, 100}, // and from 31 s after this
		{51 * time.Second, 4000, 50},
		{61 * time.Second, 4000, 0},
	} {
		if got, _ := p.Rate(step.moved, step.at); got != step.want {
			t.Errorf("after %v: %v bytes per second, want %v", step.at, got, step.want)
		}
	}
}

// What was moved before the beginning does not count, whatever was measured before.
func TestProgressBeginsAnew(t *testing.T) {
	var p Progress
	for at := 10 * time.Second; at <= 30*time.Second; at += 10 * time.Second {
		p.Rate(1<<20, at)
	}
	p.Begin(1<<20, 31*time.Second)
	if rate, standing := p.Rate(1<<20+50, 32*time.Second); rate != 50 || standing != 50+credit {
		t.Errorf("%v bytes per second, standing %v", rate, standing)
	}
	if rate, _ := p.Rate(1<<20, 32*time.Second); rate != 0 {
		t.Errorf("%v bytes per second", rate)
	}
}

// A connection that has just come and moved nothing yet is not behind one that has had its time.
func TestTheOldestOfThoseThatMoveNothingIsBehind(t *testing.T) {
	var old, young, slow Progress
	young.Begin(0, 950*time.Millisecond)
	_, first := old.Rate(20, time.Second)
	_, second := young.Rate(0, time.Second)
	_, third := slow.Rate(2000, time.Second)
	if first >= third || third >= second {
		t.Errorf("%v, %v, %v", first, third, second)
	}
}

// The room of a client that is leaving is free before it is gone, once.
func TestWhoLeavesMakesRoomAtOnce(t *testing.T) {
	table := New(0, 100)
	old, young := table.Take(10), table.Take(10)
	table.Charge(old, 80)
	if table.TryCharge(young, 30, Request) {
		t.Fatal("charged beyond the memory")
	}
	if got := table.Leave(old); got != 80 || !table.TryCharge(young, 30, Request) {
		t.Errorf("%d bytes were freed", got)
	}
	if !table.TryCharge(old, 70, Request) || table.TryCharge(young, 31, Request) {
		t.Error("one that stays after all is not charged again")
	}
	table.Release(old)
	table.Charge(old, 10)
	if table.Leave(old) != 0 || table.served.Load() != 30 || table.clients.Load() != 1 {
		t.Error("a released slot is charged")
	}
}

// A moment at which nobody knows what a connection has moved counts as no progress, not as endless.
func TestProgressThatIsUnknownIsNone(t *testing.T) {
	var p Progress
	p.Begin(0, 0)
	for at := 10 * time.Second; at <= 40*time.Second; at += 10 * time.Second {
		p.Rate(uint64(at.Seconds())*1000, at)
	}
	if rate, standing := p.Rate(0, 41*time.Second); rate != 0 || standing > 1024 {
		t.Errorf("%v bytes per second, standing %v", rate, standing)
	}
	if rate, _ := p.Rate(41_000, 41*time.Second); rate != 1000 {
		t.Errorf("later %v bytes per second, want 1000", rate)
	}
}
