package upstream

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// pickerOf is a picker of endpoints of these weights, named a, b, c...
func pickerOf(weights ...uint32) *picker {
	var all []*Endpoint
	for i, weight := range weights {
		addr := string(rune('a' + i))
		all = append(all, &Endpoint{addr: addr, hash: KeyOf([]byte(addr)), weight: weight, pool: &Pool{}})
	}
	return newPicker(all)
}

func (p *picker) counts(n int, by func(i int) Choice) map[string]int {
	g, at := &Group{random: rand.Uint32N}, map[string]int{}
	for i := range n {
		at[p.choose(by(i), g).addr]++
	}
	return at
}

func TestRoundRobinTakesTurns(t *testing.T) {
	inTurn := func(int) Choice { return Choice{RoundRobin: true} }
	for n, want := range map[int]map[string]int{3: {"a": 1, "b": 1, "c": 1}, 300: {"a": 100, "b": 100, "c": 100}} {
		if got := pickerOf(1, 1, 1).counts(n, inTurn); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d requests: %v, want %v", n, got, want)
		}
	}
	got := pickerOf(1, 3).counts(400, inTurn)
	if got["a"] < 98 || got["a"] > 102 {
		t.Errorf("weights 1 and 3: %v", got)
	}
	g, v, last, longest, run := &Group{}, pickerOf(1, 3), "", 0, 0
	for range 400 {
		m := v.choose(Choice{RoundRobin: true}, g)
		if run++; m.addr != last {
			last, run = m.addr, 1
		}
		longest = max(longest, run)
	}
	if longest > 4 {
		t.Errorf("%d turns of one follow each other", longest)
	}
	if got := pickerOf(1, 1).counts(10, func(int) Choice { return Choice{RoundRobin: true, Avoid: "a"} }); got["b"] != 10 {
		t.Errorf("the one to avoid is chosen: %v", got)
	}
}

func TestAKeyStaysWithItsEndpoint(t *testing.T) {
	const keys = 3000
	byKey := func(i int) Choice { return Choice{Key: KeyOf(fmt.Append(nil, "user", i))} }
	before, g := pickerOf(1, 1, 1, 1), &Group{}
	for addr, n := range before.counts(keys, byKey) {
		if n < keys/4*85/100 || n > keys/4*115/100 {
			t.Errorf("%s has %d of %d keys", addr, n, keys)
		}
	}
	if got := pickerOf(1, 3).counts(keys, byKey); got["a"] < keys/4*85/100 || got["a"] > keys/4*115/100 {
		t.Errorf("weights 1 and 3: %v", got)
	}
	without := newPicker(before.endpoints[1:]) // "a" has gone
	for i := range keys {
		was, is := before.choose(byKey(i), g), without.choose(byKey(i), g)
		if was.addr != "a" && is != was {
			t.Fatalf("key %d moved from %s to %s", i, was.addr, is.addr)
		}
		c := byKey(i)
		c.Avoid = was.addr
		if again := before.choose(c, g); again == was || was.addr == "a" && again != is {
			t.Fatalf("key %d: the retry goes to %s, first %s, without a %s", i, again.addr, was.addr, is.addr)
		}
	}
	if only := pickerOf(1).choose(Choice{Key: 7, Avoid: "a"}, g); only.addr != "a" {
		t.Error("the only endpoint is not chosen")
	}
}
