package main

import (
	"math/rand/v2"
	"time"
)

// conduct is what a client does with its request.
type conduct uint8

const (
	behaves      conduct = iota
	leaves               // closes its connection while it waits for the response
	leavesMidway         // closes it in the middle of the response
	cutsUpload           // ends its upload before the end
	readsSlowly
	writesSlowly
	breaksRules // sends a request that must be refused; see rules.go
)

// plan is a request and what its client does. It follows from seed and id.
type plan struct {
	id      uint64
	method  string
	unsafe  bool // takes the route on which every method is retried
	keyed   bool // carries an Idempotency-Key
	minor   int  // HTTP/1.0 or 1.1
	close   bool // asks for the connection to end
	chunked bool
	trailer bool
	expect  bool // Expect: 100-continue
	body    content
	conduct conduct
	when    float64       // of what the conduct does, in [0, 1)
	broken  int           // index of the rule broken
	think   time.Duration // before the request
}

var methods = []string{"GET", "GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "PUT", "DELETE", "OPTIONS", "PATCH"}

// one in n.
func one(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

func source(seed, id, what uint64) *rand.Rand { return rand.New(rand.NewPCG(seed^what<<48, id)) }

func newPlan(seed, id uint64) *plan {
	r := source(seed, id, 1)
	p := &plan{id: id, method: methods[r.IntN(len(methods))], minor: 1, when: r.Float64(),
		unsafe: one(r, 4), keyed: one(r, 5), close: one(r, 25), think: time.Duration(r.IntN(30)) * time.Millisecond}
	p.conduct = newConduct(r)
	if one(r, 10) {
		p.minor = 0
		p.close = !one(r, 3)
	}
	p.planBody(seed, r)
	if p.conduct == breaksRules {
		return &plan{id: id, method: "GET", minor: 1, conduct: breaksRules, broken: r.IntN(len(rules)), think: p.think}
	}
	return p
}

func newConduct(r *rand.Rand) conduct {
	switch r.IntN(100) {
	case 0:
		return leaves
	case 1:
		return leavesMidway
	case 2:
		return cutsUpload
	case 3:
		return readsSlowly
	case 4:
		return writesSlowly
	case 5:
		return breaksRules
	}
	return behaves
}

func (p *plan) planBody(seed uint64, r *rand.Rand) {
	if p.conduct == cutsUpload {
		p.method = []string{"POST", "PUT"}[r.IntN(2)]
	}
	size := int64(0)
	if p.mayHaveBody() {
		size = newSize(r)
	}
	if p.conduct == cutsUpload {
		size = max(size, 2)
	}
	p.body = newContent(seed, p.id, requestSide, size)
	p.chunked = p.minor == 1 && p.mayHaveBody() && one(r, 3)
	p.trailer = p.chunked && one(r, 3)
	p.expect = p.minor == 1 && size > 0 && one(r, 8)
}

// mayHaveBody: the methods that carry one as a rule.
func (p *plan) mayHaveBody() bool {
	return p.method == "POST" || p.method == "PUT" || p.method == "PATCH"
}

// mayRepeat: what the policy calls safe to repeat.
func (p *plan) mayRepeat() bool {
	return p.unsafe || p.keyed || p.method != "POST" && p.method != "PATCH"
}

// newSize draws a body size: most are small, none is above 2 MiB.
func newSize(r *rand.Rand) int64 {
	switch k := r.IntN(100); {
	case k < 5:
		return 0
	case k < 60:
		return 1 + r.Int64N(2<<10)
	case k < 90:
		return 1 + r.Int64N(32<<10)
	case k < 98:
		return 1 + r.Int64N(256<<10)
	case k < 99:
		return 1 + r.Int64N(2<<20)
	}
	return 2 << 20
}

// path of the request; the route follows from it.
func (p *plan) path() string {
	if p.unsafe {
		return "/unsafe/thing"
	}
	return "/plain/thing"
}

// pipelines says whether the request may be sent before the answer to the one
// before it has come: plain, small and whole.
func (p *plan) pipelines() bool {
	return p.conduct == behaves && p.minor == 1 && !p.close && !p.expect && p.body.size <= 4096
}
