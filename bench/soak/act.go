package main

import (
	"time"
)

// kind is what the upstream does with an attempt.
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

// framing is how the upstream delimits its response.
type framing string

const (
	byLength  framing = "Content-Length"
	byChunks  framing = "chunked"
	byClose   framing = "until close"
	byHTTP10  framing = "HTTP/1.0" // with a length, closed after it
	noContent framing = "no body"  // 204 or 304
)

var framings = []framing{byLength, byLength, byLength, byChunks, byChunks, byChunks, byClose, byHTTP10}

// aftermath is what the upstream does with the connection after a whole response.
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

// act is what the upstream does with one attempt. It follows from seed, id and the attempt's number.
type act struct {
	kind     kind
	status   int
	framing  framing
	body     body
	early    bool // responds before it has read the request's body
	interim  []int
	delay    time.Duration // before the response
	trickles bool          // sends the body in small pieces, with pauses
	after    aftermath
	cutAt    float64 // for cuts: the part of the body sent
	asReset  bool    // the cut is a reset, not a close
	retry    string  // Retry-After: seconds, "date", or empty
	nonsense string  // for malforms
}

// block is how many requests in a row share a burst.
const block = 400

// burst is the failure that a block of requests meets most of the time; none
// for half of the blocks.
func burst(seed, id uint64) (failure int, on bool) {
	r := source(seed, id/block, 2)
	return r.IntN(len(failures)), one(r, 2)
}

// failures that come alone and in bursts. Without a kind they are whole responses.
var failures = []act{
	{status: 503}, {status: 503, retry: "0"}, {status: 503, retry: "1"}, {status: 503, retry: "date"},
	{status: 429}, {status: 429, retry: "1"}, {status: 429, retry: "3600"}, {status: 500}, {status: 502}, {status: 504},
	{kind: resets}, {kind: resetsEarly}, {kind: cutsHead}, {kind: malforms}, {status: 404}, {status: 501},
}

// newAct draws what the upstream does with attempt n (from 0) at request id.
func newAct(seed, id uint64, n int) act {
	r := source(seed, id, 16+uint64(n))
	failure, bursting := burst(seed, id)
	rate := 8
	if bursting {
		rate = 60
	}
	a := act{status: 200}
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
	if one(r, 6) && a.framing != byClose { // whatever came after such a body would be a part of it
		a.after = pick(r, aftermaths)
	}
	if a.kind == responds && size > 1 && one(r, 30) {
		a.kind, a.cutAt = cuts, r.Float64()
		a.asReset = a.framing == byClose || one(r, 2) // a close alone would look like a proper end
	}
	if a.kind == responds && one(r, 1500) {
		a.kind = stalls
	}
	return a
}

// has reports whether the act brings the headers of a valid response.
func (a *act) has() bool { return a.kind == responds || a.kind == cuts }

// bodyless reports whether no body follows the response headers, whatever they say.
func (a *act) bodyless(method string) bool { return method == "HEAD" || a.framing == noContent }

// malformedHeads must all be refused, or better: retried and never relayed. bench/conformance tries
// many more.
var malformedHeads = []string{
	"garbage\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
	"HTTP/1.1 200 OK\r\nX-A: b\r\n folded\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
}
