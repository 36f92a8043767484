package http1

import "testing"

func TestHeaderNameSetNeverHidesAName(t *testing.T) {
	for id := range headerNameCount {
		if s := HeaderNamesOf([]Header{{ID: Host}, {ID: id}}); !s.Has(id) || !s.Has(Host) {
			t.Errorf("%v is in no set %b", id, s)
		}
	}
}

func TestHeaderNameSetDistinguishesProxyHeaders(t *testing.T) {
	const first, last = ProxyConnection, ContentType
	for in := range headerNameCount {
		s := HeaderNamesOf([]Header{{ID: in}})
		for id := first; id <= last; id++ {
			if s.Has(id) != (id == in) {
				t.Errorf("%v in the set of %v: %v", id, in, s.Has(id))
			}
		}
	}
	if s := HeaderNamesOf(nil); s.HasAny(^HeaderNameSet(0)) {
		t.Errorf("no field, and %b", s)
	}
	if s := HeaderNamesOf([]Header{{ID: Via}}); !s.HasAny(1<<Via|1<<Host) || s.HasAny(1<<Host) {
		t.Errorf("Via, and %b", s)
	}
}
