package upstream

import (
	"hash/fnv"
	"math"
	"math/bits"
)

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
func (v *picker) choose(by Choice, g *Group) *Endpoint {
	var m *Endpoint
	switch {
	case by.Key != 0:
		m = v.pickByKey(by)
	case by.RoundRobin:
		m = v.pickInTurn(by.Avoid, g.turns.Add(1))
	default:
		return v.pick(by.Avoid, g.random)
	}
	if m == nil {
		return v.pickReserve(by.Avoid)
	}
	return m
}

// pickInTurn returns the endpoint of that turn, or the next one if that is to be avoided; nil if
// there is no other. With weights the turns are spread by the golden ratio (Weyl's low-discrepancy
// sequence), so that the turns of one endpoint do not follow each other.
func (v *picker) pickInTurn(avoid string, turn uint64) *Endpoint {
	return v.pickRandom(avoid, nil, func(n uint32) uint32 {
		if v.cumulativeWeights == nil {
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
func (v *picker) pickByKey(by Choice) (best *Endpoint) {
	highest := math.Inf(-1)
	for _, m := range v.usable {
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
