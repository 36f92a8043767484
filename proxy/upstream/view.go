package upstream

import (
	"slices"
	"sort"
)

// view is whom to choose from, at one moment. It is never changed.
type view struct {
	members []*Member // all, by priority
	usable  []*Member // those that requests go to
	sums    []uint32  // of the usable ones' weights, each with those before it; nil where all weigh the same
}

// newView: of SRV records the lowest priority that can be reached is used (RFC
// 2782), which is one of whose members at most half are ejected. Where there is
// none the evidence is against what they share rather than against each, and
// requests crowded on the rest would bring that down too: all of the first
// priority are used (the panic threshold; Envoy's is 50 % as well).
// nil: there is no member.
func newView(all []*Member) *view {
	if len(all) == 0 {
		return nil
	}
	v := &view{members: slices.Clone(all)}
	slices.SortStableFunc(v.members, func(a, b *Member) int { return int(a.priority) - int(b.priority) })
	for rest := v.members; len(rest) > 0 && v.usable == nil; {
		level := rest[:sameLevel(rest)]
		rest = rest[len(level):]
		fit := slices.DeleteFunc(slices.Clone(level), func(m *Member) bool { return m.ejected() })
		if 2*len(fit) >= len(level) {
			v.usable = fit
		}
	}
	if v.usable == nil {
		v.usable = v.members[:sameLevel(v.members)]
	}
	v.weigh()
	return v
}

// sameLevel is how many at the beginning have one priority.
func sameLevel(by []*Member) int {
	n := slices.IndexFunc(by, func(m *Member) bool { return m.priority != by[0].priority })
	if n < 0 {
		return len(by)
	}
	return n
}

func (v *view) weigh() {
	if !slices.ContainsFunc(v.usable, func(m *Member) bool { return m.weight != v.usable[0].weight }) {
		return
	}
	sum := uint32(0)
	for _, m := range v.usable {
		sum += m.weight
		v.sums = append(v.sums, sum)
	}
}

// choose gives the less busy one of two, another than avoid where there is one.
func (v *view) choose(avoid string, random func(uint32) uint32) *Member {
	if len(v.usable) == 1 && v.usable[0].addr != avoid {
		return v.usable[0]
	}
	a := v.draw(avoid, nil, random)
	switch {
	case a == nil:
		return v.elsewhere(avoid)
	case v.sums != nil:
		// Drawn by weight both times, and possibly the same: while all are idle
		// the first counts, so that the weights hold for few requests too.
		b := v.draw(avoid, nil, random)
		if b.load()*int64(a.weight) < a.load()*int64(b.weight) {
			return b
		}
		return a
	}
	if b := v.draw(avoid, a, random); b != nil && b.load() < a.load() {
		return b
	}
	return a
}

// draw takes one at random; where it falls on one not wanted, the next counts.
// nil: there is no other.
func (v *view) draw(avoid string, not *Member, random func(uint32) uint32) *Member {
	n := len(v.usable)
	at := 0
	if v.sums != nil {
		r := random(v.sums[n-1])
		at = sort.Search(n, func(i int) bool { return v.sums[i] > r })
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

// elsewhere is for a repeat where only avoid is usable: a member in reserve that is not
// ejected, else avoid itself.
func (v *view) elsewhere(avoid string) *Member {
	for _, m := range v.members {
		if m.addr != avoid && !m.ejected() {
			return m
		}
	}
	return v.usable[0]
}

// order is whom to dial: first the chosen one, unless it is no member any more, then the other usable ones from a
// random one on, those in reserve, the ejected ones, and at last avoid.
func (v *view) order(first *Member, avoid string, random func(uint32) uint32) []*Member {
	if !slices.Contains(v.members, first) {
		first = v.choose(avoid, random)
	}
	all := append(make([]*Member, 0, len(v.members)), first)
	add := func(m *Member, wanted bool) {
		if wanted && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	start := int(random(uint32(len(v.usable))))
	for i := range v.usable {
		m := v.usable[(start+i)%len(v.usable)]
		add(m, m.addr != avoid)
	}
	for _, m := range v.members {
		add(m, m.addr != avoid && !m.ejected())
	}
	for _, m := range v.members {
		add(m, m.addr != avoid)
	}
	for _, m := range v.members {
		add(m, true)
	}
	return all
}
