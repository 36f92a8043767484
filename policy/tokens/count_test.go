package tokens

import "testing"

// The parts of a count are all of it, each once.
func TestThePartsOfACount(t *testing.T) {
	c := Count{Input: 1, Cached: 20, Output: 300}
	names, sum := map[string]int64{}, int64(0)
	for p := range NumParts {
		names[p.String()] = c.Of(p)
		sum += c.Of(p)
	}
	if names["input"] != 1 || names["cached"] != 20 || names["output"] != 300 || sum != 321 || c.Total() != sum {
		t.Errorf("%v, %d in all", names, c.Total())
	}
	if NumParts.String() != "invalid" || c.Of(NumParts) != 0 {
		t.Error("a part outside the set has a name or a number")
	}
	if !c.Any() || !(Count{Cached: 1}).Any() || (Count{}).Any() {
		t.Error("whether anything was used")
	}
}

func TestTheNamesOfFates(t *testing.T) {
	for fate, want := range map[Fate]string{Delivered: "delivered", Wasted: "wasted", Retried: "retried", NumFates: "invalid", NumFates + 1: "invalid"} {
		if got := fate.String(); got != want {
			t.Errorf("%d: %s, want %s", fate, got, want)
		}
	}
}
