package upstream

import (
	"hash/fnv"
	"math"
	"math/bits"
	"slices"
	"sort"
)

// picker is the set of endpoints to choose from, at one moment. It is immutable.
type picker struct {
	endpoints         []*Endpoint // all, by priority
	usable            []*Endpoint // those that get requests
	cumulativeWeights []uint32    // running sums of the weights of usable; nil if all are equal
}

// newPicker returns a picker for all endpoints, or nil if there are none. Of SRV records it
// uses the lowest priority that is reachable (RFC 2782), that is, with at most half of its
// endpoints ejected or unhealthy. If there is none, something shared by the endpoints probably fails
// rather than each of them, and requests crowded on the rest would overload it too. Then
// all of the first priority are used (the panic threshold; Envoy's is 50 % as well).
func newPicker(all []*Endpoint) *picker {
	if len(all) == 0 {
		return nil
	}
	v := &picker{endpoints: slices.Clone(all)}
	slices.SortStableFunc(v.endpoints, func(a, b *Endpoint) int { return int(a.priority) - int(b.priority) })
	for rest := v.endpoints; len(rest) > 0 && v.usable == nil; {
		level := rest[:countSamePriority(rest)]
		rest = rest[len(level):]
		healthy := slices.DeleteFunc(slices.Clone(level), func(m *Endpoint) bool { return m.isUnavailable() })
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

// countSamePriority returns how many endpoints at the start have the same priority.
func countSamePriority(by []*Endpoint) int {
	n := slices.IndexFunc(by, func(m *Endpoint) bool { return m.priority != by[0].priority })
	if n < 0 {
		return len(by)
	}
	return n
}

func (p *picker) sumWeights() {
	if !slices.ContainsFunc(p.usable, func(m *Endpoint) bool { return m.weight != p.usable[0].weight }) {
		return
	}
	sum := uint32(0)
	for _, m := range p.usable {
		sum += m.weight
		p.cumulativeWeights = append(p.cumulativeWeights, sum)
	}
}

// pick returns the less loaded of two random endpoints, another than avoid if there is one.
func (p *picker) pick(avoid string, random func(uint32) uint32) *Endpoint {
	if len(p.usable) == 1 && p.usable[0].addr != avoid {
		return p.usable[0]
	}
	a := p.pickRandom(avoid, nil, random)
	switch {
	case a == nil:
		return p.pickReserve(avoid)
	case p.cumulativeWeights != nil:
		// Both are drawn by weight and may be the same. While all are idle the first one
		// counts, so that the weights apply to few requests too.
		b := p.pickRandom(avoid, nil, random)
		if b.load()*int64(a.weight) < a.load()*int64(b.weight) {
			return b
		}
		return a
	}
	if b := p.pickRandom(avoid, a, random); b != nil && b.load() < a.load() {
		return b
	}
	return a
}

// pickRandom returns a random endpoint. If it hits an excluded one, it takes the next. It
// returns nil if there is no other.
func (p *picker) pickRandom(avoid string, not *Endpoint, random func(uint32) uint32) *Endpoint {
	n := len(p.usable)
	at := 0
	if p.cumulativeWeights != nil {
		r := random(p.cumulativeWeights[n-1])
		at = sort.Search(n, func(i int) bool { return p.cumulativeWeights[i] > r })
	} else {
		at = int(random(uint32(n)))
	}
	for range n {
		if m := p.usable[at]; m != not && m.addr != avoid {
			return m
		}
		at = (at + 1) % n
	}
	return nil
}

// pickReserve returns an endpoint for a retry if only avoid is usable: one of a lower
// priority that is neither ejected nor unhealthy, else avoid itself.
func (p *picker) pickReserve(avoid string) *Endpoint {
	for _, m := range p.endpoints {
		if m.addr != avoid && !m.isUnavailable() {
			return m
		}
	}
	return p.usable[0]
}

// dialOrder returns the endpoints in the order to dial: first the chosen one, unless it was
// removed. Then come the other usable ones from a random one on, those in reserve, the
// ejected and unhealthy ones, and finally avoid.
func (p *picker) dialOrder(first *Endpoint, avoid string, random func(uint32) uint32) []*Endpoint {
	if !slices.Contains(p.endpoints, first) {
		first = p.pick(avoid, random)
	}
	all := append(make([]*Endpoint, 0, len(p.endpoints)), first)
	add := func(m *Endpoint, wanted bool) {
		if wanted && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	start := int(random(uint32(len(p.usable))))
	for i := range p.usable {
		m := p.usable[(start+i)%len(p.usable)]
		add(m, m.addr != avoid)
	}
	for _, m := range p.endpoints {
		add(m, m.addr != avoid && !m.isUnavailable())
	}
	for _, m := range p.endpoints {
		add(m, m.addr != avoid)
	}
	for _, m := range p.endpoints {
		add(m, true)
	}
	return all
}

// Choice is how the endpoint of a Group is chosen for a request. The zero value is the less loaded
// of two random endpoints.
type Choice struct {
	Avoid      string // see GetOptions
	RoundRobin bool   // one endpoint after the other
	Key        uint64 // requests with the same key go to the same endpoint while the endpoints stay the same; 0: none
}

// choice returns the Choice for a request without an Endpoint.
func (o *GetOptions) choice() Choice { return Choice{Avoid: o.Avoid, Key: o.Key} }

// KeyOf returns the key for a value. It is the same in every process.
func KeyOf(value []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(value) // never fails
	return max(h.Sum64(), 1)
}

// choose returns the endpoint for a request.
func (p *picker) choose(by Choice, g *Group) *Endpoint {
	var m *Endpoint
	switch {
	case by.Key != 0:
		m = p.pickByKey(by)
	case by.RoundRobin:
		m = p.pickInTurn(by.Avoid, g.turns.Add(1))
	default:
		return p.pick(by.Avoid, g.random)
	}
	if m == nil {
		return p.pickReserve(by.Avoid)
	}
	return m
}

// pickInTurn returns the endpoint of that turn, or the next one if that is to be avoided; nil if
// there is no other. With weights the turns are spread by the golden ratio (Weyl's low-discrepancy
// sequence), so that the turns of one endpoint do not follow each other.
func (p *picker) pickInTurn(avoid string, turn uint64) *Endpoint {
	return p.pickRandom(avoid, nil, func(n uint32) uint32 {
		if p.cumulativeWeights == nil {
			return uint32(turn % uint64(n))
		}
		high, _ := bits.Mul64(turn*0x9e3779b97f4a7c15, uint64(n))
		return uint32(high)
	})
}

// pickByKey returns the endpoint with the highest score for the key, or nil if only the one to
// avoid is usable. An endpoint that is added or removed moves only its own keys (rendezvous
// hashing: D. Thaler, C. Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", 1998;
// with weights: C. Schindelhauer, G. Schomaker, "Weighted Distributed Hash Tables", 2005).
func (p *picker) pickByKey(by Choice) (best *Endpoint) {
	highest := math.Inf(-1)
	for _, m := range p.usable {
		if m.addr == by.Avoid {
			continue
		}
		uniform := (float64(mix(m.hash^by.Key)>>11) + 0.5) / (1 << 53) // in (0, 1)
		if score := -float64(m.weight) / math.Log(uniform); score > highest {
			best, highest = m, score
		}
	}
	return best
}

// mix spreads the bits of x (the finaliser of SplitMix64: G. Steele, D. Lea, C. Flood, "Fast Splittable
// Pseudorandom Number Generators", 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
