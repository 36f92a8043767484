package http1

import "testing"

func TestNameSetNeverHidesAName(t *testing.T) {
	for id := range nameCount {
		if s := NamesOf([]Field{{ID: Host}, {ID: id}}); !s.Has(id) || !s.Has(Host) {
			t.Errorf("%v is in no set %b", id, s)
		}
	}
}

func TestNameSetTellsTheNamesOfProxies(t *testing.T) {
	const first, last = ProxyConnection, ContentType
	for in := range nameCount {
		s := NamesOf([]Field{{ID: in}})
		for id := first; id <= last; id++ {
			if s.Has(id) != (id == in) {
				t.Errorf("%v in the set of %v: %v", id, in, s.Has(id))
			}
		}
	}
	if s := NamesOf(nil); s.HasAny(^NameSet(0)) {
		t.Errorf("no field, and %b", s)
	}
	if s := NamesOf([]Field{{ID: Via}}); !s.HasAny(1<<Via|1<<Host) || s.HasAny(1<<Host) {
		t.Errorf("Via, and %b", s)
	}
}
