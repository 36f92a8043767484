package main

import (
	"testing"
	"time"
)

// What attackers count in their own process reaches the judge.
func TestATallyCrossesProcesses(t *testing.T) {
	var theirs, ours tally
	theirs.sent.Store(3)
	theirs.ended.Store(2)
	theirs.resets.Store(1)
	if err := ours.parse(theirs.String()); err != nil || ours.sent.Load() != 3 || ours.ended.Load() != 2 || ours.resets.Load() != 1 {
		t.Errorf("%v: %v", &ours, err)
	}
	if ours.parse("1 2") == nil {
		t.Error("a tally without a count passes")
	}
}

// The answer to an order is a tally.
func TestAnOccupationAnswersWithItsTally(t *testing.T) {
	o := occupation{name: "x", conns: 2, connection: func(*attacker) error { return nil }}
	got, err := o.attack("127.0.0.1:1 " + time.Millisecond.String())
	if err != nil || new(tally).parse(got) != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := o.attack("127.0.0.1:1 soon"); err == nil {
		t.Error("an order without a duration passes")
	}
}
