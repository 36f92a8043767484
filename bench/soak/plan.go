package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// conduct is what a client does with its request.
type conduct string

const (
	behaves      conduct = "behaves"
	leaves       conduct = "leaves before the response"
	leavesMidway conduct = "leaves in the middle of the response"
	cutsUpload   conduct = "ends its upload before the end"
	readsSlowly  conduct = "reads slowly"
	writesSlowly conduct = "writes slowly"
	breaksRules  conduct = "sends what must be refused" // see rules
)

// conducts are those of one client in a hundred each.
var conducts = []conduct{leaves, leavesMidway, cutsUpload, readsSlowly, writesSlowly, breaksRules}

// plan is a request and what its client does. It follows from seed and id.
type plan struct {
	id      uint64
	method  string
	unsafe  bool // takes the route on which every method is retried
	keyed   bool // carries an Idempotency-Key
	minor   int  // HTTP/1.0 or 1.1
	close   bool // asks for the connection to end
	expect  bool // Expect: 100-continue
	body    body
	conduct conduct
	when    float64       // of what the conduct does, in [0, 1)
	broken  *rule         // by breaksRules
	think   time.Duration // before the request
}

var methods = []string{"GET", "GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "PUT", "DELETE", "OPTIONS", "PATCH"}

func one(r *rand.Rand, in int) bool { return r.IntN(in) == 0 }

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

// source draws what of request id.
func source(seed, id, what uint64) *rand.Rand { return rand.New(rand.NewPCG(seed^what<<48, id)) }

func newPlan(seed, id uint64) *plan {
	r := source(seed, id, 1)
	p := &plan{id: id, method: pick(r, methods), minor: 1, conduct: behaves, when: r.Float64(),
		unsafe: one(r, 4), keyed: one(r, 5), close: one(r, 25), think: time.Duration(r.IntN(30)) * time.Millisecond}
	if k := r.IntN(100); k < len(conducts) {
		p.conduct = conducts[k]
	}
	if one(r, 10) {
		p.minor = 0
		p.close = !one(r, 3)
	}
	p.body = body{seed: seed, id: id, side: requestSide}
	switch p.conduct {
	case breaksRules:
		p.broken = &rules[r.IntN(len(rules))]
		p.method, p.minor, p.close, p.unsafe, p.keyed = "GET", 1, false, false, false
		return p
	case cutsUpload:
		p.method, p.body.size = pick(r, []string{"POST", "PUT"}), 2
	}
	if p.mayHaveBody() {
		p.body.size = max(p.body.size, newSize(r))
		p.body.chunked = p.minor == 1 && one(r, 3)
	}
	p.body.trailer = p.body.chunked && one(r, 3)
	p.expect = p.minor == 1 && p.body.size > 0 && one(r, 8)
	return p
}

// mayHaveBody reports whether the method carries a body as a rule.
func (p *plan) mayHaveBody() bool {
	return p.method == "POST" || p.method == "PUT" || p.method == "PATCH"
}

// mayRetry reports whether the policy may retry the request after a failure of any kind.
func (p *plan) mayRetry() bool {
	return p.unsafe || p.keyed || p.method != "POST" && p.method != "PATCH"
}

// pipelines reports whether the request may be sent before the response to the one before it: it is
// plain, small and whole.
func (p *plan) pipelines() bool {
	return p.conduct == behaves && p.minor == 1 && !p.close && !p.expect && p.body.size <= small
}

// lasts reports whether the connection may serve another request after this one.
func (p *plan) lasts() bool {
	return p.conduct == behaves || p.conduct == readsSlowly || p.conduct == writesSlowly
}

// path of the request; the route follows from it.
func (p *plan) path() string {
	if p.unsafe {
		return "/unsafe/thing"
	}
	return "/plain/thing"
}

// newSize draws a body size: most are small, none is above 2 MiB.
func newSize(r *rand.Rand) int64 {
	k := r.IntN(100)
	for _, c := range []struct {
		below int
		most  int64
	}{{5, 0}, {60, 2 << 10}, {90, 32 << 10}, {98, 256 << 10}, {99, 2 << 20}} {
		if k < c.below {
			return min(1+r.Int64N(c.most+1), c.most)
		}
	}
	return 2 << 20
}

// rule is a rule of HTTP, or a limit, and a request that breaks it. The proxy
// must answer with one of the statuses and close, and send nothing upstream.
type rule struct {
	name   string
	head   string // @ stands for the fields that name the request
	status []int
}

// rules that clients break, a few of those that bench/conformance tries. Every head is sent whole.
var rules = []rule{
	{"length and chunked", "POST /plain/x HTTP/1.1\r\nHost: soak.test\r\n@Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []int{400}},
	{"bare LF", "GET /plain/x HTTP/1.1\nHost: soak.test\n@\n", []int{400}},
	{"NUL", "GET /plain/x HTTP/1.1\r\nHost: soak.test\r\n@X-A: \x00\r\n\r\n", []int{400}},
	{"no Host", "GET /plain/x HTTP/1.1\r\n@\r\n", []int{400}},
	{"expectation", "GET /plain/x HTTP/1.1\r\nHost: soak.test\r\n@Expect: a-miracle\r\n\r\n", []int{417}},
	{"long head", "GET /plain/x HTTP/1.1\r\nHost: soak.test\r\n@X-A: " + strings.Repeat("a", 70<<10) + "\r\n\r\n", []int{431}},
	{"other route's path", "GET /plain/../unsafe/x HTTP/1.1\r\nHost: soak.test\r\n@\r\n", []int{400}},
}

// text is the request that breaks the rule.
func (r *rule) text(id uint64) string {
	end := "\n"
	if strings.Contains(r.head, "\r\n") {
		end = "\r\n"
	}
	return strings.ReplaceAll(r.head, "@", fmt.Sprintf("%s: %d%s", fieldID, id, end))
}
