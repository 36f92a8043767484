package upstream

import (
	"slices"
	"sort"
)

// picker is whom to choose from, at one moment. It is never changed.
type picker struct {
	endpoints         []*Endpoint // all, by priority
	usable            []*Endpoint // those that requests go to
	cumulativeWeights []uint32    // of the usable ones' weights, each with those before it; nil where all weigh the same
}

// newPicker: of SRV records the lowest priority that can be reached is used (RFC
// 2782), which is one of whose endpoints at most half are ejected. Where there is
// none the evidence is against what they share rather than against each, and
// requests crowded on the rest would bring that down too: all of the first
// priority are used (the panic threshold; Envoy's is 50 % as well).
// nil: there is no endpoint.
func newPicker(all []*Endpoint) *picker {
	if len(all) == 0 {
		return nil
	}
	v := &picker{endpoints: slices.Clone(all)}
	slices.SortStableFunc(v.endpoints, func(a, b *Endpoint) int { return int(a.priority) - int(b.priority) })
	for rest := v.endpoints; len(rest) > 0 && v.usable == nil; {
		level := rest[:countSamePriority(rest)]
		rest = rest[len(level):]
		healthy := slices.DeleteFunc(slices.Clone(level), func(m *Endpoint) bool { return m.ejected() })
		if 2*len(healthy) >= len(level) {
			v.usable = healthy
		}
	}
	if v.usable == nil {
		v.usable = v.endpoints[:countSamePriority(v.endpoints)]
	}
	v.sumWeights()
	return v
}

// countSamePriority is how many at the beginning have one priority.
func countSamePriority(by []*Endpoint) int {
	n := slices.IndexFunc(by, func(m *Endpoint) bool { return m.priority != by[0].priority })
	if n < 0 {
		return len(by)
	}
	return n
}

func (v *picker) sumWeights() {
	if !slices.ContainsFunc(v.usable, func(m *Endpoint) bool { return m.weight != v.usable[0].weight }) {
		return
	}
	sum := uint32(0)
	for _, m := range v.usable {
		sum += m.weight
		v.cumulativeWeights = append(v.cumulativeWeights, sum)
	}
}

// pick gives the less busy one of two, another than avoid where there is one.
func (v *picker) pick(avoid string, random func(uint32) uint32) *Endpoint {
	if len(v.usable) == 1 && v.usable[0].addr != avoid {
		return v.usable[0]
	}
	a := v.pickRandom(avoid, nil, random)
	switch {
	case a == nil:
		return v.pickReserve(avoid)
	case v.cumulativeWeights != nil:
		// Drawn by weight both times, and possibly the same: while all are idle
		// the first counts, so that the weights hold for few requests too.
		b := v.pickRandom(avoid, nil, random)
		if b.load()*int64(a.weight) < a.load()*int64(b.weight) {
			return b
		}
		return a
	}
	if b := v.pickRandom(avoid, a, random); b != nil && b.load() < a.load() {
		return b
	}
	return a
}

// pickRandom takes one at random; where it falls on one not wanted, the next counts.
// nil: there is no other.
func (v *picker) pickRandom(avoid string, not *Endpoint, random func(uint32) uint32) *Endpoint {
	n := len(v.usable)
	at := 0
	if v.cumulativeWeights != nil {
		r := random(v.cumulativeWeights[n-1])
		at = sort.Search(n, func(i int) bool { return v.cumulativeWeights[i] > r })
	} else {
		at = int(random(uint32(n)))
	}
	for range n {
		if m := v.usable[at]; m != not && m.addr != avoid {
			return m
		}
		at = (at + 1) % n
	}
	return nil
}

// pickReserve is for a retry where only avoid is usable: a endpoint in reserve that is not
// ejected, else avoid itself.
func (v *picker) pickReserve(avoid string) *Endpoint {
	for _, m := range v.endpoints {
		if m.addr != avoid && !m.ejected() {
			return m
		}
	}
	return v.usable[0]
}

// dialOrder is whom to dial: first the chosen one, unless it is no endpoint any more, then the other usable ones from a
// random one on, those in reserve, the ejected ones, and at last avoid.
func (v *picker) dialOrder(first *Endpoint, avoid string, random func(uint32) uint32) []*Endpoint {
	if !slices.Contains(v.endpoints, first) {
		first = v.pick(avoid, random)
	}
	all := append(make([]*Endpoint, 0, len(v.endpoints)), first)
	add := func(m *Endpoint, wanted bool) {
		if wanted && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	start := int(random(uint32(len(v.usable))))
	for i := range v.usable {
		m := v.usable[(start+i)%len(v.usable)]
		add(m, m.addr != avoid)
	}
	for _, m := range v.endpoints {
		add(m, m.addr != avoid && !m.ejected())
	}
	for _, m := range v.endpoints {
		add(m, m.addr != avoid)
	}
	for _, m := range v.endpoints {
		add(m, true)
	}
	return all
}
