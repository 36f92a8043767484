package slots

import (
	"testing"
	"time"
)

// full returns a table without memory, a client that holds all of it, and n newcomers.
func full(t *testing.T, n int) (table *Table, holder *Slot, newcomers []*Slot) {
	t.Helper()
	table = New(0, 100)
	holder = table.Take(1)
	if !table.TryCharge(holder, 100, Request) {
		t.Fatal("the first client has no room")
	}
	for range n {
		newcomers = append(newcomers, table.Take(1))
	}
	return table, holder, newcomers
}

// Freed memory goes to requests before connections, and to the newest first.
func TestFreedMemoryGoesToTheLowestRankAndTheNewestFirst(t *testing.T) {
	table, holder, all := full(t, 6)
	var waits []*Waiter
	for i, rank := range []Rank{Connection, Newcomer, Upload, Request, Request} {
		waits = append(waits, table.Wait(all[i], 20, rank, 0))
	}
	for i, next := range []int{4, 3, 2, 1, 0} {
		if table.Charge(holder, int64(90-20*i)); waits[next].IsOver() {
			t.Errorf("%d got memory that was not there", next)
		}
		if table.Charge(holder, int64(80-20*i)); !waits[next].IsOver() || !waits[next].Charged() {
			t.Errorf("%d was not next", next)
		}
	}
	if table.Leave(all[0]) != 20 || !table.TryCharge(all[5], 20, Connection) {
		t.Error("who leaves frees nothing")
	}
}

// Nobody takes what a client of a lower rank waits for, however little it needs.
func TestWhatAClientWaitsForIsNotTakenByAHigherRank(t *testing.T) {
	table, holder, all := full(t, 3)
	w := table.Wait(all[0], 50, Request, 0)
	table.Charge(holder, 60)
	if w.IsOver() || table.TryCharge(all[1], 10, Connection) {
		t.Error("a connection took what a request waits for")
	}
	if !table.TryCharge(all[2], 10, Request) {
		t.Error("a request that needs less is not served")
	}
	second := table.Wait(all[1], 10, Connection, 0)
	if table.GiveUp(w) || w.Charged() || !second.IsOver() || !second.Charged() {
		t.Error("after it has given up, the next one is not charged")
	}
	if !table.GiveUp(second) {
		t.Error("it gave up what it had got")
	}
}

// What waits for memory makes way for newcomers, whose memory it holds.
func TestWhoWaitsLongestIsRejected(t *testing.T) {
	table, _, all := full(t, 4)
	served := all[3]
	table.Charge(served, 2)
	again := table.Wait(served, 20, Connection, 0)
	request, first, second := table.Wait(all[0], 20, Request, 0), table.Wait(all[1], 20, Connection, 0), table.Wait(all[2], 20, Connection, 0)
	if !table.Reject(Connection) || !first.IsOver() || first.Charged() || all[1].Cost() != 0 || second.IsOver() {
		t.Error("not the one that waits longest was rejected")
	}
	if !table.Reject(Connection) || table.Reject(Connection) || request.IsOver() || again.IsOver() {
		t.Error("a request, or one that holds no memory of newcomers, was rejected")
	}
}

// Who waited for its slot does not overtake those that came meanwhile, but only once.
func TestTheTimeInTheAcceptQueueCounts(t *testing.T) {
	table, holder, all := full(t, 1)
	old, young := table.TakeAfter(time.Second, 1), all[0]
	first := table.Wait(young, 20, Request, 5*time.Second)
	second := table.Wait(old, 20, Request, 5500*time.Millisecond)
	if table.Charge(holder, 80); !first.IsOver() || second.IsOver() {
		t.Error("a client that came earlier got the memory")
	}
	if table.Charge(holder, 60); !second.IsOver() {
		t.Error("the other one got nothing")
	}
	table.Charge(holder, 100)
	table.Charge(old, 0)
	table.Charge(young, 0)
	third, fourth := table.Wait(young, 20, Request, 6*time.Second), table.Wait(old, 20, Request, 6500*time.Millisecond)
	if table.Charge(holder, 80); third.IsOver() || !fourth.IsOver() {
		t.Error("the time in the queue counts twice")
	}
}
