package main

import (
	"math/rand/v2"
	"time"
)

// behavior is how a client behaves during its request.
type behavior string

const (
	behaves      behavior = "behaves"
	leaves       behavior = "leaves before the response"
	leavesMidway behavior = "leaves in the middle of the response"
	cutsUpload   behavior = "ends its upload before the end"
	readsSlowly  behavior = "reads slowly"
	writesSlowly behavior = "writes slowly"
)

// behaviors are the unusual ones. Each happens in one request of a hundred.
var behaviors = []behavior{leaves, leavesMidway, cutsUpload, readsSlowly, writesSlowly}

// plan is a request and the behavior of its client. It follows from seed and id.
type plan struct {
	id       uint64
	method   string
	unsafe   bool // uses the route that retries every method
	keyed    bool // carries an Idempotency-Key
	minor    int  // HTTP/1.0 or 1.1
	close    bool // asks for the connection to end
	expect   bool // Expect: 100-continue
	body     body
	behavior behavior
	when     float64       // when the behavior shows, in [0, 1)
	think    time.Duration // before the request
}

var methods = []string{"GET", "GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "PUT", "DELETE", "OPTIONS", "PATCH"}

func one(r *rand.Rand, in int) bool { return r.IntN(in) == 0 }

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

// source returns a source of randomness for one purpose (what) of request id.
func source(seed, id, what uint64) *rand.Rand { return rand.New(rand.NewPCG(seed^what<<48, id)) }

func newPlan(seed, id uint64) *plan {
	r := source(seed, id, 1)
	p := &plan{id: id, method: pick(r, methods), minor: 1, behavior: behaves, when: r.Float64(),
		unsafe: one(r, 4), keyed: one(r, 5), close: one(r, 25), think: time.Duration(r.IntN(30)) * time.Millisecond}
	if k := r.IntN(100); k < len(behaviors) {
		p.behavior = behaviors[k]
	}
	if one(r, 10) {
		p.minor = 0
		p.close = !one(r, 3)
	}
	p.body = body{seed: seed, id: id, side: requestSide}
	if p.behavior == cutsUpload {
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

// mayHaveBody reports whether requests with this method usually have a body.
func (p *plan) mayHaveBody() bool {
	return p.method == "POST" || p.method == "PUT" || p.method == "PATCH"
}

// mayRetry reports whether the proxy may retry the request after any failure.
func (p *plan) mayRetry() bool {
	return p.unsafe || p.keyed || p.method != "POST" && p.method != "PATCH"
}

// pipelines reports whether the request may be pipelined.
func (p *plan) pipelines() bool {
	return p.behavior == behaves && p.minor == 1 && !p.close && !p.expect && p.body.size <= small
}

// lasts reports whether the connection may serve another request after this one.
func (p *plan) lasts() bool {
	return p.behavior == behaves || p.behavior == readsSlowly || p.behavior == writesSlowly
}

// path returns the path, which selects the route.
func (p *plan) path() string {
	if p.unsafe {
		return "/unsafe/thing"
	}
	return "/plain/thing"
}

// newSize returns a random body size. Most are small; the largest is 2 MiB.
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

// kind is how the upstream responds to an attempt.
type kind string

const (
	responds    kind = "a whole response"
	cuts        kind = "a response cut in its body"
	resets      kind = "a reset once the request was read"
	resetsEarly kind = "a reset before its body was read"
	cutsHead    kind = "a part of response headers"
	malforms    kind = "no HTTP response" // see malformedHeads
	stalls      kind = "nothing for longer than any timeout"
)

// framing is how a response marks its end.
type framing string

const (
	byLength  framing = "Content-Length"
	byChunks  framing = "chunked"
	byClose   framing = "until close"
	byHTTP10  framing = "HTTP/1.0" // with a length, closed after it
	noContent framing = "no body"  // 204 or 304
)

var framings = []framing{byLength, byLength, byLength, byChunks, byChunks, byChunks, byClose, byHTTP10}

// aftermath is what happens to the connection after a whole response.
type aftermath string

const (
	keeps          aftermath = ""
	closesSaid     aftermath = "Connection: close, and it does"
	closesSilently aftermath = "closes the idle connection a little later"
	saysMore       aftermath = "sends a response that nobody asked for"
	says408        aftermath = "sends an unasked 408 a little later and closes"
	closesAtOnce   aftermath = "closes without having said so"
)

var aftermaths = []aftermath{keeps, closesSaid, closesSilently, saysMore, says408, closesAtOnce}

// script is what the upstream does with an attempt. It follows from seed, id and the number of the attempt.
type script struct {
	kind     kind
	status   int
	framing  framing
	body     body
	early    bool // responds before it has read the request's body
	interim  []int
	delay    time.Duration // before the response
	trickles bool          // sends the body in small pieces, with pauses
	after    aftermath
	cutAt    float64 // for cuts: which part of the body is sent
	asReset  bool    // the cut is a reset, not a close
	retry    string  // Retry-After, sensible or not; "date" is in a second, "" is none
	nonsense string  // for malforms
}

// block is how many consecutive requests share a burst.
const block = 400

// burst returns the failure that most requests of a block meet. Half of the blocks have none.
func burst(seed, id uint64) (failure int, on bool) {
	r := source(seed, id/block, 2)
	return r.IntN(len(failures)), one(r, 2)
}

// failures happen alone and in bursts. Without a kind, they are whole responses.
var failures = []script{
	{status: 503}, {status: 503, retry: "0"}, {status: 503, retry: "1"}, {status: 503, retry: "date"},
	{status: 429}, {status: 429, retry: "1"}, {status: 429, retry: "3600"}, {status: 500}, {status: 502}, {status: 504},
	{status: 429, retry: "9223372037"}, {status: 429, retry: "-1"}, {status: 503, retry: "1e9"}, {status: 503, retry: "Fri, 31 Dec 9999 23:59:59 GMT"},
	{kind: resets}, {kind: resetsEarly}, {kind: cutsHead}, {kind: malforms}, {status: 404}, {status: 501},
}

// newScript returns what the upstream does with attempt n of request id. The first attempt is 0.
func newScript(seed, id uint64, n int) script {
	r := source(seed, id, 16+uint64(n))
	failure, bursting := burst(seed, id)
	rate := 8
	if bursting {
		rate = 60
	}
	a := script{status: 200}
	if n < 6 && r.IntN(100) < rate {
		if !bursting || one(r, 4) {
			failure = r.IntN(len(failures))
		}
		a = failures[failure]
	}
	if a.kind == "" {
		a.kind = responds
	}
	size := newSize(r)
	if a.status != 200 && !one(r, 8) {
		size = min(size, 2000) // most failing responses are small enough to hold
	}
	a.framing = pick(r, framings)
	if a.status == 200 && one(r, 20) {
		a.framing, a.status, size = noContent, pick(r, []int{204, 304}), 0
	}
	a.body = body{seed: seed, id: id, side: responseSide + uint64(n), size: size, chunked: a.framing == byChunks}
	a.body.trailer = a.body.chunked && one(r, 3)
	a.early = one(r, 15)
	a.trickles = one(r, 40)
	a.nonsense = pick(r, malformedHeads)
	if one(r, 25) {
		a.interim = pick(r, [][]int{{102}, {103}, {103, 103}, {102, 103}})
	}
	if one(r, 20) {
		a.delay = time.Duration(r.IntN(200)) * time.Millisecond
	}
	if one(r, 6) && a.framing != byClose { // any further bytes would belong to the body
		a.after = pick(r, aftermaths)
	}
	if a.kind == responds && size > 1 && one(r, 30) {
		a.kind, a.cutAt = cuts, r.Float64()
		a.asReset = a.framing == byClose || one(r, 2) // a close would be the proper end
	}
	if a.kind == responds && one(r, 1500) {
		a.kind = stalls
	}
	return a
}

// has reports whether the script sends the headers of a valid response.
func (a *script) has() bool { return a.kind == responds || a.kind == cuts }

// bodyless reports whether no body follows the response headers.
func (a *script) bodyless(method string) bool { return method == "HEAD" || a.framing == noContent }

// malformedHeads must be retried and never forwarded. bench/conformance has many more.
var malformedHeads = []string{
	"garbage\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
	"HTTP/1.1 200 OK\r\nX-A: b\r\n folded\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
}
